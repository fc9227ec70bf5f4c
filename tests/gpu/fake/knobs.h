// Numbers by name that a test sets before, or reads after, it runs something: what the fakes are to
// do wrong, and what they have seen.
#ifndef PCCL_TESTS_GPU_FAKE_KNOBS_H_
#define PCCL_TESTS_GPU_FAKE_KNOBS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace fake {

// Zero until it is set.
inline std::atomic<int64_t>& Knob(const std::string& name) {
  static std::mutex mutex;
  static auto* knobs = new std::map<std::string, std::atomic<int64_t>>;
  std::lock_guard<std::mutex> lock(mutex);
  return (*knobs)[name];
}

// Whether this time is one of the next n, by a knob that says n.
inline bool TakeOne(const std::string& name) {
  std::atomic<int64_t>& left = Knob(name);
  int64_t now = left.load();
  while (now > 0 && !left.compare_exchange_weak(now, now - 1)) continue;
  return now > 0;
}

}  // namespace fake

#endif  // PCCL_TESTS_GPU_FAKE_KNOBS_H_
