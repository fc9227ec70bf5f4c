#include "ffi/gpu/site.h"

#include <algorithm>
#include <stdexcept>

namespace pccl::gpu {

Site::Team Site::Pick(int64_t group, int64_t first, int64_t step, int64_t count) const {
  Team team;
  for (int64_t i = 0; i < count; ++i) {
    team.push_back(members[Begin(group) + static_cast<size_t>(first + i * step)]);
  }
  return team;
}

Site::Team Site::NodeOf(const Seat& seat) const {
  const int64_t first = seat.rank / schedule.local * schedule.local;
  return Pick(seat.group, first, 1, schedule.local);
}

Site::Team Site::AlignedWith(const Seat& seat) const {
  return Pick(seat.group, seat.rank % schedule.local, schedule.local, schedule.nodes);
}

std::vector<Site::Team> Site::AllNodes() const {
  std::vector<Team> teams;
  const auto groups = static_cast<int64_t>(members.size()) / schedule.ranks();
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t node = 0; node < schedule.nodes; ++node) {
      teams.push_back(NodeOf({group, node * schedule.local}));
    }
  }
  return teams;
}

std::vector<Site::Team> Site::AllAligned() const {
  std::vector<Team> teams;
  const auto groups = static_cast<int64_t>(members.size()) / schedule.ranks();
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t index = 0; index < schedule.local; ++index) {
      teams.push_back(AlignedWith({group, index}));
    }
  }
  return teams;
}

bool Site::HasNodes() const {
  return std::any_of(schedule.phases.begin(), schedule.phases.end(),
                     [](const Phase& phase) { return phase.intra; });
}

bool Site::HasAligned() const {
  return std::any_of(schedule.phases.begin(), schedule.phases.end(),
                     [](const Phase& phase) { return !phase.intra && !phase.vendor; });
}

std::vector<int64_t> Site::DevicesOf(const Team& team) const {
  std::vector<int64_t> ids;
  for (const int64_t member : team) ids.push_back(devices[static_cast<size_t>(member)]);
  return ids;
}

Site::Seat Site::Find(int64_t device) const {
  const auto found = seats.find(device);
  if (found != seats.end()) return found->second;
  throw std::runtime_error(label + ": device " + std::to_string(device) +
                           " is in none of its groups: the program was lowered for a mesh of other "
                           "devices. Call jax.jit "
                           "anew, or pass a mesh with devices instead of an abstract one.");
}

std::string Site::Validate() {
  const auto n = static_cast<size_t>(schedule.ranks());
  if (members.empty() || members.size() % n != 0 || places.size() != members.size()) {
    return label + ": groups do not match the schedule's " + std::to_string(n) + " ranks";
  }
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] < 0 || static_cast<size_t>(members[i]) >= devices.size()) {
      return label + ": got the logical id " + std::to_string(members[i]) + " of a mesh of " +
             std::to_string(devices.size()) + " devices";
    }
    if (places[i] < 0 || static_cast<size_t>(places[i]) >= n) return label + ": malformed group";
    const Seat seat{static_cast<int64_t>(i / n), static_cast<int64_t>(i % n)};
    if (!seats.emplace(devices[static_cast<size_t>(members[i])], seat).second) {
      return label + ": a device is in two groups";
    }
  }
  return "";
}

}  // namespace pccl::gpu
