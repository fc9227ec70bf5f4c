#include "ffi/shared_node_phase.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "ffi/shared/direct.h"
#include "kernels/copy.h"

namespace pccl {
namespace {

// Up to here it is quicker that every process reduces everything than to wait once more.
constexpr size_t kEverybodyReducesBytes = size_t{16} << 10;
constexpr size_t kLine = 64;
// From here on reading a peer's memory through the kernel, one copy, beats two copies.
constexpr size_t kDirectBytes = size_t{4} << 20;
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

// The bytes of the chunks that rank `owner` of the node is responsible for, in `holder`'s
// memory: where they are now, or where the phase leaves them.
ByteStream SharedNodePhase::ChunksOf(int64_t owner, const RankState& holder, bool at_home) const {
  const Layout& layout = *setup_.layout;
  const int64_t round = setup_.phase->first_round;
  ByteStream stream;
  for (int64_t m = 0; m < setup_.schedule->nodes; ++m) {
    const int64_t chunk = m * setup_.schedule->local + owner;
    const Home home =
        at_home ? holder.HomeOf(layout, chunk, round)
                : (collective_ == Collective::kAllGather ? Home::kOut
                                                         : holder.NextHome(layout, chunk, round));
    stream.Append(holder.In(home, layout, chunk));
  }
  return stream;
}

void SharedNodePhase::PrepareGather() {
  const int64_t local = setup_.schedule->local;
  sources_.resize(1);
  for (const int64_t index : mine()) sources_[0].push_back(ChunksOf(index, rank(index), true));
  targets_.resize(static_cast<size_t>(local));
  for (int64_t owner = 0; owner < local; ++owner) {
    for (const int64_t index : mine()) {
      targets_[static_cast<size_t>(owner)].push_back(ChunksOf(owner, rank(index), false));
    }
  }
}

void SharedNodePhase::PrepareScatter() {
  const int64_t local = setup_.schedule->local;
  sources_.resize(static_cast<size_t>(local));
  for (int64_t owner = 0; owner < local; ++owner) {
    for (const int64_t index : mine()) {
      sources_[static_cast<size_t>(owner)].push_back(ChunksOf(owner, rank(index), true));
    }
  }
  targets_.resize(1);
  for (const int64_t index : mine()) targets_[0].push_back(ChunksOf(index, rank(index), false));
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
    direct_ = gathers && total >= kDirectBytes && GoesDirect();
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

// Tells peers where the local ranks' data is.
void SharedNodePhase::Tell() {
  const BoardRef& own = boards_[setup_.me];
  size_t n = 0;
  for (const ByteStream& source : sources_[0]) {
    source.ForRuns(0, source.nbytes(), [&](const ByteStream::Run& run, size_t) {
      own->runs[n++] = {reinterpret_cast<uint64_t>(source.at(run)), run.nbytes};
    });
  }
  filled_ = pieces_;
  own->filled.store(pieces_, std::memory_order_release);
}

void SharedNodePhase::CopyOwn() {
  for (size_t d = 0; d < mine().size(); ++d) {
    const ByteStream& source = sources_[0][d];
    const std::vector<ByteStream>& outs = targets_[static_cast<size_t>(mine()[d])];
    std::vector<void*> to(outs.size());
    source.ForRuns(0, source.nbytes(), [&](const ByteStream::Run& run, size_t) {
      int n = 0;
      for (const ByteStream& out : outs) {
        if (out.at(run) != source.at(run)) to[static_cast<size_t>(n++)] = out.at(run);
      }
      if (n > 0) CopyToMany(to.data(), n, source.at(run), run.nbytes, setup_.layout->stream);
    });
  }
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
    Tell();
    return CopyOwn();
  }
  if (!TakeSet(own, false)) return;
  while (filled_ < std::min<int64_t>(pieces_, kSlots)) Fill(filled_);
  SayStaged(own);
}

// Reads bytes [begin, end) of what local rank `d` of a member has, into the outputs.
void SharedNodePhase::TakeDirect(size_t member, size_t d, size_t begin, size_t end) {
  const BoardRef& board = boards_[member];
  const std::vector<int64_t>& indices = setup_.members[member].indices;
  const std::vector<ByteStream>& outs = targets_[static_cast<size_t>(indices[d])];
  std::vector<iovec> to, from;
  outs[0].ForRuns(begin, end, [&](const ByteStream::Run& run, size_t) {
    to.push_back({outs[0].at(run), run.nbytes});
  });
  size_t start = 0;  // of a run in the streams of the member's local ranks, one after the other
  for (size_t before = 0; before < d; ++before) {
    const size_t nbytes = targets_[static_cast<size_t>(indices[before])][0].nbytes();
    begin += nbytes;
    end += nbytes;
  }
  for (size_t r = 0; start < end; start += board->runs[r++].nbytes) {
    const size_t first = std::max(begin, start);
    const size_t last = std::min<size_t>(end, start + board->runs[r].nbytes);
    if (first >= last) continue;
    const uint64_t address = board->runs[r].address + (first - start);
    from.push_back({reinterpret_cast<void*>(address), last - first});
  }
  const int error = ReadDirectly(board, std::move(to), std::move(from));
  if (error == 0) return;
  const std::string peer = "process " + std::to_string(setup_.members[member].process);
  if (error == ESRCH) throw std::runtime_error(peer + " has ended");
  throw std::runtime_error("cannot read the memory of " + peer + " (" + strerror(error) +
                           "); set PCCL_CMA=0");
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

std::pair<size_t, size_t> SharedNodePhase::Range(int64_t piece, size_t total) const {
  const size_t begin = std::min(total, static_cast<size_t>(piece) * piece_bytes_);
  return {begin, std::min(total, begin + piece_bytes_)};
}

std::pair<size_t, size_t> SharedNodePhase::Share(size_t member, size_t nbytes) const {
  const size_t lines = nbytes / kLine, n = setup_.members.size();
  const size_t begin = lines * member / n * kLine;
  return {begin, member + 1 == n ? nbytes : lines * (member + 1) / n * kLine};
}

void SharedNodePhase::Fill(int64_t piece) {
  const BoardRef& own = boards_[setup_.me];
  char* slot = own.slot(piece);
  if (collective_ == Collective::kReduceScatter) {
    FillScatter(piece);
  } else if (collective_ == Collective::kAllGather) {
    FillGather(piece);
  } else {
    const auto [begin, end] = Range(piece, setup_.layout->geometry.whole_bytes());
    std::vector<const void*> from;
    for (const int64_t index : mine()) {
      const RankState& state = rank(index);
      const Home home = state.HomeOf(*setup_.layout, 0, setup_.phase->first_round);
      from.push_back(state.Base(home) + begin);
    }
    if (from.size() == 1) {
      Copy(slot, from[0], end - begin, false);
    } else {
      setup_.layout->reduce(slot, from.data(), static_cast<int>(from.size()),
                            (end - begin) / setup_.layout->geometry.item_bytes());
    }
  }
  own->filled.store(++filled_, std::memory_order_release);
}

// Stages what the local ranks hold and, while it is in the cache, puts it into their outputs.
void SharedNodePhase::FillGather(int64_t piece) {
  char* slot = boards_[setup_.me].slot(piece);
  std::vector<void*> to(mine().size() + 1);
  for (size_t d = 0; d < mine().size(); ++d) {
    const ByteStream& source = sources_[0][d];
    const std::vector<ByteStream>& outs = targets_[static_cast<size_t>(mine()[d])];
    const auto [begin, end] = Range(piece, source.nbytes());
    source.ForRuns(begin, end, [&](const ByteStream::Run& run, size_t offset) {
      to[0] = slot + d * piece_bytes_ + offset;
      int n = 1;
      for (const ByteStream& out : outs) {
        if (out.at(run) != source.at(run)) to[static_cast<size_t>(n++)] = out.at(run);
      }
      CopyToMany(to.data(), n, source.at(run), run.nbytes, false);
    });
  }
}

// Stages, for each rank of another process, the reduction of what the local ranks have for it.
void SharedNodePhase::FillScatter(int64_t piece) {
  char* slot = boards_[setup_.me].slot(piece);
  const size_t item_bytes = setup_.layout->geometry.item_bytes();
  std::vector<const void*> from(mine().size());
  for (size_t owner = 0; owner < sources_.size(); ++owner) {
    if (std::binary_search(mine().begin(), mine().end(), static_cast<int64_t>(owner))) continue;
    const std::vector<ByteStream>& inputs = sources_[owner];
    const auto [begin, end] = Range(piece, inputs[0].nbytes());
    char* to = slot + owner * piece_bytes_;
    inputs[0].ForRuns(begin, end, [&](const ByteStream::Run& run, size_t offset) {
      for (size_t d = 0; d < inputs.size(); ++d) from[d] = inputs[d].at(run);
      if (from.size() == 1) {
        Copy(to + offset, from[0], run.nbytes, false);
      } else {
        setup_.layout->reduce(to + offset, from.data(), static_cast<int>(from.size()),
                              run.nbytes / item_bytes);
      }
    });
  }
}

void SharedNodePhase::Reduce(int64_t piece) {
  const auto [begin, end] = Range(piece, setup_.layout->geometry.whole_bytes());
  const auto [from, to] = Share(setup_.me, end - begin);
  ReduceShare(piece, from, to, false);
  boards_[setup_.me]->reduced.store(++reduced_, std::memory_order_release);
}

// Reduces bytes [begin, end) of the piece over all processes, into the own slot, whose bytes
// there nobody else reads before `reduced` says so, or into the outputs.
void SharedNodePhase::ReduceShare(int64_t piece, size_t begin, size_t end, bool to_outputs) {
  std::vector<const void*> from;
  for (const BoardRef& board : boards_) from.push_back(board.slot(piece) + begin);
  std::vector<void*> to;
  if (to_outputs) {
    const size_t start = Range(piece, setup_.layout->geometry.whole_bytes()).first;
    for (const int64_t index : mine()) to.push_back(rank(index).out + start + begin);
  } else {
    to.push_back(boards_[setup_.me].slot(piece) + begin);
  }
  const size_t item_bytes = setup_.layout->geometry.item_bytes();
  ReduceBroadcast(setup_.layout->reduce, item_bytes, to.data(), static_cast<int>(to.size()),
                  from.data(), static_cast<int>(from.size()), (end - begin) / item_bytes, false);
}

void SharedNodePhase::Take(int64_t piece) {
  if (collective_ == Collective::kAllGather) {
    TakeGather(piece);
  } else if (collective_ == Collective::kReduceScatter) {
    TakeScatter(piece);
  } else {
    const auto [begin, end] = Range(piece, setup_.layout->geometry.whole_bytes());
    if (everybody_reduces_) {
      ReduceShare(piece, 0, end - begin, true);
    } else {
      std::vector<void*> to(mine().size());
      for (size_t q = 0; q < boards_.size(); ++q) {
        const auto [from, until] = Share(q, end - begin);
        for (size_t d = 0; d < to.size(); ++d) to[d] = rank(mine()[d]).out + begin + from;
        CopyToMany(to.data(), static_cast<int>(to.size()), boards_[q].slot(piece) + from,
                   until - from, false);
      }
    }
  }
  boards_[setup_.me]->copied.store(++taken_, std::memory_order_release);
}

void SharedNodePhase::TakeGather(int64_t piece) {
  std::vector<void*> to(mine().size());
  for (size_t q = 0; q < boards_.size(); ++q) {
    for (size_t d = 0; q != setup_.me && d < setup_.members[q].indices.size(); ++d) {
      const std::vector<ByteStream>& outs =
          targets_[static_cast<size_t>(setup_.members[q].indices[d])];
      const auto [begin, end] = Range(piece, outs[0].nbytes());
      if (direct_) TakeDirect(q, d, begin, end);
      const char* slot = direct_ ? nullptr : boards_[q].slot(piece) + d * piece_bytes_;
      const size_t first = direct_ ? 1 : 0;  // the outputs that have it already
      outs[0].ForRuns(begin, end, [&](const ByteStream::Run& run, size_t offset) {
        for (size_t i = first; i < outs.size(); ++i) to[i] = outs[i].at(run);
        const char* from = direct_ ? outs[0].at(run) : slot + offset;
        const auto n = static_cast<int>(outs.size() - first);
        if (n > 0) CopyToMany(to.data() + first, n, from, run.nbytes, false);
      });
    }
  }
}

// The order of the operands is that of the processes, the same whoever reduces.
void SharedNodePhase::TakeScatter(int64_t piece) {
  const size_t item_bytes = setup_.layout->geometry.item_bytes();
  std::vector<const void*> from;
  for (size_t d = 0; d < mine().size(); ++d) {
    const auto owner = static_cast<size_t>(mine()[d]);
    const ByteStream& target = targets_[0][d];
    const auto [begin, end] = Range(piece, target.nbytes());
    target.ForRuns(begin, end, [&](const ByteStream::Run& run, size_t offset) {
      from.clear();
      for (size_t q = 0; q < boards_.size(); ++q) {
        if (q == setup_.me) {
          for (const ByteStream& input : sources_[owner]) from.push_back(input.at(run));
        } else {
          from.push_back(boards_[q].slot(piece) + owner * piece_bytes_ + offset);
        }
      }
      setup_.layout->reduce(target.at(run), from.data(), static_cast<int>(from.size()),
                            run.nbytes / item_bytes);
    });
  }
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
