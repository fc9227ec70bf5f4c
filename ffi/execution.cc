#include "ffi/execution.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "ffi/cores.h"
#include "ffi/transport/memory.h"
#include "kernels/copy.h"

namespace pccl {
namespace {

// One core moves this much in less time than it takes to wake another thread.
constexpr size_t kBytesPerWorker = size_t{512} << 10;
// Outputs beyond this leave the cache before anyone reads them.
constexpr size_t kStreamBytes = size_t{16} << 20;
constexpr int kSpins = 64;

Layout MakeLayout(const CallSite& site, const Geometry& geometry, DType dtype, int64_t group) {
  Layout layout;
  layout.collective = site.collective;
  layout.split = site.schedule.split;
  layout.geometry = geometry;
  layout.places = site.group_places(group);
  layout.reduce = site.collective == Collective::kAllGather ? nullptr : FindReduce(dtype, site.op);
  const size_t out_bytes = geometry.whole_bytes() * static_cast<size_t>(site.ranks());
  layout.stream = site.collective != Collective::kReduceScatter && out_bytes > kStreamBytes &&
                  site.schedule.nodes == 1;
  return layout;
}

// Buffers beside in and out: a reduce-scatter keeps partials of chunks it will give away, a
// vector that travels whole is never reduced in place.
size_t WorkBytes(const CallSite& site, const Geometry& geometry) {
  if (site.schedule.nodes == 1) return 0;
  const bool partials = site.collective == Collective::kReduceScatter;
  return partials || !site.schedule.split ? geometry.whole_bytes() : 0;
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Execution::Execution(const CallSite& site, const Geometry& geometry, DType dtype, int64_t group,
                     std::vector<RankBuffers> buffers)
    : schedule_(site.schedule),
      layout_(MakeLayout(site, geometry, dtype, group)),
      scratch_(WorkBytes(site, geometry) * buffers.size()),
      ranks_(buffers.size()) {
  const size_t work_bytes = WorkBytes(site, geometry);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    RankState& rank = ranks_[r];
    rank.rank = static_cast<int64_t>(r);
    rank.in = static_cast<char*>(const_cast<void*>(buffers[r].in));  // never written
    rank.out = static_cast<char*>(buffers[r].out);
    rank.work = work_bytes == 0 ? nullptr : scratch_.data() + r * work_bytes;
    const auto rounds = static_cast<size_t>(schedule_.rounds);
    rank.homes.assign(layout_.split ? ranks_.size() : rounds + 1, Home::kIn);
  }
  transport_ = std::make_unique<MemoryTransport>(layout_, schedule_, ranks_.data());
  for (const Phase& phase : schedule_.phases) {
    for (int64_t node = 0; phase.intra && node < schedule_.nodes; ++node) {
      node_phases_.push_back(std::make_unique<NodePhase>(layout_, schedule_, phase, ranks_.data(),
                                                         node * schedule_.local));
    }
  }
}

int Execution::useful_workers() const {
  const size_t moved = layout_.geometry.whole_bytes() * ranks_.size();
  return static_cast<int>(std::min({Cores(), ranks_.size(), 1 + moved / kBytesPerWorker}));
}

void Execution::Work(int worker) {
  const size_t n = ranks_.size();
  const size_t start = static_cast<size_t>(worker) * n / static_cast<size_t>(useful_workers());
  int idle = 0;
  while (!complete()) {
    bool any = false;
    for (size_t i = 0; i < n; ++i) any |= Advance((start + i) % n);
    if (any) {
      idle = 0;
    } else if (++idle > kSpins) {
      sched_yield();
    } else {
      Pause();
    }
  }
}

bool Execution::Advance(size_t rank) {
  RankState& state = ranks_[rank];
  if (state.busy.test_and_set(std::memory_order_acquire)) return false;
  bool any = false;
  while (AdvanceOnce(rank)) any = true;
  state.busy.clear(std::memory_order_release);
  return any;
}

// Called with the rank's lock held.
bool Execution::AdvanceOnce(size_t rank) {
  RankState& state = ranks_[rank];
  if (state.finished) return false;
  const int64_t round = state.progress.load(std::memory_order_acquire);
  if (round == schedule_.rounds) {
    if (!layout_.split && !transport_->Released(state.rank, round)) return false;
    Finish(rank);
    return true;
  }
  while (round >= schedule_.phases[state.phase].first_round + schedule_.phases[state.phase].times) {
    ++state.phase;
  }
  const Phase& phase = schedule_.phases[state.phase];
  return phase.intra ? RunNodePhase(rank, phase) : RunRound(rank, phase, round);
}

bool Execution::RunNodePhase(size_t rank, const Phase& phase) {
  const auto local = static_cast<size_t>(schedule_.local);
  const size_t node = rank / local;
  for (size_t r = node * local; r < (node + 1) * local; ++r) {
    if (ranks_[r].progress.load(std::memory_order_acquire) < phase.first_round) return false;
  }
  size_t before = 0;  // intra phases before this one
  for (const Phase* p = schedule_.phases.data(); p != &phase; ++p) before += p->intra ? 1 : 0;
  return node_phases_[before * static_cast<size_t>(schedule_.nodes) + node]->Work();
}

bool Execution::RunRound(size_t rank, const Phase& phase, int64_t round) {
  RankState& state = ranks_[rank];
  const int64_t node = state.rank / schedule_.local, index = state.rank % schedule_.local;
  const int64_t sender = phase.SenderTo(node, schedule_.nodes);
  if (sender >= 0) {
    const Message message{sender * schedule_.local + index, state.rank, round};
    if (!transport_->Arrived(message)) return false;
    if (!layout_.split && !transport_->Released(state.rank, round)) return false;
    const int64_t chunks = schedule_.chunks();
    const int64_t first = phase.FirstChunk(sender, round - phase.first_round, chunks);
    for (int64_t c = 0; c < phase.count; ++c) {
      const int64_t m = (first + c) % chunks;
      Receive(rank, phase, layout_.split ? m * schedule_.local + index : 0, message);
    }
  } else if (!layout_.split) {
    state.MoveTo(state.HomeOf(layout_, 0, round), layout_, 0, round);
  }
  state.progress.store(round + 1, std::memory_order_release);
  return true;
}

void Execution::Receive(size_t rank, const Phase& phase, int64_t chunk, const Message& message) {
  RankState& state = ranks_[rank];
  const View theirs = transport_->Chunk(message, chunk);
  const Home home = state.NextHome(layout_, chunk, message.round);
  const View to = state.In(home, layout_, chunk);
  if (phase.action == Action::kCopy) {
    Copy(to, theirs, false);
  } else {
    // In a combine both ends must fold in the same order to get the same bits.
    const View mine = state.At(layout_, chunk, message.round);
    const bool swap = phase.action == Action::kCombine && message.sender < message.receiver;
    const size_t count = to.row_bytes / layout_.geometry.item_bytes();
    for (size_t row = 0; row < to.rows; ++row) {
      const void* operands[2] = {mine.row(row), theirs.row(row)};
      if (swap) std::swap(operands[0], operands[1]);
      layout_.reduce(to.row(row), operands, 2, count);
    }
  }
  state.MoveTo(home, layout_, chunk, message.round);
}

// What the collective promises this rank must be in its output.
void Execution::Finish(size_t rank) {
  RankState& state = ranks_[rank];
  const bool one = layout_.collective == Collective::kReduceScatter;
  const int64_t begin = one ? state.rank : 0;
  const int64_t end = one ? begin + 1 : layout_.split ? schedule_.ranks() : 1;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    if (state.HomeOf(layout_, chunk, schedule_.rounds) == Home::kOut) continue;
    Copy(state.In(Home::kOut, layout_, chunk), state.At(layout_, chunk, schedule_.rounds),
         layout_.stream);
  }
  state.finished = true;
  finished_.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace pccl
