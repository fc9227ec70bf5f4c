#include "ffi/control.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ffi/hash.h"
#include "ffi/leaving.h"
#include "ffi/progress.h"

namespace pccl {

struct Mail {
  struct Outgoing {
    MpiLibrary::Handle request;
    std::unique_ptr<ControlMessage> message;
  };
  std::mutex mutex;
  std::vector<Outgoing> out;
  std::map<std::pair<uint64_t, ControlKind>, std::deque<ControlMessage>> in;
  std::map<std::pair<int64_t, ControlKind>, std::string> news;  // kWaiting, kFarewell by process
  std::map<uint64_t, std::string> refused;                      // keys whose handshake failed here
  std::map<int, int> used_tags;                                 // first tag -> one past the last
  std::string revoked;

  // What has not been sent is left to MPI for good.
  ~Mail() {
    for (Outgoing& o : out) o.message.release();
  }
};

std::shared_ptr<Mail> MakeMail() { return std::make_shared<Mail>(); }

namespace {

void SetText(ControlMessage* message, const std::string& text) {
  const size_t n = std::min(text.size(), sizeof message->text - 1);
  std::memcpy(message->text, text.data(), n);
  message->text[n] = '\0';
}

void SendLocked(const World& world, int64_t process, const ControlMessage& message) {
  Mail& mail = *world.mail;
  const auto sent = [&](Mail::Outgoing& o) { return world.mpi->Test(&o.request); };
  mail.out.erase(std::remove_if(mail.out.begin(), mail.out.end(), sent), mail.out.end());
  auto copy = std::make_unique<ControlMessage>(message);
  copy->source = world.process;
  const auto rank = static_cast<int>(world.mpi_rank[static_cast<size_t>(process)]);
  const auto request = world.mpi->Isend(copy.get(), sizeof *copy, rank, kControlTag, world.comm);
  mail.out.push_back({request, std::move(copy)});
}

constexpr int kCandidates = 64;
constexpr int kProbes = 4;

// Candidate i for the first tag of a key: the same on every process.
int TagCandidate(const World& world, uint64_t key, int i, int span) {
  const int places = (world.largest_tag - kFirstDataTag) / span;
  const uint64_t place = Mix(key, static_cast<uint64_t>(i)) % static_cast<uint64_t>(places);
  return kFirstDataTag + static_cast<int>(place) * span;
}

bool TagsAreFree(const Mail& mail, int first, int span) {
  const auto after = mail.used_tags.lower_bound(first);
  if (after != mail.used_tags.end() && after->first < first + span) return false;
  return after == mail.used_tags.begin() || std::prev(after)->second <= first;
}

int Span(const Team& team) { return static_cast<int>(team.width * team.width); }

uint64_t FreeTags(const World& world, uint64_t key, int span) {
  Mail& mail = *world.mail;
  std::lock_guard<std::mutex> lock(mail.mutex);
  uint64_t free = 0;
  for (int i = 0; i < kCandidates; ++i) {
    const bool is_free = TagsAreFree(mail, TagCandidate(world, key, i, span), span);
    free |= static_cast<uint64_t>(is_free) << i;
  }
  return free;
}

void UseTags(const World& world, int first, int span) {
  Mail& mail = *world.mail;
  std::lock_guard<std::mutex> lock(mail.mutex);
  mail.used_tags[first] = first + span;
}

}  // namespace

void SendControl(const World& world, int64_t process, const ControlMessage& message) {
  Mail& mail = *world.mail;
  std::lock_guard<std::mutex> lock(mail.mutex);
  SendLocked(world, process, message);
}

void SendText(const World& world, const std::vector<int64_t>& processes, ControlKind kind,
              uint64_t key, const std::string& text) {
  ControlMessage message;
  message.key = key;
  message.kind = kind;
  SetText(&message, text);
  for (const int64_t process : processes) {
    if (process != world.process) SendControl(world, process, message);
  }
}

void PollControl(const World& world, bool must) {
  Mail& mail = *world.mail;
  std::unique_lock<std::mutex> lock(mail.mutex, std::defer_lock);
  if (must) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return;
  }
  // A library may look for a message before it fetches those that have come, and fetch one at a
  // time: what came behind the data is seen only by a later probe.
  for (int misses = must ? kProbes : 1; misses > 0;) {
    ControlMessage message;
    if (!world.mpi->ReceiveFromAny(&message, sizeof message, kControlTag, world.comm)) {
      --misses;
      continue;
    }
    const auto refused = mail.refused.find(message.key);
    if (message.kind == ControlKind::kHello && refused != mail.refused.end()) {
      ControlMessage verdict;
      verdict.key = message.key;
      verdict.kind = ControlKind::kVerdict;
      SetText(&verdict, refused->second);
      SendLocked(world, message.source, verdict);
      continue;
    }
    if (message.kind == ControlKind::kWaiting || message.kind == ControlKind::kFarewell) {
      mail.news[{message.source, message.kind}] = message.text;
      continue;
    }
    if (message.kind == ControlKind::kRevoke) {
      if (mail.revoked.empty()) mail.revoked = message.text;
      continue;
    }
    mail.in[{message.key, message.kind}].push_back(message);
  }
}

