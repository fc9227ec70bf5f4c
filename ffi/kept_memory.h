// What the C library does with memory that is freed.
#ifndef PCCL_FFI_KEPT_MEMORY_H_
#define PCCL_FFI_KEPT_MEMORY_H_

#include <cstddef>

namespace pccl {

// Has the process keep up to `nbytes` of free memory at the top of its heap, pages and all, and
// arrays of less than 32 MiB on the heap. Nothing where the C library has no such setting.
void KeepFreedMemory(size_t nbytes);

}  // namespace pccl

#endif  // PCCL_FFI_KEPT_MEMORY_H_
