// The part of an execution that concerns other processes.
#ifndef PCCL_FFI_REMOTE_H_
#define PCCL_FFI_REMOTE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ffi/call_site.h"
#include "ffi/control.h"
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
         RankState* ranks, uint64_t occasion, const std::string& title, Channel* channel);

  // Whether an intra phase needs other processes on this node, and if so does what can be done:
  // *any is set where that was something.
  bool RunsNodePhase(const Phase& phase, int64_t node) const;
  void AdvanceNodePhase(const Phase& phase, int64_t node, bool* any);
  // Whether messages may be sent and received: after the first execution's handshake.
  bool Ready(bool* any);
  Transport* transport() { return transport_.get(); }

  // An error that another process has met in this collective, or "".
  std::string Trouble();
  // Tells the others, and gives up what is in flight. No other method may run at the same time.
  void Abandon(const std::string& error);
  std::string WaitingFor();

 private:
  struct NodePart {
    const Phase* phase;
    int64_t node;
    std::mutex mutex;
    std::unique_ptr<SharedNodePhase> part;
  };

  void AddNodeParts(RankState* ranks, const Layout& layout, const std::string& title);
  bool NeedsMessages() const;

  const World& world_;
  const Team& team_;
  const Schedule& schedule_;
  const uint64_t occasion_;
  std::vector<std::unique_ptr<NodePart>> node_parts_;
  std::mutex handshake_mutex_;
  std::unique_ptr<Handshake> handshake_;  // null where the channel is open or not needed
  Channel* const channel_;
  std::unique_ptr<MpiTransport> transport_;
};

}  // namespace pccl

#endif  // PCCL_FFI_REMOTE_H_