bool TakeControl(const World& world, uint64_t key, ControlKind kind, ControlMessage* message) {
  Mail& mail = *world.mail;
  std::lock_guard<std::mutex> lock(mail.mutex);
  const auto it = mail.in.find({key, kind});
  if (it == mail.in.end()) return false;
  *message = it->second.front();
  it->second.pop_front();
  if (it->second.empty()) mail.in.erase(it);
  return true;
}

namespace {

std::string NewsOf(const World& world, int64_t process, ControlKind kind) {
  Mail& mail = *world.mail;
  std::lock_guard<std::mutex> lock(mail.mutex);
  const auto it = mail.news.find({process, kind});
  return it == mail.news.end() ? "" : it->second;
}

}  // namespace

Health PeerHealth(const World& world, int64_t process) {
  if (world.shared.Has(process)) {
    return HealthOf(world.shared.Of(process), world.visible.count(process) != 0);
  }
  const std::string farewell = NewsOf(world, process, ControlKind::kFarewell);
  if (farewell.empty()) return {};
  return {true, "has left the program: " + farewell};
}

std::string PeerNews(const World& world, int64_t process) {
  const std::string trouble = PeerHealth(world, process).trouble;
  if (!trouble.empty()) return ", which " + trouble;
  std::string doing = NewsOf(world, process, ControlKind::kWaiting);
  if (doing.empty() && world.shared.Has(process)) doing = PublishedTexts(world.shared.Of(process));
  return doing.empty() ? "" : ", which is in " + doing;
}

void ReleaseTags(const World& world, int first_tag) {
  Mail& mail = *world.mail;
  std::lock_guard<std::mutex> lock(mail.mutex);
  mail.used_tags.erase(first_tag);
}

void Revoke(const World& world, const std::string& why) {
  const std::string text =
      "this communicator is not used any more, as an earlier collective on it has failed and its "
      "processes may be out of step; go on with a new one, from comm.Dup(). The failure: " +
      why;
  {
    std::lock_guard<std::mutex> lock(world.mail->mutex);
    if (!world.mail->revoked.empty()) return;
    world.mail->revoked = text;
  }
  NoteFailure();
  if (ProgressHasStopped()) return;
  try {
    SendText(world, world.AllProcesses(), ControlKind::kRevoke, 0, text);
  } catch (const std::exception&) {
    // Those who do not hear it run into their timeout.
  }
}

std::string Revoked(const World& world) {
  std::lock_guard<std::mutex> lock(world.mail->mutex);
  return world.mail->revoked;
}

Handshake::Handshake(const World& world, const Team& team, uint64_t key, uint64_t signature,
                     std::string description)
    : world_(world),
      team_(team),
      key_(key),
      signature_(signature),
      description_(std::move(description)) {}

bool Handshake::Advance() {
  if (complete() || !error_.empty()) return false;
  const bool starts = !started_;
  if (starts) SayHello();
  PollControl(world_);
  return (leads() ? HearHellos() : HearVerdict()) || starts;
}

