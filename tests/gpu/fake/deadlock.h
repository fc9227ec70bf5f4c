// Waiting that notices when everybody waits: the ranks of a test are threads.
#ifndef PCCL_TESTS_GPU_FAKE_DEADLOCK_H_
#define PCCL_TESTS_GPU_FAKE_DEADLOCK_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace fake {

class Deadlock {
 public:
  std::mutex mutex;  // held for all methods but Begin, and for whatever conditions look at

  void Begin(int threads) {
    std::lock_guard<std::mutex> lock(mutex);
    ++test_;
    running_ = threads;
    waiting_ = 0;
    found_ = false;
    changed_.notify_all();  // who was left behind by an earlier test
  }
  // A thread has finished.
  void Leave() {
    --running_;
    Look();
  }
  // Something has changed that others may wait for: they look again.
  void Changed() {
    ++changes_;
    waiting_ = 0;
    changed_.notify_all();
  }
  // Returns false where all threads wait and nothing can change any more.
  template <class Condition>
  bool Wait(std::unique_lock<std::mutex>* lock, Condition&& condition) {
    const uint64_t mine = test_;
    while (!condition()) {
      if (found_ || mine != test_) return false;
      const uint64_t seen = changes_;
      ++waiting_;
      Look();
      changed_.wait(*lock, [&] { return found_ || changes_ != seen || mine != test_; });
    }
    return true;
  }

 private:
  void Look() {
    if (running_ == 0 || waiting_ < running_) return;
    found_ = true;
    changed_.notify_all();
  }

  std::condition_variable changed_;
  int running_ = 0, waiting_ = 0;
  uint64_t changes_ = 0, test_ = 0;
  bool found_ = false;
};

inline Deadlock& TheDeadlock() {
  static Deadlock* deadlock = new Deadlock;
  return *deadlock;
}

}  // namespace fake

#endif  // PCCL_TESTS_GPU_FAKE_DEADLOCK_H_
