#include "ffi/tags.h"

#include <iterator>

#include "ffi/hash.h"

namespace pccl {

int Tags::Candidate(uint64_t key, int i, int span) const {
  const auto places = static_cast<uint64_t>((largest - kFirstDataTag) / span);
  return kFirstDataTag + static_cast<int>(Mix(key, static_cast<uint64_t>(i)) % places) * span;
}

uint64_t Tags::Free(uint64_t key, int span) const {
  std::lock_guard<std::mutex> lock(mutex_);
  uint64_t free = 0;
  for (int i = 0; i < kCandidates; ++i) {
    free |= static_cast<uint64_t>(AreFree(Candidate(key, i, span), span)) << i;
  }
  return free;
}

void Tags::Use(int first, int span) {
  std::lock_guard<std::mutex> lock(mutex_);
  used_[first] = first + span;
}

void Tags::Release(int first) {
  std::lock_guard<std::mutex> lock(mutex_);
  used_.erase(first);
}

bool Tags::AreFree(int first, int span) const {
  const auto after = used_.lower_bound(first);
  if (after != used_.end() && after->first < first + span) return false;
  return after == used_.begin() || std::prev(after)->second <= first;
}

}  // namespace pccl
