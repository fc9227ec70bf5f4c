#include "ffi/transport/memory.h"

#include <algorithm>

namespace pccl {

bool MemoryTransport::Arrived(const Message& message) {
  return ranks_[message.sender].progress.load(std::memory_order_acquire) >= message.round;
}

View MemoryTransport::Chunk(const Message& message, int64_t chunk) {
  return ranks_[message.sender].At(layout_, chunk, message.round);
}

bool MemoryTransport::Released(int64_t rank, int64_t round) {
  const int64_t node = rank / schedule_.local, index = rank % schedule_.local;
  for (const Phase& phase : schedule_.phases) {
    if (phase.first_round >= round) break;
    const int64_t to = phase.intra ? -1 : phase.ReceiverFrom(node, schedule_.nodes);
    if (to < 0) continue;
    const int64_t done = std::min(round, phase.first_round + phase.times);
    const RankState& receiver = ranks_[to * schedule_.local + index];
    if (receiver.progress.load(std::memory_order_acquire) < done) return false;
  }
  return true;
}

}  // namespace pccl
