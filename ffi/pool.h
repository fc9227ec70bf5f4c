// Threads of our own, so that no thread of XLA's ever waits for a peer.
#ifndef PCCL_FFI_POOL_H_
#define PCCL_FFI_POOL_H_

#include <functional>

namespace pccl {

// Runs `task` on another thread, soon. Tasks may block: they run on as many threads as there are
// cores, and on one more whenever none of them has moved on for a millisecond. Tasks must not
// throw. Thread safe. The threads live as long as the process.
void RunInPool(std::function<void()> task);
// Whether a task waits for a thread: then one that can go on later should make room.
bool PoolHasTasks();

}  // namespace pccl

#endif  // PCCL_FFI_POOL_H_
