#include "ffi/remote.h"

#include <map>
#include <utility>

#include "ffi/hash.h"

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
               RankState* ranks, uint64_t occasion, const std::string& title, Channel* channel)
    : world_(world), team_(team), schedule_(schedule), occasion_(occasion), channel_(channel) {
  AddNodeParts(ranks, layout, title);
  if (!NeedsMessages()) return;
  if (channel_->first_tag < 0 || channel_->check_always) {
    handshake_ = std::make_unique<Handshake>(world_, team_, occasion_, title);
  } else {
    transport_ = std::make_unique<MpiTransport>(world_, team_, channel_->first_tag);
  }
}

void Remote::AddNodeParts(RankState* ranks, const Layout& layout, const std::string& title) {
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
      setup.description = title;
      auto part = std::make_unique<NodePart>();
      part->phase = &phase;
      part->node = node;
      part->part = std::make_unique<SharedNodePhase>(std::move(setup));
      node_parts_.push_back(std::move(part));
    }
  }
}

// Whether any rank of this process exchanges messages with another process, in any round. The
// answer must be the same on all processes of the team, or one would wait for a handshake that
// the other does not begin: so it is asked of all ranks.
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
  return channel_->check_always;
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
  if (!handshake_) return true;
  std::unique_lock<std::mutex> lock(handshake_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (handshake_->complete()) return true;
  *any |= handshake_->Advance();
  if (!handshake_->complete()) return false;
  if (channel_->first_tag < 0) {
    channel_->first_tag = handshake_->first_tag();
  } else {
    ReleaseTags(handshake_->first_tag());
  }
  transport_ = std::make_unique<MpiTransport>(world_, team_, channel_->first_tag);
  return true;
}

std::string Remote::Trouble() {
  for (const auto& part : node_parts_) {
    std::lock_guard<std::mutex> lock(part->mutex);
    if (!part->part->error().empty()) return part->part->error();
  }
  {
    std::lock_guard<std::mutex> lock(handshake_mutex_);
    if (handshake_ && !handshake_->error().empty()) return handshake_->error();
  }
  if (!transport_ && !handshake_) return "";
  PollControl(world_);
  ControlMessage abort;
  return TakeControl(occasion_, ControlKind::kAbort, &abort) ? abort.text : "";
}

void Remote::Abandon(const std::string& error) {
  for (const auto& part : node_parts_) part->part->Abandon(error);
  if (transport_) transport_->Cancel();
  if (transport_ || handshake_) SendAbort(world_, team_, occasion_, error);
}

std::string Remote::WaitingFor() {
  for (const auto& part : node_parts_) {
    std::lock_guard<std::mutex> lock(part->mutex);
    const std::string text = part->part->complete() ? "" : part->part->WaitingFor();
    if (!text.empty()) return text;
  }
  std::lock_guard<std::mutex> lock(handshake_mutex_);
  if (handshake_ && !handshake_->complete()) return handshake_->WaitingFor();
  return transport_ ? transport_->WaitingFor() : "";
}

}  // namespace pccl
