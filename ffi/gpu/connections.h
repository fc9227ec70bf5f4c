// Communicators of our own, made when they are first needed and kept.
#ifndef PCCL_FFI_GPU_CONNECTIONS_H_
#define PCCL_FFI_GPU_CONNECTIONS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ffi/gpu/communicator.h"
#include "ffi/gpu/world.h"

namespace pccl::gpu {

// The communicator of `devices` (ids, in order of ranks) for the one of them that is the current
// device, whose id is `me`. The first time NCCL has to meet all members, which takes until they
// come, at most `timeout_s`. One device's calls must not overlap. Throws std::runtime_error.
std::shared_ptr<Communicator> Connect(const std::shared_ptr<const World>& world, Way way,
                                      const std::vector<int64_t>& devices, int64_t me,
                                      double timeout_s);

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_CONNECTIONS_H_
