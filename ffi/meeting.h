// Where the ranks of one process that take part in the same collective meet.
#ifndef PCCL_FFI_MEETING_H_
#define PCCL_FFI_MEETING_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ffi/call_site.h"
#include "ffi/execution.h"

namespace pccl {

// Told once, on any thread, when the collective is complete (with "") or has failed.
using Done = std::function<void(const std::string& error)>;

// What a rank brings to a collective.
struct Arrival {
  int64_t rank = 0;  // schedule rank
  RankBuffers buffers;
  size_t in_bytes = 0, out_bytes = 0;
  DType dtype = DType::kBool;
  size_t item_bytes = 1;
  Done done;  // the buffers must stay valid until it is called
};

// One occurrence of a call in one run of a program, for one group. Nobody waits here: the last
// rank of this process to arrive starts the execution, and works on it as long as there is
// something to do; what must wait for other processes goes on in the pool.
class Meeting : public std::enable_shared_from_this<Meeting> {
 public:
  using Clock = std::chrono::steady_clock;

  // `occasion` names it, alike in every process of the group.
  Meeting(const CallSite& site, int64_t group, uint64_t occasion);

  // Called once a rank.
  void Attend(Arrival arrival);
  // Fails the ranks that have come and those that will.
  void GiveUp(const std::string& error);
  uint64_t occasion() const { return occasion_; }
  // Warns about missing ranks, or gives up, when it is time. Returns whether any are missing.
  bool Check();

 private:
  enum class State { kGathering, kRunning, kOver };
  using Lock = std::unique_lock<std::mutex>;

  std::string Mismatch(const Arrival& arrival) const;
  void Start(Lock& lock);
  void Work(Lock& lock, int worker, const Execution::Leave& leave);
  void WorkInPool(int worker);
  void End(Lock& lock, const std::string& error);
  std::string Title() const;
  std::string Ranks(bool present) const;

  const CallSite& site_;  // valid until the meeting is over
  const int64_t group_;
  const uint64_t occasion_;
  const Clock::time_point since_ = Clock::now();
  std::mutex mutex_;  // guards everything below
  State state_ = State::kGathering;
  std::vector<bool> present_;
  size_t arrived_ = 0;
  std::vector<RankBuffers> buffers_;
  std::vector<Done> dones_;
  Arrival first_;  // the others must match it
  std::unique_ptr<Execution> execution_;
  int working_ = 0;
  bool warned_ = false;
  std::string error_;
};

// Takes the rank to its meeting: the one of (run, site, group) that it has not attended yet. A
// meeting is forgotten once every rank has come, so one that failed is still found by the late.
// Thread safe, does not wait.
void MeetPeers(int64_t run_id, const CallSite& site, int64_t group, Arrival arrival);

// Says that the meeting cannot take place: its ranks in this process and in the others fail with
// `error`, whenever they come. Thread safe, does not wait.
void RefuseMeeting(int64_t run_id, const CallSite& site, int64_t group, const std::string& error);

}  // namespace pccl

#endif  // PCCL_FFI_MEETING_H_
