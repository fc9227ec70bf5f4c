// How many threads of this process can run at once.
#ifndef PCCL_FFI_CORES_H_
#define PCCL_FFI_CORES_H_

#include <sched.h>

#include <cstddef>

namespace pccl {

// Cores this process may use. Asked once: the answer costs the kernel a file read.
inline size_t Cores() {
  static const size_t cores = [] {
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return static_cast<size_t>(n < 1 ? 1 : n);
  }();
  return cores;
}

}  // namespace pccl

#endif  // PCCL_FFI_CORES_H_
