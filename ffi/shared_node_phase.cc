#include "ffi/shared_node_phase.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ffi/shared/direct.h"
#include "kernels/copy.h"

namespace pccl {
namespace {

// Up to here it is quicker that every process reduces everything than to wait once more.
constexpr size_t kEverybodyReducesBytes = size_t{16} << 10;
constexpr size_t kDirectPiece = size_t{1} << 20;

}  // namespace

SharedNodePhase::SharedNodePhase(Setup setup)
    : setup_(std::move(setup)),
      collective_(setup_.phase->collective),
      boards_(setup_.members.size()),
      order_(setup_.members.size()) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(), [this](size_t a, size_t b) {
    return setup_.members[a].process < setup_.members[b].process;
  });
}

void SharedNodePhase::Prepare() {
  const size_t slot_bytes = boards_[setup_.me].slot_bytes();
  const auto local = static_cast<size_t>(setup_.schedule->local);
  const size_t whole = setup_.layout->geometry.whole_bytes();
  size_t total = whole;
  if (collective_ == Collective::kAllReduce) {
    piece_bytes_ = slot_bytes;
    everybody_reduces_ = whole <= kEverybodyReducesBytes;
  } else {
    // A slot holds a piece for each rank of its owner, or for each rank of the others.
    size_t most = 1;
    for (const NodeMember& member : setup_.members) most = std::max(most, member.indices.size());
    const bool gathers = collective_ == Collective::kAllGather;
    piece_bytes_ = slot_bytes / (gathers ? most : local) / kLine * kLine;
    if (gathers) {
      PrepareGather();
    } else {
      PrepareScatter();
    }
    // Of an all-reduce, chunks differ in size: count pieces for the largest.
    total = 0;
    const auto& streams = collective_ == Collective::kAllGather ? targets_ : sources_;
    for (const auto& list : streams) total = std::max(total, list[0].nbytes());
    direct_ = gathers && total >= DirectBytes() && GoesDirect();
    if (direct_) piece_bytes_ = kDirectPiece;
  }
  pieces_ = static_cast<int64_t>((total + piece_bytes_ - 1) / piece_bytes_);
}

bool SharedNodePhase::Advance() {
  wanted_ = true;
  bool any = false;
  if (stage_ == Stage::kPublish) {
    if (!Publish()) return false;
    StageAhead();
    any = true;
  }
  if (stage_ == Stage::kMatch && !Match()) return any || CheckPeers();
  if (stage_ == Stage::kAcquire && !Acquire()) return any || CheckPeers();
  return stage_ == Stage::kMove && (Move() || any);
}

// All processes must decide alike: from what they all know.
bool SharedNodePhase::GoesDirect() const {
  size_t most = 1;
  for (const NodeMember& member : setup_.members) {
    char* segment = setup_.shared->Of(member.process);
    if (!BoardRef(segment, 0).owner_reads_peers()) return false;
    most = std::max(most, member.indices.size());
  }
  const size_t views = static_cast<size_t>(setup_.schedule->nodes) * most;
  return views * setup_.layout->geometry.rows() <= kRuns;
}

bool SharedNodePhase::Publish() {
  // The owner is one of them: its peers may be through before it has found them all.
  const auto readers = static_cast<int32_t>(setup_.members.size());
  boards_[setup_.me] = PublishBoard(setup_.shared->Of(setup_.members[setup_.me].process),
                                    setup_.key, setup_.signature, setup_.description, readers);
  if (!boards_[setup_.me]) return false;
  Prepare();
  stage_ = Stage::kMatch;
  return true;
}

// The first pieces need nobody: stages them before it looks for the others, where slots are free.
void SharedNodePhase::StageAhead() {
  const BoardRef& own = boards_[setup_.me];
  if (direct_) {
    TellRuns(own, sources_[0]);
    filled_ = pieces_;
    own->filled.store(pieces_, std::memory_order_release);
    for (int64_t piece = 0; piece < pieces_; ++piece) FillGather(piece, nullptr);
    return;
  }
  if (!TakeSet(own, false)) return;
  while (filled_ < std::min<int64_t>(pieces_, kSlots)) Fill(filled_);
  SayStaged(own);
}

// Lets every process hold a set of slots, in ascending order. Returns whether all do.
bool SharedNodePhase::Acquire() {
  for (const size_t q : order_) {
    if (boards_[q].Secure()) continue;
    if (q != setup_.me) return false;
    // What was staged ahead has been taken away, if anything was.
    filled_ = 0;
    boards_[q]->filled.store(0, std::memory_order_release);
    if (!TakeSet(boards_[q], true)) return false;
  }
  stage_ = Stage::kMove;
  return true;
}

