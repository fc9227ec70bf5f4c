#include "ffi/remote.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <set>
#include <utility>

#include "ffi/hash.h"
#include "ffi/leaving.h"
#include "ffi/progress.h"

namespace pccl {
namespace {

// The processes of the ranks [first, first + local), in order of their first rank.
std::vector<NodeMember> MembersOf(const Team& team, int64_t first, int64_t local) {
  std::vector<NodeMember> members;
  std::map<int64_t, size_t> where;
  for (int64_t index = 0; index < local; ++index) {
    const int64_t process = team.process_of[static_cast<size_t>(first + index)];
    const auto [it, is_new] = where.emplace(process, members.size());
    if (is_new) members.push_back({process, {}});
    members[it->second].indices.push_back(index);
  }
  return members;
}

}  // namespace

Remote::Remote(const World& world, const Team& team, const Layout& layout, const Schedule& schedule,
               RankState* ranks, uint64_t occasion, const std::string& title, uint64_t digest,
               Channel* channel)
    : world_(world),
      team_(team),
      schedule_(schedule),
      occasion_(occasion),
      title_(title),
      signature_(Mix(HashOf(title), digest)),
      channel_(channel) {
  AddNodeParts(ranks, layout);
  if (world_.ordered) {
    // Where all of it goes through shared memory, the boards say what everybody is in.
    if (!OnBoards()) {
      agreement_ = std::make_unique<NeighbourCheck>(world_, team_, occasion_, signature_, title_);
    }
  } else if (channel_->first_tag < 0 || channel_->check_always) {
    agreement_ = std::make_unique<Handshake>(world_, team_, occasion_, signature_, title_);
  } else if (NeedsMessages()) {
    transport_ = std::make_unique<MpiTransport>(world_, team_, channel_->first_tag);
  }
}

// What others believe this process to be waiting for is over once a collective has succeeded.
Remote::~Remote() {
  std::atomic<bool>& complained = world_.complained;
  if (given_up_ || !complained.load(std::memory_order_relaxed) || ProgressHasStopped()) return;
  complained.store(false);
  try {
    SendText(world_, world_.AllProcesses(), ControlKind::kWaiting, 0, "");
  } catch (const std::exception&) {
    // It would only have improved somebody's error message.
  }
}

void Remote::AddNodeParts(RankState* ranks, const Layout& layout) {
  for (const Phase& phase : schedule_.phases) {
    for (int64_t node = 0; phase.intra && node < schedule_.nodes; ++node) {
      const int64_t first = node * schedule_.local;
      SharedNodePhase::Setup setup;
      setup.members = MembersOf(team_, first, schedule_.local);
      if (setup.members.size() == 1) continue;
      size_t me = 0;
      while (me < setup.members.size() && setup.members[me].process != world_.process) ++me;
      if (me == setup.members.size()) continue;  // a node of others
      setup.layout = &layout;
      setup.schedule = &schedule_;
      setup.phase = &phase;
      setup.ranks = ranks;
      setup.first = first;
      setup.me = me;
      setup.shared = &world_.shared;
      setup.key = Mix(Mix(occasion_, static_cast<uint64_t>(node)),
                      static_cast<uint64_t>(phase.first_round));
      setup.signature = signature_;
      setup.description = title_;
      auto part = std::make_unique<NodePart>();
      part->phase = &phase;
      part->node = node;
      part->part = std::make_unique<SharedNodePhase>(std::move(setup));
      node_parts_.push_back(std::move(part));
    }
  }
}

bool Remote::OnBoards() const {
  const auto& phases = schedule_.phases;
  return std::all_of(phases.begin(), phases.end(), [](const Phase& p) { return p.intra; });
}

// Whether any rank exchanges messages with a rank of another process, in any round.
bool Remote::NeedsMessages() const {
  for (const Phase& phase : schedule_.phases) {
    for (int64_t rank = 0; !phase.intra && rank < schedule_.ranks(); ++rank) {
      const int64_t node = rank / schedule_.local, index = rank % schedule_.local;
      const int64_t to = phase.ReceiverFrom(node, schedule_.nodes);
      if (to < 0) continue;
      const auto receiver = static_cast<size_t>(to * schedule_.local + index);
      if (team_.process_of[receiver] != team_.process_of[static_cast<size_t>(rank)]) return true;
    }
  }
  return false;
}

bool Remote::RunsNodePhase(const Phase& phase, int64_t node) const {
  for (const auto& part : node_parts_) {
    if (part->phase == &phase && part->node == node) return true;
  }
  return false;
}

void Remote::AdvanceNodePhase(const Phase& phase, int64_t node, bool* any) {
  for (const auto& part : node_parts_) {
    if (part->phase != &phase || part->node != node) continue;
    std::unique_lock<std::mutex> lock(part->mutex, std::try_to_lock);
    if (lock.owns_lock()) *any |= part->part->Advance();
  }
}

bool Remote::Ready(bool* any) {
  if (!agreement_) return true;
  std::unique_lock<std::mutex> lock(agreement_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (agreement_->complete()) return true;
  *any |= agreement_->Advance();
  if (!agreement_->complete()) return false;
  if (!world_.ordered) KeepTags();
  if (NeedsMessages()) {
    const int first_tag = world_.ordered ? agreement_->first_tag() : channel_->first_tag;
    transport_ = std::make_unique<MpiTransport>(world_, team_, first_tag);
  }
  return true;
}

// The first agreement of a call site gives it its tags, those of later ones are not needed.
void Remote::KeepTags() {
  const bool first = channel_->first_tag < 0;
  if (first) channel_->first_tag = agreement_->first_tag();
  if (!first || !NeedsMessages()) world_.tags.Release(agreement_->first_tag());
}

std::string Remote::Trouble() {
  for (const auto& part : node_parts_) {
    std::lock_guard<std::mutex> lock(part->mutex);
    if (!part->part->error().empty()) return part->part->error();
  }
  {
    std::lock_guard<std::mutex> lock(agreement_mutex_);
    if (agreement_ && !agreement_->error().empty()) return agreement_->error();
  }
  if (ProgressHasStopped()) return "MPI has been finalised while a collective was running";
  if (transport_ || agreement_) PollControl(world_);
  for (const std::string& text : {Aborted(), Strayed(), Revoked(world_)}) {
    if (!text.empty()) return text;
  }
  return Absence();
}

// Of an execution that sends no messages, an ordered world's: whether the process before this one
// is in another that does.
std::string Remote::Strayed() {
  ControlMessage hello;
  if (!world_.ordered || agreement_) return "";
  if (!TakeControl(world_, occasion_, ControlKind::kHello, &hello)) return "";
  return Disagreement(world_.process, title_, hello.source, hello.text);
}

std::string Remote::Aborted() {
  std::lock_guard<std::mutex> lock(abort_mutex_);
  ControlMessage message;
  if (abort_.empty() && TakeControl(world_, occasion_, ControlKind::kAbort, &message)) {
    abort_ = message.text;
  }
  return abort_;
}

// A process that gives up frees the buffers that MPI may not have read yet, but first it says so.
// What has come through shared memory is as good as ever.
std::string Remote::Confirm() {
  if (!transport_) return "";
  PollControl(world_, true);
  return Aborted();
}

// What a process that is gone has sent may still be on its way, so it gets a little time.
std::string Remote::Absence() {
  constexpr std::chrono::milliseconds kBetweenLooks{50}, kMercy{500};
  std::unique_lock<std::mutex> lock(absence_mutex_, std::try_to_lock);
  const Clock::time_point now = Clock::now();
  if (!lock.owns_lock() || now < next_look_) return "";
  next_look_ = now + kBetweenLooks;
  for (const int64_t process : team_.processes) {
    if (process == world_.process) continue;
    const Health health = PeerHealth(world_, process);
    if (!health.gone) continue;
    const Clock::time_point since = gone_since_.emplace(process, now).first->second;
    if (now - since < kMercy) continue;
    return "process " + std::to_string(process) + " " + health.trouble;
  }
  return "";
}

void Remote::Abandon(const std::string& error) {
  NoteFailure();
  given_up_ = true;
  for (const auto& part : node_parts_) part->part->Abandon(error);
  if (transport_) transport_->Cancel();
  // Messages of this execution may still come: the next must not take them for its own.
  if (!world_.ordered) channel_->first_tag = -1;
  if (!ProgressHasStopped()) {
    SendText(world_, team_.processes, ControlKind::kAbort, occasion_, error);
    if (world_.complained.load()) {
      const std::string news = title_ + ", where it has given up";
      SendText(world_, team_.processes, ControlKind::kWaiting, 0, news);
    }
  }
}

void Remote::Complain() {
  std::string text;
  for (const int64_t process : Awaited()) {
    const std::string trouble = PeerHealth(world_, process).trouble;
    text += (text.empty() ? ", where it waits for process " : ", ") + std::to_string(process);
    if (!trouble.empty()) text += " (which " + trouble + ")";
  }
  world_.complained.store(true);
  SendText(world_, team_.processes, ControlKind::kWaiting, 0, title_ + text);
}

std::set<int64_t> Remote::Awaited() {
  std::set<int64_t> awaited;
  const auto add = [&](const std::vector<int64_t>& processes) {
    awaited.insert(processes.begin(), processes.end());
  };
  {
    std::lock_guard<std::mutex> lock(agreement_mutex_);
    if (agreement_ && !agreement_->complete()) {
      add(agreement_->Awaited());
      return awaited;
    }
  }
  for (const auto& part : node_parts_) {
    std::lock_guard<std::mutex> lock(part->mutex);
    if (!part->part->complete()) add(part->part->Awaited());
  }
  if (transport_) {
    for (const int64_t rank : transport_->Awaited()) {
      awaited.insert(team_.process_of[static_cast<size_t>(rank)]);
    }
  }
  return awaited;
}

std::string Remote::WaitingFor() {
  const std::set<int64_t> awaited = Awaited();
  std::string text, others;
  for (const int64_t process : team_.processes) {
    const std::string news = process == world_.process ? "" : PeerNews(world_, process);
    if (awaited.count(process) != 0) {
      text += (text.empty() ? "for process " : "; for process ") + std::to_string(process) + news;
    } else if (!news.empty() && news.find(title_) == std::string::npos) {
      others += "; not for process " + std::to_string(process) + news;
    }
  }
  text += others;
  for (const auto& part : node_parts_) {
    std::lock_guard<std::mutex> lock(part->mutex);
    if (part->part->LacksBoard()) text = "for a free board: too many collectives are in flight";
  }
  return text.empty() ? "for itself. This is a bug of pccl_jax" : text;
}

}  // namespace pccl
