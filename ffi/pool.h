// Threads of our own, so that no thread of XLA's ever waits for a peer.
#ifndef PCCL_FFI_POOL_H_
#define PCCL_FFI_POOL_H_

#include <functional>

namespace pccl {

// Runs `task` on another thread, soon, on as many threads as there are cores. Tasks must not throw,
// and must not block but in RunBlocking. Thread safe. So many threads live as long as the process.
void RunInPool(std::function<void()> task);
// Runs `body`, which may block for any time, on the calling thread. Where that is one of the pool's
// and tasks wait for longer than a moment, the pool replaces it until it comes back.
void RunBlocking(const std::function<void()>& body);
// Whether a task waits for a thread: then one that can go on later should make room.
bool PoolHasTasks();

}  // namespace pccl

#endif  // PCCL_FFI_POOL_H_
