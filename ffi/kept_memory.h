// What the C library does with memory that is freed.
#ifndef PCCL_FFI_KEPT_MEMORY_H_
#define PCCL_FFI_KEPT_MEMORY_H_

#include <cstddef>

namespace pccl {

// Has the process keep up to `nbytes` of what it frees, pages and all, in place of giving arrays of
// 128 KiB and more back to the kernel. Nothing where the C library has no such setting.
void KeepFreedMemory(size_t nbytes);

}  // namespace pccl

#endif  // PCCL_FFI_KEPT_MEMORY_H_
