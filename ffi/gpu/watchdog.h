// What was enqueued and does not end: NCCL's kernels wait for the other ranks for ever, and with
// them the device, XLA and the program.
#ifndef PCCL_FFI_GPU_WATCHDOG_H_
#define PCCL_FFI_GPU_WATCHDOG_H_

#include <memory>
#include <string>
#include <vector>

#include "ffi/gpu/communicator.h"
#include "ffi/gpu/runtime.h"

namespace pccl::gpu {

// One collective of one device.
struct Watched {
  std::string name;
  int ordinal = 0;                      // of the device
  double warn_s = 30, timeout_s = 300;  // on the device, after all that came before it
  std::vector<std::shared_ptr<Communicator>> communicators;
};

// Throws why a collective on this device was given up, after which nothing runs there any more.
void CheckDevice(int ordinal);

// Around the enqueuing of a collective on the current device. A thread of ours then looks how far
// the stream is. Where a communicator reports an error, or the device has waited for `timeout_s`,
// it says which collective that was and breaks the device (kernels.h): what the collective should
// have computed is not there, so nothing that depends on it may seem to succeed. Where calls are
// recorded in a graph nothing is watched: they run when nobody calls us.
class Watch {
 public:
  explicit Watch(Stream stream);
  // Everything has been enqueued.
  void Enqueued(Watched watched);

 private:
  Stream stream_;
  std::unique_ptr<Event> begin_, end_;
};

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_WATCHDOG_H_
