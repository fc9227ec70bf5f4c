// The part of an execution that concerns other processes.
#ifndef PCCL_FFI_REMOTE_H_
#define PCCL_FFI_REMOTE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "ffi/agreement.h"
#include "ffi/call_site.h"
#include "ffi/rank_state.h"
#include "ffi/shared_node_phase.h"
#include "ffi/transport/mpi.h"

namespace pccl {

// Thread safe but for transport(), which follows the rules of Transport. Methods may throw
// std::runtime_error where MPI fails.
class Remote {
 public:
  // All but the strings must outlive this. `channel` keeps the tags of the call site's group
  // between executions.
  Remote(const World& world, const Team& team, const Layout& layout, const Schedule& schedule,
         RankState* ranks, uint64_t occasion, const std::string& title, uint64_t digest,
         Channel* channel);
  ~Remote();

  // Whether an intra phase needs other processes on this node, and if so does what can be done:
  // *any is set where that was something.
  bool RunsNodePhase(const Phase& phase, int64_t node) const;
  void AdvanceNodePhase(const Phase& phase, int64_t node, bool* any);
  // Whether the processes have agreed on what they are about to do, as they must before they do it:
  // the first time, and always under PCCL_CHECK. Then messages may be sent and received.
  bool Ready(bool* any);
  Transport* transport() { return transport_.get(); }

  // An error that another process has met in this collective, or that it will never come; or "".
  // For a worker that has had nothing to do for a while.
  std::string Trouble();
  // To be asked when everything has arrived, before anybody is told so: whether others have given
  // up in the meantime, which leaves what they sent worth nothing. An error text, or "".
  std::string Confirm();
  // Tells the others, and gives up what is in flight. No other method may run at the same time.
  void Abandon(const std::string& error);
  // Whom this process waits for and what they are doing, for people.
  std::string WaitingFor();
  // Tells the others what this process has been waiting for long.
  void Complain();

 private:
  struct NodePart {
    const Phase* phase;
    int64_t node;
    std::mutex mutex;
    std::unique_ptr<SharedNodePhase> part;
  };

  using Clock = std::chrono::steady_clock;

  void AddNodeParts(RankState* ranks, const Layout& layout);
  bool NeedsMessages() const;
  std::set<int64_t> Awaited();
  std::string Absence();
  std::string Aborted();
  std::string Strayed();
  void KeepTags();
  bool OnBoards() const;

  const World& world_;
  const Team& team_;
  const Schedule& schedule_;
  const uint64_t occasion_;
  const std::string title_;
  const uint64_t signature_;
  std::vector<std::unique_ptr<NodePart>> node_parts_;
  std::mutex agreement_mutex_;
  std::unique_ptr<Agreement> agreement_;  // null where none is needed
  Channel* const channel_;
  std::unique_ptr<MpiTransport> transport_;
  std::mutex absence_mutex_;  // guards the two below
  Clock::time_point next_look_;
  std::map<int64_t, Clock::time_point> gone_since_;  // by process
  std::mutex abort_mutex_;
  std::string abort_;  // guarded by it
  bool given_up_ = false;
};

}  // namespace pccl

#endif  // PCCL_FFI_REMOTE_H_
