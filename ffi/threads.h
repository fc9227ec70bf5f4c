// Threads that nobody waits for, under names that ps, perf and debuggers show.
#ifndef PCCL_FFI_THREADS_H_
#define PCCL_FFI_THREADS_H_

#include <pthread.h>

#include <thread>
#include <utility>

namespace pccl {

// `name` has at most 15 characters: the kernel keeps no more.
template <class Body>
void StartThread(const char* name, Body body) {
  std::thread([name, body = std::move(body)] {
    pthread_setname_np(pthread_self(), name);
    body();
  }).detach();
}

}  // namespace pccl

#endif  // PCCL_FFI_THREADS_H_
