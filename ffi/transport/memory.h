// Ranks of one process: a message is the sender's buffer, read where it lies.
#ifndef PCCL_FFI_TRANSPORT_MEMORY_H_
#define PCCL_FFI_TRANSPORT_MEMORY_H_

#include "ffi/rank_state.h"
#include "ffi/schedule.h"
#include "ffi/transport/transport.h"

namespace pccl {

// Sending costs nothing: a rank that has completed `round` rounds has thereby posted the
// messages of that round. The schedule's contract keeps what was posted unchanged: a copied
// chunk is final and a reduced one was given away.
class MemoryTransport : public Transport {
 public:
  // All three must outlive the transport.
  MemoryTransport(const Layout& layout, const Schedule& schedule, const RankState* ranks)
      : layout_(layout), schedule_(schedule), ranks_(ranks) {}

  void Send(const Message&, const ByteStream&) override {}
  bool Sent(int64_t rank, int64_t round) override;
  Delivery Receive(const Message& message, const Sink& sink) override;

 private:
  const Layout& layout_;
  const Schedule& schedule_;
  const RankState* ranks_;
};

}  // namespace pccl

#endif  // PCCL_FFI_TRANSPORT_MEMORY_H_
