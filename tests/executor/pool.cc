// The pool's promises, each with how it could break. Prints what failed; exit status 1 then.
#include "ffi/pool.h"

#include <dirent.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "ffi/cores.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};

size_t PoolThreads() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) {
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::string name;
    if (std::getline(file, name) && name == "pccl-pool") ++count;
  }
  closedir(folder);
  return count;
}

template <class Condition>
bool Within(milliseconds limit, const Condition& holds) {
  const Clock::time_point end = Clock::now() + limit;
  while (!holds()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

bool Check(bool good, const std::string& what) {
  if (!good) std::printf("not so: %s\n", what.c_str());
  return good;
}

void Compute(milliseconds time) {
  const Clock::time_point end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

// Tasks that take longer than the pool's patience, and do not block.
bool LongTasksShareTheCores() {
  constexpr int kTasks = 60;
  std::atomic<int> ran{0};
  std::atomic<size_t> most{0};
  for (int i = 0; i < kTasks; ++i) {
    pccl::RunInPool([&] {
      Compute(milliseconds(5));
      ran.fetch_add(1);
    });
  }
  const bool all = Within(kPatience, [&] {
    if (const size_t now = PoolThreads(); now > most.load()) most.store(now);
    return ran.load() == kTasks;
  });
  return Check(all, "all long tasks run") &
         Check(most.load() <= pccl::Cores(), std::to_string(most.load()) + " threads on " +
                                                 std::to_string(pccl::Cores()) + " cores");
}

// Each blocks until the last has run, which waits behind them.
bool BlockedThreadsAreReplaced() {
  constexpr int kTasks = 40;
  std::atomic<bool> released{false};
  std::atomic<int> ran{0};
  for (int i = 0; i < kTasks; ++i) {
    pccl::RunInPool([&] {
      pccl::RunBlocking([&] { Within(kPatience, [&] { return released.load(); }); });
      ran.fetch_add(1);
    });
  }
  pccl::RunInPool([&] { released.store(true); });
  const bool freed = Within(kPatience / 2, [&] { return released.load(); });
  released.store(true);
  return Check(freed, "a task runs while all threads block") &
         Check(Within(kPatience, [&] { return ran.load() == kTasks; }), "the blocked go on") &
         Check(Within(kPatience, [] { return PoolThreads() <= pccl::Cores(); }),
               "those that were added end");
}

}  // namespace

int main() {
  bool good = LongTasksShareTheCores();
  good &= BlockedThreadsAreReplaced();
  good &= LongTasksShareTheCores();
  good &= Check(!pccl::PoolHasTasks(), "no task is left");
  return good ? 0 : 1;
}
