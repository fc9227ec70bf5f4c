// What the process knows of the program's GPUs, and by which library they reach each other.
#ifndef PCCL_FFI_GPU_WORLD_H_
#define PCCL_FFI_GPU_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ffi/transport/mpi_library.h"

namespace pccl::gpu {

// Devices are named by their ids in JAX (Device.id), processes by jax.process_index().
struct World {
  struct Owner {
    int64_t process = 0;
    int64_t index = 0;  // among the devices of the process
  };
  // Given the key of a communicator and the id that its first member has made, publishes the id;
  // given no id, waits for it. Returns it. Throws where it does not come.
  using ExchangeId = std::function<std::string(const std::string& key, const std::string& id)>;

  int64_t process = 0;
  std::map<int64_t, int64_t> device_of_ordinal;  // of this process's devices
  std::map<int64_t, Owner> owner_of;             // of all devices
  ExchangeId exchange_id;                        // empty where there is one process
  std::string nccl_file;                         // where NCCL may be; may be empty
  std::unique_ptr<MpiLibrary> mpi;               // null where there is none
  MpiLibrary::Handle comm = 0;                   // a communicator that nobody else uses
  std::vector<int64_t> mpi_rank;                 // by process, in `comm`
  bool gpu_aware = false;

  // The device with this ordinal in the process; where nothing was told, JAX numbers devices so
  // too.
  int64_t DeviceOf(int ordinal) const;
  int64_t MostDevices() const;  // of any process
};

// Never null. May be replaced while collectives run: whoever uses one keeps it.
std::shared_ptr<const World> TheWorld();
void JoinWorld(World world);

enum class Way { kNccl, kMpi };

struct Ways {
  Way inside = Way::kNccl;   // among the devices of a node
  Way between = Way::kNccl;  // between nodes
};

// As PCCL_GPU_TRANSPORT says: "nccl", "mpi", or one for inside of nodes and one for between, e.g.
// "nccl,mpi". Unset or "auto": NCCL where it is found, else MPI. Throws std::runtime_error where
// that cannot be.
Ways ChooseWays(const World& world);

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_WORLD_H_
