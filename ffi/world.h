// The processes of the program: who shares a host, and the library that connects the others.
#ifndef PCCL_FFI_WORLD_H_
#define PCCL_FFI_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ffi/shared/segment.h"
#include "ffi/transport/mpi_library.h"

namespace pccl {

// Processes are numbered as JAX numbers them (jax.process_index()).
struct World {
  int64_t process = 0;
  int64_t pid = 0;
  std::vector<int64_t> host_of;   // by process
  std::vector<int64_t> mpi_rank;  // by process, in `comm`
  std::unique_ptr<MpiLibrary> mpi;
  int64_t comm = 0;  // handle of a communicator of our own
  int largest_tag = 32767;
  // The library's handles for our element types and operators, by code; see kernels/types.h.
  std::map<int64_t, uint64_t> mpi_types, mpi_ops;
  SharedMemory shared;
  std::set<int64_t> visible;  // processes of this host whose end the kernel would tell us

  int64_t processes() const { return static_cast<int64_t>(host_of.size()); }
  std::vector<int64_t> AllProcesses() const;
  bool SameHost(int64_t other) const;
};

// The world this process has joined, or nullptr while it is alone. Never destroyed.
const World* JoinedWorld();
// Called once, before any collective runs; later calls are ignored.
void JoinWorld(std::unique_ptr<World> world);

}  // namespace pccl

#endif  // PCCL_FFI_WORLD_H_
