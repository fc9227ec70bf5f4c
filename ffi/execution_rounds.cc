// How a rank gets on with its schedule; the rest of Execution is in execution.cc.
#include <exception>
#include <utility>

#include "ffi/execution.h"
#include "kernels/copy.h"

namespace pccl {

bool Execution::Advance(size_t rank) {
  RankState& state = ranks_[rank];
  if (state.busy.test_and_set(std::memory_order_acquire)) return false;
  bool any = false;
  try {
    while (AdvanceOnce(rank)) any = true;
  } catch (const std::exception& e) {
    Fail(title_ + ": " + e.what());
  }
  state.busy.clear(std::memory_order_release);
  return any;
}

// Called with the rank's lock held.
bool Execution::AdvanceOnce(size_t rank) {
  RankState& state = ranks_[rank];
  if (state.finished) return false;
  const int64_t round = state.progress.load(std::memory_order_acquire);
  if (round == schedule_.rounds) {
    if (!AllSent(state.rank, round)) return false;
    Finish(rank);
    return true;
  }
  while (round >= schedule_.phases[state.phase].first_round + schedule_.phases[state.phase].times) {
    ++state.phase;
  }
  bool agrees = false;
  if (remote_ && !remote_->Ready(&agrees)) return agrees;
  const Phase& phase = schedule_.phases[state.phase];
  if (phase.vendor) return RunVendor(rank);
  return phase.intra ? RunNodePhase(rank, phase) : RunRound(rank, phase, round);
}

bool Execution::RunNodePhase(size_t rank, const Phase& phase) {
  const auto local = static_cast<size_t>(schedule_.local);
  const size_t node = rank / local;
  for (size_t r = node * local; r < (node + 1) * local; ++r) {
    const RankState& peer = ranks_[r];
    if (!peer.present()) continue;
    if (peer.progress.load(std::memory_order_acquire) < phase.first_round) return false;
  }
  size_t before = 0;  // intra phases before this one
  for (const Phase* p = schedule_.phases.data(); p != &phase; ++p) before += p->intra ? 1 : 0;
  NodePhase* here = node_phases_[before * static_cast<size_t>(schedule_.nodes) + node].get();
  if (here != nullptr) return here->Work();
  bool any = false;
  remote_->AdvanceNodePhase(phase, static_cast<int64_t>(node), &any);
  return any;
}

bool Execution::RunVendor(size_t rank) {
  const bool any = vendor_->Advance();
  if (!vendor_->complete()) return any;
  RankState& state = ranks_[rank];
  const int64_t chunks = layout_.split ? schedule_.ranks() : 1;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) state.MoveTo(Home::kOut, layout_, chunk, 0);
  state.progress.store(schedule_.rounds, std::memory_order_release);
  return true;
}

bool Execution::RunRound(size_t rank, const Phase& phase, int64_t round) {
  RankState& state = ranks_[rank];
  const int64_t node = state.rank / schedule_.local, index = state.rank % schedule_.local;
  const auto peer = [&](int64_t peer_node) { return peer_node * schedule_.local + index; };
  // Before this round's message is on its way: its own buffer is not in question.
  if (!layout_.split && state.posted <= round && !AllSent(state.rank, round)) return false;
  const int64_t to = phase.ReceiverFrom(node, schedule_.nodes);
  if (to >= 0 && state.posted <= round && !ranks_[static_cast<size_t>(peer(to))].present()) {
    state.posted = round + 1;
    remote_->transport()->Send({state.rank, peer(to), round},
                               MessageBytes(layout_, schedule_, state, round));
  }
  const int64_t from = phase.SenderTo(node, schedule_.nodes);
  if (from >= 0) {
    const bool near = ranks_[static_cast<size_t>(peer(from))].present();
    Transport* transport = near ? static_cast<Transport*>(&memory_) : remote_->transport();
    const Message message{peer(from), state.rank, round};
    const Delivery delivery = Receive(rank, phase, message, transport);
    if (delivery != Delivery::kAll) return delivery == Delivery::kSome;
  } else if (!layout_.split) {
    state.MoveTo(state.HomeOf(layout_, 0, round), layout_, 0, round);
  }
  state.progress.store(round + 1, std::memory_order_release);
  return true;
}

bool Execution::AllSent(int64_t rank, int64_t round) {
  if (!layout_.split && !memory_.Sent(rank, round)) return false;
  return !remote_ || remote_->transport() == nullptr || remote_->transport()->Sent(rank, round);
}

Delivery Execution::Receive(size_t rank, const Phase& phase, const Message& message,
                            Transport* transport) {
  RankState& state = ranks_[rank];
  ByteStream mine, target;
  const auto chunk_of = [&](int64_t m) {
    return layout_.split ? m * schedule_.local + state.rank % schedule_.local : 0;
  };
  const auto for_chunks = [&](auto&& f) {
    phase.ForChunks(message.sender / schedule_.local, message.round, schedule_.chunks(),
                    [&](int64_t m) { f(chunk_of(m)); });
  };
  for_chunks([&](int64_t chunk) {
    mine.Append(state.At(layout_, chunk, message.round));
    target.Append(state.In(state.NextHome(layout_, chunk, message.round), layout_, chunk));
  });
  const bool copies = phase.action == Action::kCopy;
  // In a combine both ends must fold in the same order to get the same bits.
  const bool theirs_first = phase.action == Action::kCombine && message.sender < message.receiver;
  Sink sink;
  sink.nbytes = target.nbytes();
  sink.place = [&](size_t begin, size_t end) {
    return copies ? target.Contiguous(begin, end) : nullptr;
  };
  sink.take = [&](size_t begin, size_t end, const char* data) {
    target.ForRuns(begin, end, [&](const ByteStream::Run& run, size_t offset) {
      if (copies) return Copy(target.at(run), data + offset, run.nbytes, false);
      const void* operands[2] = {mine.at(run), data + offset};
      if (theirs_first) std::swap(operands[0], operands[1]);
      layout_.reduce(target.at(run), operands, 2, run.nbytes / layout_.geometry.item_bytes());
    });
  };
  const Delivery delivery = transport->Receive(message, sink);
  if (delivery == Delivery::kAll) {
    for_chunks([&](int64_t chunk) {
      const Home home = state.NextHome(layout_, chunk, message.round);
      state.MoveTo(home, layout_, chunk, message.round);
    });
  }
  return delivery;
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
