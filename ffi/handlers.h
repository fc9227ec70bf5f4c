// The XLA FFI handlers. Register all stages of the target "pccl_collective" together, and the
// type of its state before, once the platform's backend exists.
#ifndef PCCL_FFI_HANDLERS_H_
#define PCCL_FFI_HANDLERS_H_

namespace pccl {

// Pointers as XLA wants them: XLA_FFI_Handler*, XLA_FFI_TypeId*, XLA_FFI_TypeInfo*.
struct HandlerTable {
  void* instantiate;
  void* execute;
  void* state_type_id;
  void* state_type_info;
};

HandlerTable CpuHandlers();

// The FFI API version of the headers this library was compiled with.
int FfiApiMajor();
int FfiApiMinor();

}  // namespace pccl

#endif  // PCCL_FFI_HANDLERS_H_
