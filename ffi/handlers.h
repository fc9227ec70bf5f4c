// The XLA FFI handlers. Register both stages of a target together, and the type of their state
// before, once the platform's backend exists. "pccl_collective" takes the data and the number of
// the device; "pccl_ordered_collective" the data and a token, and gives a result and a token.
#ifndef PCCL_FFI_HANDLERS_H_
#define PCCL_FFI_HANDLERS_H_

namespace pccl {

// Pointers as XLA wants them: XLA_FFI_Handler*, XLA_FFI_TypeId*, XLA_FFI_TypeInfo*.
struct HandlerTable {
  void* instantiate;
  void* execute;
  void* execute_ordered;
  void* state_type_id;
  void* state_type_info;
};

HandlerTable CpuHandlers();

// The FFI API version of the headers this library was compiled with.
int FfiApiMajor();
int FfiApiMinor();

}  // namespace pccl

#endif  // PCCL_FFI_HANDLERS_H_
