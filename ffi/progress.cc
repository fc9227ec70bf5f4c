#include "ffi/progress.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "ffi/control.h"
#include "ffi/threads.h"
#include "ffi/world.h"

namespace pccl {
namespace {

// Between polls: a peer waits at most this long, and an idle process costs a core next to nothing.
constexpr std::chrono::microseconds kSoon{500};
constexpr std::chrono::microseconds kLater{10'000};
// How many short pauses follow a message.
constexpr int kSoonTimes = 400;

std::atomic<int> soon{0};
std::atomic<bool> stopped{false};

// Held while the thread calls MPI.
std::mutex& Polling() {
  static std::mutex* mutex = new std::mutex;  // never destroyed: the thread may outlive us
  return *mutex;
}

void Serve() {
  for (;;) {
    {
      std::lock_guard<std::mutex> lock(Polling());
      if (stopped.load(std::memory_order_acquire)) return;
      try {
        for (const WorldPtr& world : AllWorlds()) PollControl(*world);
      } catch (const std::exception&) {
        // Whoever needs MPI next meets the same error and reports it.
      }
    }
    const int left = soon.load(std::memory_order_relaxed);
    if (left > 0) soon.store(left - 1, std::memory_order_relaxed);
    std::this_thread::sleep_for(left > 0 ? kSoon : kLater);
  }
}

}  // namespace

void StartProgress() {
  static std::once_flag once;
  std::call_once(once, [] { StartThread("pccl-progress", Serve); });
}

void NoteMessages() { soon.store(kSoonTimes, std::memory_order_relaxed); }

void StopProgress() {
  std::lock_guard<std::mutex> lock(Polling());
  stopped.store(true, std::memory_order_release);
}

bool ProgressHasStopped() { return stopped.load(std::memory_order_acquire); }

}  // namespace pccl
