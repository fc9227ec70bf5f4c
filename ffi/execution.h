// Runs one collective for the ranks of a group: the state machine that walks a schedule.
#ifndef PCCL_FFI_EXECUTION_H_
#define PCCL_FFI_EXECUTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ffi/call_site.h"
#include "ffi/geometry.h"
#include "ffi/node_phase.h"
#include "ffi/rank_state.h"
#include "ffi/scratch.h"
#include "ffi/transport/transport.h"

namespace pccl {

// No thread ever blocks inside an execution: any number of workers call Work() and advance
// whichever rank can go on, so n ranks need one core, not n.
class Execution {
 public:
  // `site` and the buffers must outlive the execution. Buffers are indexed by schedule rank.
  Execution(const CallSite& site, const Geometry& geometry, DType dtype, int64_t group,
            std::vector<RankBuffers> buffers);

  // Advances ranks until the whole collective is complete. Safe from many threads at once.
  void Work(int worker);
  bool complete() const { return finished_.load(std::memory_order_acquire) == ranks_.size(); }
  // How many threads can usefully call Work().
  int useful_workers() const;

 private:
  bool Advance(size_t rank);
  bool AdvanceOnce(size_t rank);
  bool RunNodePhase(size_t rank, const Phase& phase);
  bool RunRound(size_t rank, const Phase& phase, int64_t round);
  void Receive(size_t rank, const Phase& phase, int64_t chunk, const Message& message);
  void Finish(size_t rank);

  const Schedule& schedule_;
  const Layout layout_;
  Scratch scratch_;
  std::vector<RankState> ranks_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<NodePhase>> node_phases_;  // [intra phase][node]
  std::atomic<size_t> finished_{0};
};

}  // namespace pccl

#endif  // PCCL_FFI_EXECUTION_H_
