#include "ffi/pool.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "ffi/cores.h"

namespace pccl {
namespace {

// What continues a program after a collective may compute for long, or block in a collective of
// XLA's own until other continuations have run; so the pool must grow, but not before it has to:
// on a few cores, a few threads that take turns beat many that are switched between.
constexpr std::chrono::milliseconds kStall{1};

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

  bool HasTasks() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !tasks_.empty();
  }

  Pool() {
    std::thread([this] { Watch(); }).detach();
  }

 private:
  void AddThread() {
    ++threads_;
    std::thread([this] { Serve(); }).detach();
  }

  void Serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++idle_;
      has_task_.wait(lock, [this] { return !tasks_.empty(); });
      --idle_;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      ++taken_;
      lock.unlock();
      task();
      lock.lock();
    }
  }

  // Adds a thread whenever tasks wait and no thread has taken one for kStall.
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
      } else if (taken_ == before) {
        AddThread();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable has_task_, stalled_;
  std::deque<std::function<void()>> tasks_;
  size_t threads_ = 0, idle_ = 0;
  uint64_t taken_ = 0;
  bool watching_ = false;
};

Pool& ThePool() {
  static Pool* pool = new Pool;  // never destroyed: its threads never end
  return *pool;
}

}  // namespace

void RunInPool(std::function<void()> task) { ThePool().Run(std::move(task)); }

bool PoolHasTasks() { return ThePool().HasTasks(); }

}  // namespace pccl
