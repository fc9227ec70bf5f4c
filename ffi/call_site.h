// What is known of a call when its program is loaded: decoded once, read by every execution.
#ifndef PCCL_FFI_CALL_SITE_H_
#define PCCL_FFI_CALL_SITE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ffi/patience.h"
#include "ffi/schedule.h"
#include "ffi/team.h"
#include "ffi/world.h"
#include "kernels/reduce.h"

namespace pccl {

// Immutable after Validate(), so any number of threads may read it; but for the channels, which
// belong to the one execution of their group that is under way, and `number`.
struct CallSite {
  WorldPtr world;  // null in a program of one process
  Collective collective = Collective::kAllGather;
  Op op = Op::kSum;
  Schedule schedule;
  // Group g's schedule rank s is the device with logical id members[g * ranks + s]; its place
  // on the axis, which is the chunk it owns, is places[g * ranks + s].
  std::vector<int64_t> members, places;
  std::vector<int64_t> processes;  // of the members; empty where there is one process
  int64_t rows = 1;                // of a chunk inside the concatenated array (see geometry.h)
  std::string label;               // e.g. "all_gather over axis 'data'"
  std::string algorithm;
  int64_t id = 0;  // equal in every process, unlike the address of this object
  // Hash of what must be equal in every process but is not in the label: schedule, groups, places.
  uint64_t digest = 0;
  Patience patience;

  struct Seat {
    int64_t group = -1, rank = -1;
  };
  std::vector<Seat> seats;  // by logical id
  std::vector<Team> teams;  // by group
  mutable std::vector<Channel> channels;
  // Tells apart the call sites of one id among the same processes: a function that is called twice
  // in a program has two.
  mutable int64_t number = -1;
  uint64_t kin = 0;  // hash of the id and of the processes

  CallSite();
  ~CallSite();
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  int64_t ranks() const { return schedule.ranks(); }
  const int64_t* group_members(int64_t group) const { return &members[group * ranks()]; }
  const int64_t* group_places(int64_t group) const { return &places[group * ranks()]; }
  const Team& team(int64_t group) const { return teams[static_cast<size_t>(group)]; }
  bool ordered() const { return world != nullptr && world->ordered; }
  Channel* channel(int64_t group) const {
    return ordered() ? &world->channel : &channels[static_cast<size_t>(group)];
  }
  // Names the next execution for `group`, alike in every process: by its number on an ordered
  // world, else by the call site and how often it has been executed. Not thread safe.
  uint64_t NextOccasion(int64_t group) const;
  // Where the device with this logical id sits; group is -1 for a device in no group.
  Seat Find(int64_t logical_id) const;
  // Completes what follows from the rest. Returns an error text, or "".
  std::string Validate();
};

}  // namespace pccl

#endif  // PCCL_FFI_CALL_SITE_H_
