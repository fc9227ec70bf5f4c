// Where the ranks of one process that take part in the same collective meet.
#ifndef PCCL_FFI_MEETING_H_
#define PCCL_FFI_MEETING_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ffi/call_site.h"
#include "ffi/execution.h"

namespace pccl {

// What a rank brings to a collective.
struct Arrival {
  int64_t rank = 0;  // schedule rank
  RankBuffers buffers;
  size_t in_bytes = 0, out_bytes = 0;
  DType dtype = DType::kBool;
  size_t item_bytes = 1;
};

// One occurrence of a call in one run of a program, for one group. The last rank to arrive
// starts the execution and works on it; a few of the others are called in to help, the rest
// sleep until it is complete.
class Meeting {
 public:
  Meeting(const CallSite& site, int64_t group);

  // Called once a rank, by the thread that runs its call. Returns, with an error text or "",
  // when the collective is complete, when it has failed, or when the site's patience ends; until
  // then the buffers must stay valid.
  std::string Attend(const Arrival& arrival);

 private:
  // kSharing: running, and others may help.
  enum class State { kGathering, kRunning, kSharing, kComplete, kFailed };
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  void Start(Lock& lock);
  void WaitForOthers(Lock& lock, int64_t rank);
  void Finish(Lock& lock);
  void Fail(std::string error);
  void WarnOrGiveUp(int64_t rank, Clock::time_point since);
  std::string Title() const;
  std::string Ranks(bool present) const;

  const CallSite& site_;
  const int64_t group_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  State state_ = State::kGathering;
  std::vector<bool> present_;
  size_t arrived_ = 0;
  std::vector<RankBuffers> buffers_;
  Arrival first_;  // the others must match it
  std::unique_ptr<Execution> execution_;
  int helpers_wanted_ = 0, helpers_ = 0;
  bool warned_ = false;
  std::string error_;
};

// Takes the rank to its meeting: the one of (run, site, group) that it has not attended yet. A
// meeting is forgotten once every rank has come, so one that failed is still found by the late.
// Thread safe. Returns what Meeting::Attend returns.
std::string MeetPeers(int64_t run_id, const CallSite& site, int64_t group, const Arrival& arrival);

}  // namespace pccl

#endif  // PCCL_FFI_MEETING_H_
