// Which message tags belong to which call.
#ifndef PCCL_FFI_TAGS_H_
#define PCCL_FFI_TAGS_H_

#include <cstdint>
#include <map>
#include <mutex>

namespace pccl {

// The tag of control messages; data uses tags from kFirstDataTag.
constexpr int kControlTag = 0;
constexpr int kFirstDataTag = 64;

// Processes agree on the tags of a call without a central count: each says which of a few
// candidates, which follow from the call's key, are free on its side. Thread safe, but for
// `largest`, which is set before the world is joined.
class Tags {
 public:
  static constexpr int kCandidates = 64;

  int largest = 32767;  // of the MPI library

  // Candidate `i` for the first of `span` tags: the same on every process.
  int Candidate(uint64_t key, int i, int span) const;
  // Bit i: whether candidate i is unused here.
  uint64_t Free(uint64_t key, int span) const;
  void Use(int first, int span);
  void Release(int first);

 private:
  bool AreFree(int first, int span) const;

  mutable std::mutex mutex_;
  std::map<int, int> used_;  // first tag -> one past the last
};

}  // namespace pccl

#endif  // PCCL_FFI_TAGS_H_
