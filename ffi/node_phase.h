// A collective among the ranks of one node that share memory, cut into pieces for many workers.
#ifndef PCCL_FFI_NODE_PHASE_H_
#define PCCL_FFI_NODE_PHASE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ffi/rank_state.h"
#include "ffi/schedule.h"

namespace pccl {

// Peers' buffers are read directly. Begins once every rank of the node has reached its round
// (the caller checks); whoever completes the last piece moves all of them past it.
class NodePhase {
 public:
  // `first` is the node's first rank in `ranks`.
  NodePhase(const Layout& layout, const Schedule& schedule, const Phase& phase, RankState* ranks,
            int64_t first);

  // Takes pieces until none is left. Returns whether it did any.
  bool Work();
  int64_t pieces() const { return pieces_; }

 private:
  void Run(int64_t piece);
  void GatherPiece(int64_t item, int64_t part);
  void ScatterPiece(int64_t item, int64_t part);
  void ReducePiece(int64_t part);
  // The chunk that rank `index` of the node handles as its m-th.
  int64_t ChunkOf(int64_t index, int64_t m) const { return m * local_ + index; }
  View Part(const View& view, int64_t part) const;
  void Complete();

  const Layout& layout_;
  const Schedule& schedule_;
  const Phase& phase_;
  const Collective collective_;
  const int64_t local_, round_;
  RankState* const node_;  // the node's first rank
  int64_t parts_ = 1;      // pieces an item is cut into
  int64_t pieces_ = 0;     // in all
  std::atomic<int64_t> next_{0}, done_{0};
};

}  // namespace pccl

#endif  // PCCL_FFI_NODE_PHASE_H_
