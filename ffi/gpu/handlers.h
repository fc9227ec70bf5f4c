// The XLA FFI handlers for GPUs. Register all stages of the target together, and the type of its
// state before.
//
// Operand: the array. Results: the collective's result, then scratch, u8[n], of which the executor
// needs Plan::scratch.nbytes() bytes (plan.h; pccl_jax/schedule/scratch.py computes the same). The
// call is refused where it is less, unless the missing part is for exchanges that NCCL spares.
// Attributes: those of the CPU's handlers, and `devices`, int64: JAX's id of each device of the
// mesh.
#ifndef PCCL_FFI_GPU_HANDLERS_H_
#define PCCL_FFI_GPU_HANDLERS_H_

#include <cstdint>

namespace pccl::gpu {

// Pointers as XLA wants them: XLA_FFI_Handler*, XLA_FFI_TypeId*, XLA_FFI_TypeInfo*.
struct HandlerTable {
  void* instantiate;
  void* prepare;
  void* initialize;
  void* execute;
  void* state_type_id;
  void* state_type_info;
};

// `recorded`: whether XLA may record the calls in CUDA graphs, which MPI does not allow.
HandlerTable Handlers(bool recorded);

// How many calls were recorded in graphs so far.
int64_t NumRecorded();

// The FFI API version of the headers this library was compiled with.
int FfiApiMajor();
int FfiApiMinor();

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_HANDLERS_H_
