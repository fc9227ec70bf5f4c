#include "ffi/gpu/watchdog.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "ffi/threads.h"
#include "kernels/gpu/kernels.h"

namespace pccl::gpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMostNap = 0.1;

double SecondsSince(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

std::string Text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

struct Entry {
  Watched what;
  std::unique_ptr<Event> begin, end;
  bool begun = false, warned = false;
  Clock::time_point since = {};  // where it has begun
};

// Of one device: what breaks it, made while it still does as it is told. To load a kernel, or to
// make a stream, may wait for those that run.
struct Breaker {
  SideStream stream;
};

struct Watchdog {
  std::mutex mutex;
  std::condition_variable work;
  std::list<Entry> entries;
  std::map<int, std::vector<std::unique_ptr<Event>>> spare;  // by device
  std::map<int, std::unique_ptr<Breaker>> breakers;
  std::map<int, std::string> verdicts;
  bool started = false;
};

// Never destroyed: the thread lives as long as the process.
Watchdog& TheWatchdog() {
  static Watchdog* watchdog = new Watchdog;
  return *watchdog;
}

void Break(const Entry& entry, const std::string& why) {
  const std::string text = entry.what.name + ": " + why;
  Watchdog& dog = TheWatchdog();
  std::lock_guard<std::mutex> lock(dog.mutex);
  if (!dog.verdicts.emplace(entry.what.ordinal, text).second) return;
  const int code = pccl_gpu_trap(1, dog.breakers.at(entry.what.ordinal)->stream.get());
  const std::string end =
      code == PCCL_GPU_OK
          ? "The device is stopped: what follows fails with an error of the GPU (launch failure)."
          : "The device cannot be stopped (code " + std::to_string(code) + "): end the program.";
  std::fprintf(stderr, "pccl_jax: %s %s\n", text.c_str(), end.c_str());
}

// Whether there is anything more to look at.
bool Look(Entry* entry) {
  const Watched& what = entry->what;
  if (entry->end->Passed()) return false;
  for (const auto& communicator : what.communicators) {
    const std::string trouble = communicator->Trouble();
    if (trouble.empty()) continue;
    Break(*entry,
          "NCCL reports " + trouble + ". Has another process ended? Start the program anew.");
    return false;
  }
  if (!entry->begun && entry->begin->Passed()) {
    entry->begun = true;
    entry->since = Clock::now();
  }
  if (!entry->begun) return true;
  const double waited_s = SecondsSince(entry->since);
  const auto waited = [](double seconds) {
    return "the device has waited " + Text(seconds) + " for the other ranks. ";
  };
  if (waited_s >= what.timeout_s) {
    Break(*entry, waited(what.timeout_s) +
                      "Do all processes run the same program, in the same order? If one is only "
                      "slow, raise PCCL_TIMEOUT_S. Start the program anew.");
    return false;
  }
  if (!entry->warned && waited_s >= what.warn_s) {
    entry->warned = true;
    std::fprintf(stderr, "pccl_jax: %s: %sStill waiting (until PCCL_TIMEOUT_S).\n",
                 what.name.c_str(), waited(what.warn_s).c_str());
  }
  return true;
}

// As Look. What fails otherwise has failed for XLA as well, which tells it.
bool Goes(Entry* entry) {
  try {
    SetDevice(entry->what.ordinal);
    return Look(entry);
  } catch (const std::exception&) {
    return false;
  }
}

[[noreturn]] void Run() {
  AllowWhileCapturing();
  Watchdog& dog = TheWatchdog();
  std::list<Entry> mine;
  for (;;) {
    double nap_s = kMostNap;
    for (const Entry& entry : mine) nap_s = std::min(nap_s, entry.what.timeout_s / 10);
    {
      std::unique_lock<std::mutex> lock(dog.mutex);
      if (mine.empty()) {
        dog.work.wait(lock, [&] { return !dog.entries.empty(); });
      } else {
        dog.work.wait_for(lock, std::chrono::duration<double>(nap_s));
      }
      mine.splice(mine.end(), dog.entries);
    }
    for (auto entry = mine.begin(); entry != mine.end();) {
      if (Goes(&*entry)) {
        ++entry;
        continue;
      }
      std::lock_guard<std::mutex> lock(dog.mutex);
      auto& spare = dog.spare[entry->what.ordinal];
      spare.push_back(std::move(entry->begin));
      spare.push_back(std::move(entry->end));
      entry = mine.erase(entry);
    }
  }
}

// With the watchdog's mutex held.
std::unique_ptr<Event> SomeEvent(Watchdog* dog, int ordinal) {
  auto& spare = dog->spare[ordinal];
  if (spare.empty()) return std::make_unique<Event>();
  std::unique_ptr<Event> event = std::move(spare.back());
  spare.pop_back();
  return event;
}

}  // namespace

void CheckDevice(int ordinal) {
  Watchdog& dog = TheWatchdog();
  std::lock_guard<std::mutex> lock(dog.mutex);
  const auto verdict = dog.verdicts.find(ordinal);
  if (verdict != dog.verdicts.end()) throw std::runtime_error(verdict->second);
}

Watch::Watch(Stream stream) : stream_(stream) {
  if (IsCapturing(stream)) return;
  const int ordinal = CurrentDevice();
  Watchdog& dog = TheWatchdog();
  std::lock_guard<std::mutex> lock(dog.mutex);
  auto& breaker = dog.breakers[ordinal];
  if (breaker == nullptr) {
    auto made = std::make_unique<Breaker>();
    static_cast<void>(pccl_gpu_trap(0, made->stream.get()));
    breaker = std::move(made);
  }
  begin_ = SomeEvent(&dog, ordinal);
  end_ = SomeEvent(&dog, ordinal);
  begin_->Record(stream);
}

void Watch::Enqueued(Watched watched) {
  if (begin_ == nullptr) return;
  end_->Record(stream_);
  Entry entry;
  entry.what = std::move(watched);
  entry.begin = std::move(begin_);
  entry.end = std::move(end_);
  Watchdog& dog = TheWatchdog();
  std::lock_guard<std::mutex> lock(dog.mutex);
  dog.entries.push_back(std::move(entry));
  if (!dog.started) StartThread("pccl-watchdog", Run);
  dog.started = true;
  dog.work.notify_one();
}

}  // namespace pccl::gpu
