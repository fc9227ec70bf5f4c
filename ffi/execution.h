// Runs one collective for the ranks of a group that this process holds: the state machine that
// walks a schedule.
#ifndef PCCL_FFI_EXECUTION_H_
#define PCCL_FFI_EXECUTION_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ffi/call_site.h"
#include "ffi/geometry.h"
#include "ffi/node_phase.h"
#include "ffi/rank_state.h"
#include "ffi/remote.h"
#include "ffi/scratch.h"
#include "ffi/transport/memory.h"
#include "ffi/vendor.h"

namespace pccl {

// No thread ever blocks inside an execution: any number of workers call Work() and advance
// whichever rank can go on, so n ranks need one core, not n. Waiting for other processes is
// polling, with an end: the site's patience.
class Execution {
 public:
  using Clock = std::chrono::steady_clock;

  struct Setup {
    const CallSite* site;
    Geometry geometry;
    DType dtype;
    int64_t group;
    uint64_t occasion;                 // names this execution, alike in every process
    std::string title;                 // what the processes must agree on
    std::vector<RankBuffers> buffers;  // by rank; those of other processes are ignored
  };

  // The site and the buffers must outlive the execution.
  explicit Execution(const Setup& setup);

  enum class Outcome { kComplete, kFailed, kWaits };

  // Whether to leave an execution that has waited for other processes for so many seconds.
  using Leave = std::function<bool(double waited_s)>;

  // Advances ranks until the whole collective is complete or has failed, or until it waits for
  // other processes and `leave` says so. Safe from many threads at once. After a failure buffers
  // may be in use until every worker has returned.
  Outcome Work(int worker, const Leave& leave);
  bool complete() const { return finished_.load(std::memory_order_acquire) == mine_.size(); }
  // What went wrong, or "". To be called after Work has returned.
  std::string error() const;
  // After a failure, once every worker has returned: tells the other processes and gives up what
  // is in flight, so that no buffer is touched afterwards.
  void Abandon();
  // How many threads can usefully call Work().
  int useful_workers() const;

 private:
  bool Advance(size_t rank);
  bool AdvanceOnce(size_t rank);
  bool RunNodePhase(size_t rank, const Phase& phase);
  bool RunVendor(size_t rank);
  bool RunRound(size_t rank, const Phase& phase, int64_t round);
  Delivery Receive(size_t rank, const Phase& phase, const Message& message, Transport* transport);
  bool AllSent(int64_t rank, int64_t round);
  void Finish(size_t rank);
  void Fail(const std::string& error);
  std::string WaitingFor();
  void CheckOnOthers(double waited);
  bool Confirm();
  std::optional<double> Pause(int* pauses);

  const Schedule& schedule_;
  const World* const world_;  // null within one process
  const Team& team_;
  const Layout layout_;
  const Patience patience_;
  const std::string title_;
  Scratch scratch_;
  std::vector<RankState> ranks_;
  std::vector<int64_t> mine_;
  MemoryTransport memory_;
  std::unique_ptr<Remote> remote_;                       // null within one process
  std::unique_ptr<VendorCollective> vendor_;             // null where the schedule is ours
  std::vector<std::unique_ptr<NodePhase>> node_phases_;  // [intra phase][node]; may hold nulls
  std::atomic<size_t> finished_{0};
  std::atomic<bool> failed_{false};
  std::atomic<Clock::rep> idle_since_{0};  // when a worker first found nothing to do; 0: they do
  std::atomic<bool> warned_{false};
  mutable std::mutex error_mutex_;
  std::string error_;
};

}  // namespace pccl

#endif  // PCCL_FFI_EXECUTION_H_