void Handshake::SayHello() {
  started_ = true;
  ControlMessage hello;
  hello.key = key_;
  hello.source = world_.process;
  hello.signature = signature_;
  hello.free_tags = FreeTags(world_, key_, Span(team_));
  SetText(&hello, description_);
  if (leads()) {
    hellos_[world_.process] = hello;
  } else {
    SendControl(world_, team_.processes[0], hello);
  }
}

bool Handshake::HearHellos() {
  ControlMessage hello;
  bool any = false;
  while (TakeControl(world_, key_, ControlKind::kHello, &hello)) {
    hellos_[hello.source] = hello;
    any = true;
    if (hello.signature == hellos_[world_.process].signature) continue;
    error_ = Disagreement(world_.process, description_, hello.source, hello.text);
  }
  if (!error_.empty() || hellos_.size() == team_.processes.size()) Announce();
  return any;
}

void Handshake::Announce() {
  uint64_t free = ~uint64_t{0};
  for (const auto& [process, hello] : hellos_) free &= hello.free_tags;
  if (error_.empty() && free == 0) error_ = "no free message tags: too many collectives";
  int candidate = 0;
  while (error_.empty() && ((free >> candidate) & 1) == 0) ++candidate;
  ControlMessage verdict;
  verdict.key = key_;
  verdict.kind = ControlKind::kVerdict;
  SetText(&verdict, error_);
  if (error_.empty()) {
    tag_ = verdict.tag = TagCandidate(world_, key_, candidate, Span(team_));
    UseTags(world_, tag_, Span(team_));
  } else {
    Mail& mail = *world_.mail;
    std::lock_guard<std::mutex> lock(mail.mutex);
    mail.refused[key_] = error_;
  }
  for (const auto& [process, hello] : hellos_) {
    if (process != world_.process) SendControl(world_, process, verdict);
  }
}

bool Handshake::HearVerdict() {
  ControlMessage verdict;
  if (!TakeControl(world_, key_, ControlKind::kVerdict, &verdict)) return false;
  if (verdict.tag < 0) {
    error_ = verdict.text;
  } else {
    tag_ = verdict.tag;
    UseTags(world_, tag_, Span(team_));
  }
  return true;
}

std::vector<int64_t> Handshake::Awaited() const {
  if (!leads()) return {team_.processes[0]};
  std::vector<int64_t> awaited;
  for (const int64_t process : team_.processes) {
    if (hellos_.count(process) == 0) awaited.push_back(process);
  }
  return awaited;
}

NeighbourCheck::NeighbourCheck(const World& world, const Team& team, uint64_t key,
                               uint64_t signature, std::string description)
    : world_(world),
      team_(team),
      key_(key),
      signature_(signature),
      description_(std::move(description)) {}

int64_t NeighbourCheck::Neighbour(size_t steps) const {
  const std::vector<int64_t>& all = team_.processes;
  const auto me = std::find(all.begin(), all.end(), world_.process) - all.begin();
  return all[(static_cast<size_t>(me) + steps) % all.size()];
}

bool NeighbourCheck::Advance() {
  if (complete_ || !error_.empty()) return false;
  const bool starts = !started_;
  ControlMessage hello;
  if (starts) {
    started_ = true;
    hello.key = key_;
    hello.kind = ControlKind::kHello;
    hello.signature = signature_;
    SetText(&hello, description_);
    SendControl(world_, Neighbour(1), hello);
  }
  PollControl(world_);
  if (!TakeControl(world_, key_, ControlKind::kHello, &hello)) return starts;
  if (hello.signature == signature_) {
    complete_ = true;
  } else {
    error_ = Disagreement(world_.process, description_, hello.source, hello.text);
  }
  return true;
}

// Executions may overlap, if at all, with those that threads of the program have just started.
int NeighbourCheck::first_tag() const {
  const auto tags = static_cast<uint64_t>(world_.largest_tag - kFirstDataTag);
  return kFirstDataTag + static_cast<int>(key_ % tags);
}

std::vector<int64_t> NeighbourCheck::Awaited() const {
  return {Neighbour(team_.processes.size() - 1)};
}

}  // namespace pccl
