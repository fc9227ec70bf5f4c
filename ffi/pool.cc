#include "ffi/pool.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "ffi/cores.h"
#include "ffi/threads.h"

namespace pccl {
namespace {

// What continues a program after a collective may compute for long, or block in a collective of
// XLA's own until other continuations have run; so a thread that does must be replaced, but not
// before it has to: on a few cores, a few threads that take turns beat many that are switched
// between.
constexpr std::chrono::milliseconds kStall{1};

thread_local bool of_pool = false;

class Pool {
 public:
  void Run(std::function<void()> task) {
    std::unique_lock<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    // A thread that has been woken counts as idle until it has taken its task.
    if (tasks_.size() <= idle_) {
      lock.unlock();
      has_task_.notify_one();
    } else if (threads_ < Cores()) {
      AddThread();
    } else if (!watching_) {
      watching_ = true;
      lock.unlock();
      stalled_.notify_one();
    }
  }

  void RunBlocking(const std::function<void()>& body) {
    if (!of_pool) return body();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++blocking_;
    }
    body();
    std::lock_guard<std::mutex> lock(mutex_);
    --blocking_;
  }

  bool HasTasks() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !tasks_.empty();
  }

  Pool() {
    StartThread("pccl-pool-watch", [this] { Watch(); });
  }

 private:
  void AddThread() {
    ++threads_;
    StartThread("pccl-pool", [this] { Serve(); });
  }

  // Of this process's threads, so many share the tasks. More would only take turns; those that come
  // back from blocking and find that they were replaced end.
  bool Surplus() const { return threads_ - blocking_ > Cores(); }

  void Serve() {
    of_pool = true;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!Surplus()) {
      ++idle_;
      has_task_.wait(lock, [this] { return !tasks_.empty(); });
      --idle_;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      ++taken_;
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
    --threads_;
  }

  // Adds a thread whenever tasks wait, none has been taken for kStall, and threads block. (That
  // none was taken says nothing by itself: on a busy machine the threads may not have run.)
  void Watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      stalled_.wait(lock, [this] { return watching_; });
      const uint64_t before = taken_;
      lock.unlock();
      std::this_thread::sleep_for(kStall);
      lock.lock();
      if (tasks_.empty()) {
        watching_ = false;
      } else if (taken_ == before && threads_ - blocking_ < Cores()) {
        AddThread();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable has_task_, stalled_;
  std::deque<std::function<void()>> tasks_;
  size_t threads_ = 0, idle_ = 0, blocking_ = 0;
  uint64_t taken_ = 0;
  bool watching_ = false;
};

Pool& ThePool() {
  static Pool* pool = new Pool;  // never destroyed: its threads never end
  return *pool;
}

}  // namespace

void RunInPool(std::function<void()> task) { ThePool().Run(std::move(task)); }

void RunBlocking(const std::function<void()>& body) { ThePool().RunBlocking(body); }

bool PoolHasTasks() { return ThePool().HasTasks(); }

}  // namespace pccl
