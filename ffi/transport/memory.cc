#include "ffi/transport/memory.h"

#include <algorithm>

namespace pccl {

Delivery MemoryTransport::Receive(const Message& message, const Sink& sink) {
  const RankState& sender = ranks_[message.sender];
  if (sender.progress.load(std::memory_order_acquire) < message.round) return Delivery::kNothing;
  const ByteStream bytes = MessageBytes(layout_, schedule_, sender, message.round);
  bytes.ForRuns(0, bytes.nbytes(), [&](const ByteStream::Run& run, size_t offset) {
    sink.take(offset, offset + run.nbytes, bytes.at(run));
  });
  return Delivery::kAll;
}

bool MemoryTransport::Sent(int64_t rank, int64_t round) {
  const int64_t node = rank / schedule_.local, index = rank % schedule_.local;
  for (const Phase& phase : schedule_.phases) {
    if (phase.first_round >= round) break;
    const int64_t to = phase.intra ? -1 : phase.ReceiverFrom(node, schedule_.nodes);
    const RankState* receiver = to < 0 ? nullptr : &ranks_[to * schedule_.local + index];
    if (receiver == nullptr || !receiver->present()) continue;
    const int64_t done = std::min(round, phase.first_round + phase.times);
    if (receiver->progress.load(std::memory_order_acquire) < done) return false;
  }
  return true;
}

}  // namespace pccl
