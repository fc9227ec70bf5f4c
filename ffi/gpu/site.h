// What is known of a call on GPUs when its program is loaded: decoded once, read by every
// execution.
#ifndef PCCL_FFI_GPU_SITE_H_
#define PCCL_FFI_GPU_SITE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ffi/schedule.h"
#include "kernels/types.h"

namespace pccl::gpu {

// Immutable after Validate(). Devices are named by their ids in JAX, and by logical ids: positions
// in the mesh.
struct Site {
  Collective collective = Collective::kAllGather;
  Op op = Op::kSum;
  Schedule schedule;
  // Group g's schedule rank s is the device with logical id members[g * ranks + s]; its place on
  // the axis, which is the chunk it owns, is places[g * ranks + s].
  std::vector<int64_t> members, places;
  std::vector<int64_t> devices;  // by logical id
  int64_t rows = 1;              // of a chunk inside the larger array
  std::string label;             // e.g. "all_gather over axis 'data'"
  std::string algorithm;
  // PCCL_WARN_S and PCCL_TIMEOUT_S; the warning comes at half time at the latest.
  double warn_s = 30.0, timeout_s = 300.0;
  uint64_t call = 0;  // a number that every process has for this collective, and others have not

  struct Seat {
    int64_t group = -1, rank = -1;
  };
  std::map<int64_t, Seat> seats;  // by device

  // Logical ids in order of ranks, of those that a phase within nodes or between nodes joins.
  using Team = std::vector<int64_t>;
  Team NodeOf(const Seat& seat) const;
  Team AlignedWith(const Seat& seat) const;
  // The teams of all groups, every device in one of them.
  std::vector<Team> AllNodes() const;
  std::vector<Team> AllAligned() const;
  std::vector<int64_t> DevicesOf(const Team& team) const;

  // Whether any phase joins the teams of the kind.
  bool HasNodes() const;
  bool HasAligned() const;
  const int64_t* group_places(int64_t group) const { return &places[Begin(group)]; }
  // Where the device sits. Throws std::runtime_error where it is in no group.
  Seat Find(int64_t device) const;
  // Completes what follows from the rest. Returns an error text, or "".
  std::string Validate();

 private:
  size_t Begin(int64_t group) const { return static_cast<size_t>(group * schedule.ranks()); }
  Team Pick(int64_t group, int64_t first, int64_t step, int64_t count) const;
};

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_SITE_H_