bool SharedNodePhase::Match() {
  bool all = true;
  for (size_t q = 0; q < boards_.size(); ++q) {
    if (boards_[q]) continue;
    boards_[q] = FindBoard(setup_.shared->Of(setup_.members[q].process), setup_.key);
    if (!boards_[q]) {
      all = false;
    } else if (boards_[q]->outcome.load(std::memory_order_acquire) == kFailed) {
      Abandon(boards_[q].Text());
      return false;
    } else if (boards_[q]->signature != setup_.signature) {
      Abandon(Disagreement(setup_.members[setup_.me].process, setup_.description,
                           setup_.members[q].process, boards_[q].Text()));
      return false;
    }
  }
  if (all) stage_ = direct_ ? Stage::kMove : Stage::kAcquire;
  return all;
}

int64_t SharedNodePhase::Least(std::atomic<int64_t> Board::* counter) const {
  int64_t least = pieces_;
  for (const BoardRef& board : boards_) {
    least = std::min(least, (board.operator->()->*counter).load(std::memory_order_acquire));
  }
  return least;
}

bool SharedNodePhase::Move() {
  const int64_t before = filled_ + reduced_ + taken_;
  while (filled_ < pieces_ && filled_ < Least(&Board::copied) + static_cast<int64_t>(kSlots)) {
    Fill(filled_);
  }
  const bool shares = collective_ == Collective::kAllReduce && !everybody_reduces_;
  if (shares && reduced_ < pieces_) {
    const int64_t ready = Least(&Board::filled);
    while (reduced_ < ready) Reduce(reduced_);
  }
  if (taken_ < pieces_) {
    const int64_t ready = Least(shares ? &Board::reduced : &Board::filled);
    while (taken_ < ready) Take(taken_);
  }
  // Of a peer that has failed the memory may have been something else while we read it.
  if (taken_ == pieces_ && direct_ && CheckPeers()) return true;
  if (taken_ == pieces_ && (!direct_ || Least(&Board::copied) == pieces_)) {
    Finish();
    return true;
  }
  if (filled_ + reduced_ + taken_ != before) return true;
  return CheckPeers();
}

// Nothing could be done: is that because somebody has given up?
bool SharedNodePhase::CheckPeers() {
  if (stage_ == Stage::kFailed) return true;
  for (size_t q = 0; q < boards_.size(); ++q) {
    if (!boards_[q] || boards_[q]->outcome.load(std::memory_order_acquire) != kFailed) continue;
    Abandon(boards_[q].Text());
    return true;
  }
  return false;
}

void SharedNodePhase::Finish() {
  const int64_t round = setup_.phase->first_round;
  for (const int64_t index : mine()) {
    SettleAfterIntra(*setup_.layout, *setup_.schedule, *setup_.phase, index, &rank(index));
  }
  boards_[setup_.me]->outcome.store(kDone, std::memory_order_release);
  for (const BoardRef& board : boards_) {
    ReleaseBoard(board);
  }
  stage_ = Stage::kComplete;
  for (const int64_t index : mine()) {
    rank(index).progress.store(round + 1, std::memory_order_release);
  }
}

void SharedNodePhase::Abandon(const std::string& error) {
  if (stage_ == Stage::kComplete || stage_ == Stage::kFailed) return;
  error_ = error;
  stage_ = Stage::kFailed;
  for (size_t q = 0; q < boards_.size(); ++q) {
    if (!boards_[q]) continue;
    if (q == setup_.me) {
      FailBoard(boards_[q], error);
      DropStaged(boards_[q]);
    }
    ReleaseBoard(boards_[q]);
  }
}

std::vector<int64_t> SharedNodePhase::Awaited() const {
  std::vector<int64_t> awaited;
  for (size_t q = 0; q < boards_.size() && boards_[setup_.me]; ++q) {
    const BoardRef& board = boards_[q];
    const bool behind =
        !board || (stage_ == Stage::kAcquire && board.hold() != Hold::kHeld) ||
        (stage_ == Stage::kMove && (board->filled < pieces_ || board->copied < taken_));
    if (behind && q != setup_.me) awaited.push_back(setup_.members[q].process);
  }
  return awaited;
}

}  // namespace pccl
