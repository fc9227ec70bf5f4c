// The processes that can do collectives together: who shares a host, and the library that connects
// the others.
#ifndef PCCL_FFI_WORLD_H_
#define PCCL_FFI_WORLD_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ffi/shared/segment.h"
#include "ffi/tags.h"
#include "ffi/transport/mpi_library.h"

namespace pccl {

struct Mail;  // see control.h

// What the executions of a call site for one group leave to the next.
struct Channel {
  int first_tag = -1;         // of its messages; -1 before the first execution has agreed on it
  bool check_always = false;  // PCCL_CHECK: compare signatures before every execution
  uint64_t executions = 0;
  int64_t communicator = 0;  // for the MPI library's own collectives; 0 before the first
};

// Either the program's: one program in all processes, whose collectives find each other by call
// site. Or a communicator's: each process has a program of its own, and collectives find each other
// by their order. Immutable once it is joined, but for what says otherwise.
struct World {
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t id = 0;  // names it in this process
  // Whether it is a communicator's: then processes are numbered by its ranks, else as JAX numbers
  // them (jax.process_index()).
  bool ordered = false;
  int64_t process = 0;
  int64_t pid = 0;
  std::vector<int64_t> host_of;   // by process
  std::vector<int64_t> mpi_rank;  // by process, in `comm`
  std::unique_ptr<MpiLibrary> mpi;
  int64_t comm = 0;  // handle of a communicator of our own
  // The library's handles for our element types and operators, by code; see kernels/types.h.
  std::map<int64_t, uint64_t> mpi_types, mpi_ops;
  SharedMemory shared;
  std::set<int64_t> visible;  // processes of this host whose end the kernel would tell us
  const std::shared_ptr<Mail> mail;
  mutable Tags tags;  // of messages in `comm`. Changes.
  // Whether other processes have been told what this one is waiting for. Changes.
  mutable std::atomic<bool> complained{false};
  // Of an ordered world, whose executions start one by one under the lock of the meetings: all
  // executions are those of one call site. Changes.
  mutable Channel channel;

  int64_t processes() const { return static_cast<int64_t>(host_of.size()); }
  std::vector<int64_t> AllProcesses() const;
  bool SameHost(int64_t other) const;
};

using WorldPtr = std::shared_ptr<const World>;

// The program's world, or null while it has not been joined.
WorldPtr JoinedWorld();
// The world of this id, or null where there is none (any more).
WorldPtr FindWorld(int64_t id);
std::vector<WorldPtr> AllWorlds();
// Gives the world an id, 0 for the program's, and makes it known. Thread safe.
int64_t JoinWorld(std::unique_ptr<World> world);
// Forgets a world. It ends when no program that uses it is left.
void LeaveWorld(int64_t id);

}  // namespace pccl

#endif  // PCCL_FFI_WORLD_H_
