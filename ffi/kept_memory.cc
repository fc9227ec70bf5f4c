#include "ffi/kept_memory.h"

#include <algorithm>
#include <climits>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace pccl {

void KeepFreedMemory(size_t nbytes) {
#ifdef __GLIBC__
  // The most that glibc takes. Larger arrays have a mapping each, which ends with them.
  constexpr int kMapped = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kMapped);
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(std::min<size_t>(nbytes, INT_MAX)));
#else
  static_cast<void>(nbytes);
#endif
}

}  // namespace pccl
