#include "ffi/control.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

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
  std::string revoked;

  // What has not been sent is left to MPI for good.
  ~Mail() {
    for (Outgoing& o : out) o.message.release();
  }
};

std::shared_ptr<Mail> MakeMail() { return std::make_shared<Mail>(); }

namespace {

constexpr int kProbes = 4;

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

}  // namespace

void SetText(ControlMessage* message, const std::string& text) {
  const size_t n = std::min(text.size(), sizeof message->text - 1);
  std::memcpy(message->text, text.data(), n);
  message->text[n] = '\0';
}

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

void RefuseHellos(const World& world, uint64_t key, const std::string& error) {
  Mail& mail = *world.mail;
  std::lock_guard<std::mutex> lock(mail.mutex);
  mail.refused[key] = error;
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

}  // namespace pccl
