// How long to wait for others, on the CPU and on GPUs.
#ifndef PCCL_FFI_PATIENCE_H_
#define PCCL_FFI_PATIENCE_H_

#include <algorithm>
#include <chrono>

#include "ffi/environment.h"

namespace pccl {

// How long a rank waits for its peers: a warning on stderr, then an error.
struct Patience {
  std::chrono::duration<double> warn{30.0};
  std::chrono::duration<double> timeout{300.0};
  // From PCCL_WARN_S and PCCL_TIMEOUT_S; what is not a positive number keeps the default. The
  // warning is at half time at the latest: with it a process tells the others whom it waits for, so
  // that whichever gives up first can name the one that all of them lack.
  static Patience FromEnvironment() {
    Patience patience;
    patience.warn =
        std::chrono::duration<double>(SecondsFrom("PCCL_WARN_S", patience.warn.count()));
    patience.timeout =
        std::chrono::duration<double>(SecondsFrom("PCCL_TIMEOUT_S", patience.timeout.count()));
    patience.warn = std::min(patience.warn, patience.timeout / 2);
    return patience;
  }
};

}  // namespace pccl

#endif  // PCCL_FFI_PATIENCE_H_
