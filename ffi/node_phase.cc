#include "ffi/node_phase.h"

#include <algorithm>
#include <vector>

#include "kernels/copy.h"

namespace pccl {
namespace {

// Large enough to amortise the atomic, small enough to share the work and stay in L2.
constexpr size_t kPieceBytes = size_t{256} << 10;

// Most nodes have few ranks: pointers to their buffers stay on the stack.
template <class T>
class PerRank {
 public:
  explicit PerRank(int64_t n) : many_(n > kFew ? static_cast<size_t>(n) : 0) {}
  T* data() { return many_.empty() ? few_ : many_.data(); }
  T& operator[](int64_t i) { return data()[i]; }

 private:
  static constexpr int64_t kFew = 16;
  T few_[kFew] = {};
  std::vector<T> many_;
};

}  // namespace

NodePhase::NodePhase(const Layout& layout, const Schedule& schedule, const Phase& phase,
                     RankState* ranks, int64_t first)
    : layout_(layout),
      schedule_(schedule),
      phase_(phase),
      collective_(phase.collective),
      local_(schedule.local),
      round_(phase.first_round),
      node_(ranks + first) {
  const size_t whole = layout.geometry.whole_bytes();
  const bool by_chunk = collective_ != Collective::kAllReduce;
  const int64_t items = by_chunk ? schedule.ranks() : 1;
  const size_t item_bytes = whole / static_cast<size_t>(items);
  parts_ = std::max<int64_t>(1, static_cast<int64_t>((item_bytes + kPieceBytes - 1) / kPieceBytes));
  pieces_ = items * parts_;
}

bool NodePhase::Work() {
  bool any = false;
  for (;;) {
    if (next_.load(std::memory_order_relaxed) >= pieces_) return any;
    const int64_t piece = next_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= pieces_) return any;
    Run(piece);
    any = true;
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces_) Complete();
  }
}

void NodePhase::Run(int64_t piece) {
  const int64_t item = piece / parts_, part = piece % parts_;
  switch (collective_) {
    case Collective::kAllGather:
      return GatherPiece(item, part);
    case Collective::kReduceScatter:
      return ScatterPiece(item, part);
    case Collective::kAllReduce:
      return ReducePiece(part);
  }
}

View NodePhase::Part(const View& view, int64_t part) const {
  const auto p = static_cast<size_t>(part), n = static_cast<size_t>(parts_);
  if (view.rows > 1) return view.Rows(view.rows * p / n, view.rows * (p + 1) / n);
  const size_t lines = view.row_bytes / 64;
  const auto boundary = [&](size_t i) {
    return i == n ? view.row_bytes : (lines / n * i + lines % n * i / n) * 64;
  };
  return view.Bytes(boundary(p), boundary(p + 1));
}

// One rank's chunk goes to every rank of the node, its own output included unless it is there.
void NodePhase::GatherPiece(int64_t item, int64_t part) {
  const int64_t index = item % local_, chunk = ChunkOf(index, item / local_);
  const RankState& source = node_[index];
  const View from = Part(source.At(layout_, chunk, round_), part);
  PerRank<void*> rows(local_);
  for (size_t row = 0; row < from.rows; ++row) {
    int n = 0;
    for (int64_t i = 0; i < local_; ++i) {
      char* to = Part(node_[i].In(Home::kOut, layout_, chunk), part).row(row);
      if (to != from.row(row)) rows[n++] = to;
    }
    CopyToMany(rows.data(), n, from.row(row), from.row_bytes, layout_.stream);
  }
}

// Rank `index` reduces one of the chunks it is responsible for over the ranks of the node.
void NodePhase::ScatterPiece(int64_t item, int64_t part) {
  const int64_t index = item % local_, chunk = ChunkOf(index, item / local_);
  const RankState& target = node_[index];
  const View to = Part(target.In(target.NextHome(layout_, chunk, round_), layout_, chunk), part);
  PerRank<View> from(local_);
  for (int64_t i = 0; i < local_; ++i) from[i] = Part(node_[i].At(layout_, chunk, round_), part);
  PerRank<const void*> rows(local_);
  const size_t count = to.row_bytes / layout_.geometry.item_bytes();
  for (size_t row = 0; row < to.rows; ++row) {
    for (int64_t i = 0; i < local_; ++i) rows[i] = from[i].row(row);
    layout_.reduce(to.row(row), rows.data(), static_cast<int>(local_), count);
  }
}

void NodePhase::ReducePiece(int64_t part) {
  PerRank<const void*> from(local_);
  PerRank<void*> to(local_);
  size_t nbytes = 0;
  for (int64_t i = 0; i < local_; ++i) {
    const RankState& rank = node_[i];
    const View source =
        Part(layout_.geometry.Everything(rank.Base(rank.HomeOf(layout_, 0, round_))), part);
    from[i] = source.data;
    to[i] = Part(layout_.geometry.Everything(rank.out), part).data;
    nbytes = source.row_bytes;
  }
  const size_t item_bytes = layout_.geometry.item_bytes();
  ReduceBroadcast(layout_.reduce, item_bytes, to.data(), static_cast<int>(local_), from.data(),
                  static_cast<int>(local_), nbytes / item_bytes, layout_.stream);
}

void NodePhase::Complete() {
  for (int64_t index = 0; index < local_; ++index) {
    SettleAfterIntra(layout_, schedule_, phase_, index, &node_[index]);
  }
  for (int64_t index = 0; index < local_; ++index) {
    node_[index].progress.store(round_ + 1, std::memory_order_release);
  }
}

}  // namespace pccl
