// How a node phase through shared memory moves its data, piece by piece; shared_node_phase.cc says
// when.
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "ffi/shared/direct.h"
#include "ffi/shared_node_phase.h"
#include "kernels/copy.h"

namespace pccl {

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
  switch (collective_) {
    case Collective::kAllGather:
      FillGather(piece, own.slot(piece));
      break;
    case Collective::kReduceScatter:
      FillScatter(piece);
      break;
    case Collective::kAllReduce:
      FillReduce(piece);
      break;
  }
  own->filled.store(++filled_, std::memory_order_release);
}

// Stages what the local ranks hold, where there is a slot for it, and puts it into their outputs
// while it is in the cache.
void SharedNodePhase::FillGather(int64_t piece, char* slot) {
  std::vector<void*> to(mine().size() + 1);
  const bool stream = slot == nullptr && setup_.layout->stream;
  for (size_t d = 0; d < mine().size(); ++d) {
    const ByteStream& source = sources_[0][d];
    const std::vector<ByteStream>& outs = targets_[static_cast<size_t>(mine()[d])];
    const auto [begin, end] = Range(piece, source.nbytes());
    source.ForRuns(begin, end, [&](const ByteStream::Run& run, size_t offset) {
      size_t n = 0;
      if (slot != nullptr) to[n++] = slot + d * piece_bytes_ + offset;
      for (const ByteStream& out : outs) to[n++] = out.at(run);
      CopyToMany(to.data(), static_cast<int>(n), source.at(run), run.nbytes, stream);
    });
  }
}

// Stages the reduction of what the local ranks have.
void SharedNodePhase::FillReduce(int64_t piece) {
  char* slot = boards_[setup_.me].slot(piece);
  const auto [begin, end] = Range(piece, setup_.layout->geometry.whole_bytes());
  std::vector<const void*> from;
  for (const int64_t index : mine()) {
    const RankState& state = rank(index);
    const Home home = state.HomeOf(*setup_.layout, 0, setup_.phase->first_round);
    from.push_back(state.Base(home) + begin);
  }
  ReduceOrCopy(slot, from, end - begin);
}

// One operand needs no kernel.
void SharedNodePhase::ReduceOrCopy(char* to, const std::vector<const void*>& from,
                                   size_t nbytes) const {
  if (from.size() == 1) return Copy(to, from[0], nbytes, false);
  setup_.layout->reduce(to, from.data(), static_cast<int>(from.size()),
                        nbytes / setup_.layout->geometry.item_bytes());
}

// Stages, for each rank of another process, the reduction of what the local ranks have for it.
void SharedNodePhase::FillScatter(int64_t piece) {
  char* slot = boards_[setup_.me].slot(piece);
  std::vector<const void*> from(mine().size());
  for (size_t owner = 0; owner < sources_.size(); ++owner) {
    if (std::binary_search(mine().begin(), mine().end(), static_cast<int64_t>(owner))) continue;
    const std::vector<ByteStream>& inputs = sources_[owner];
    const auto [begin, end] = Range(piece, inputs[0].nbytes());
    char* to = slot + owner * piece_bytes_;
    inputs[0].ForRuns(begin, end, [&](const ByteStream::Run& run, size_t offset) {
      for (size_t d = 0; d < inputs.size(); ++d) from[d] = inputs[d].at(run);
      ReduceOrCopy(to + offset, from, run.nbytes);
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
  switch (collective_) {
    case Collective::kAllGather:
      TakeGather(piece);
      break;
    case Collective::kReduceScatter:
      TakeScatter(piece);
      break;
    case Collective::kAllReduce:
      TakeReduced(piece);
      break;
  }
  boards_[setup_.me]->copied.store(++taken_, std::memory_order_release);
}

void SharedNodePhase::TakeReduced(int64_t piece) {
  const auto [begin, end] = Range(piece, setup_.layout->geometry.whole_bytes());
  if (everybody_reduces_) return ReduceShare(piece, 0, end - begin, true);
  std::vector<void*> to(mine().size());
  for (size_t q = 0; q < boards_.size(); ++q) {
    const auto [from, until] = Share(q, end - begin);
    for (size_t d = 0; d < to.size(); ++d) to[d] = rank(mine()[d]).out + begin + from;
    CopyToMany(to.data(), static_cast<int>(to.size()), boards_[q].slot(piece) + from, until - from,
               false);
  }
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

// Reads bytes [begin, end) of what local rank `d` of a member has, into the first output.
void SharedNodePhase::TakeDirect(size_t member, size_t d, size_t begin, size_t end) {
  const std::vector<int64_t>& indices = setup_.members[member].indices;
  const auto out_of = [&](size_t i) -> const ByteStream& {
    return targets_[static_cast<size_t>(indices[i])][0];
  };
  size_t before = 0;  // bytes of the member's local ranks before this one
  for (size_t i = 0; i < d; ++i) before += out_of(i).nbytes();
  const int error = ReadRuns(boards_[member], before + begin, before + end, out_of(d), begin);
  if (error == 0) return;
  const std::string peer = "process " + std::to_string(setup_.members[member].process);
  if (error == ESRCH) throw std::runtime_error(peer + " has ended");
  throw std::runtime_error("cannot read the memory of " + peer + " (" + strerror(error) +
                           "); set PCCL_CMA_MIB=0");
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

}  // namespace pccl
