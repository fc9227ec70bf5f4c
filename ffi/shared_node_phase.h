// A collective among the ranks of one node that several processes hold, through shared memory.
#ifndef PCCL_FFI_SHARED_NODE_PHASE_H_
#define PCCL_FFI_SHARED_NODE_PHASE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ffi/byte_stream.h"
#include "ffi/rank_state.h"
#include "ffi/schedule.h"
#include "ffi/shared/board.h"
#include "ffi/shared/segment.h"

namespace pccl {

// One process of the node and the indices of its ranks there, in ascending order.
struct NodeMember {
  int64_t process = 0;
  std::vector<int64_t> indices;
};

// The data goes through the boards' slots in pieces: every process stages a piece of what the
// others need, then takes what it needs from theirs. Pieces are in flight kSlots deep, so
// staging, reducing and taking overlap and memory stays bounded. Small all-reduces are reduced
// by everybody; of large ones each process reduces a share of the piece.
//
// Not thread safe: the caller holds a lock while it calls Advance.
class SharedNodePhase {
 public:
  struct Setup {
    const Layout* layout;
    const Schedule* schedule;
    const Phase* phase;
    RankState* ranks;   // all ranks of the group
    int64_t first = 0;  // the node's first rank
    std::vector<NodeMember> members;
    size_t me = 0;  // this process's index in `members`
    const SharedMemory* shared;
    uint64_t key = 0;
    uint64_t signature = 0;   // must be equal in all processes
    std::string description;  // explains it to people
  };

  explicit SharedNodePhase(Setup setup);

  // Does what can be done now, without blocking, once every local rank has reached the phase.
  // Returns whether anything was done.
  bool Advance();
  bool complete() const { return stage_ == Stage::kComplete; }
  // What went wrong, or "".
  const std::string& error() const { return error_; }
  // Makes peers fail too; the caller will not call Advance again.
  void Abandon(const std::string& error);
  // The processes that this one is waiting for.
  std::vector<int64_t> Awaited() const;
  // Whether it waits for a board of its own to become free.
  bool LacksBoard() const { return stage_ == Stage::kPublish && wanted_; }

 private:
  // kMatch: until every process has published its board; kAcquire: until each holds slots.
  static constexpr size_t kLine = 64;  // of a cache: what processes share begins at multiples
  enum class Stage { kPublish, kMatch, kAcquire, kMove, kComplete, kFailed };

  void Prepare();
  void PrepareGather();
  void PrepareScatter();
  bool Publish();
  bool GoesDirect() const;
  void StageAhead();
  bool Match();
  bool Acquire();
  bool Move();
  void Fill(int64_t piece);
  void Reduce(int64_t piece);
  void Take(int64_t piece);
  void FillGather(int64_t piece, char* slot);
  void FillScatter(int64_t piece);
  void FillReduce(int64_t piece);
  void ReduceOrCopy(char* to, const std::vector<const void*>& from, size_t nbytes) const;
  void TakeGather(int64_t piece);
  void TakeDirect(size_t member, size_t d, size_t begin, size_t end);
  void TakeScatter(int64_t piece);
  void TakeReduced(int64_t piece);
  void ReduceShare(int64_t piece, size_t begin, size_t end, bool to_outputs);
  void Finish();
  bool CheckPeers();

  RankState& rank(int64_t index) const { return setup_.ranks[setup_.first + index]; }
  const std::vector<int64_t>& mine() const { return setup_.members[setup_.me].indices; }
  int64_t Least(std::atomic<int64_t> Board::* counter) const;
  // Bytes [first, second) of a stream or of the vector that `piece` covers.
  std::pair<size_t, size_t> Range(int64_t piece, size_t total) const;
  std::pair<size_t, size_t> Share(size_t member, size_t nbytes) const;
  ByteStream ChunksOf(int64_t owner, const RankState& holder, bool at_home) const;

  Setup setup_;
  const Collective collective_;
  Stage stage_ = Stage::kPublish;
  bool wanted_ = false;  // whether Advance has been called
  std::string error_;
  std::vector<BoardRef> boards_;  // by member
  std::vector<size_t> order_;     // indices of members, by process
  size_t piece_bytes_ = 0;        // of a stream
  int64_t pieces_ = 0;
  bool everybody_reduces_ = false;
  bool direct_ = false;  // peers' memory is read where it is
  int64_t filled_ = 0, reduced_ = 0, taken_ = 0;
  // By rank index of the node: all-gather: what local rank 0.. holds and where it goes in each
  // local output; reduce-scatter: for each rank, its chunks in each local input, and its target.
  std::vector<std::vector<ByteStream>> sources_, targets_;
};

}  // namespace pccl

#endif  // PCCL_FFI_SHARED_NODE_PHASE_H_
