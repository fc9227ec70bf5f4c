// Messages between processes through MPI.
#ifndef PCCL_FFI_TRANSPORT_MPI_H_
#define PCCL_FFI_TRANSPORT_MPI_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ffi/byte_stream.h"
#include "ffi/scratch.h"
#include "ffi/team.h"
#include "ffi/transport/transport.h"
#include "ffi/world.h"

namespace pccl {

// One per execution. A message is cut into segments, all posted at once, so that both directions
// of a link are busy and a segment is reduced while the next is on the wire. Segments of a message
// are cut at the same bytes on both sides; they travel from and to where the data lies if it is
// contiguous there. A method is called with the lock of the rank it is about.
class MpiTransport : public Transport {
 public:
  static constexpr size_t kSegmentBytes = size_t{256} << 10;

  // Messages use tags [first_tag, first_tag + team.width * team.width). Both must outlive this.
  MpiTransport(const World& world, const Team& team, int first_tag);
  ~MpiTransport() override;

  void Send(const Message& message, const ByteStream& bytes) override;
  bool Sent(int64_t rank, int64_t round) override;
  Delivery Receive(const Message& message, const Sink& sink) override;
  void Cancel() override;
  std::vector<int64_t> Awaited() const override;

 private:
  struct Segment {
    MpiLibrary::Handle request = 0;
    size_t begin = 0, end = 0;
    Scratch staged;  // empty where the data goes directly
  };
  struct Incoming {
    int64_t round = -1;
    std::vector<Segment> segments;
    size_t taken = 0;
  };

  void CancelReceives(Incoming* incoming);
  int Tag(const Message& message) const;
  int Peer(int64_t rank) const;
  void PostReceives(const Message& message, const Sink& sink, Incoming* incoming);

  const World& world_;
  const Team& team_;
  const int first_tag_;
  std::vector<std::vector<Segment>> sending_;  // by rank
  std::vector<Incoming> incoming_;             // by rank
  // By rank: whose message it waits for and who has not read its own; -1 for nobody. Read without
  // the rank's lock.
  std::vector<std::atomic<int64_t>> sender_to_, receiver_from_;
};

}  // namespace pccl

#endif  // PCCL_FFI_TRANSPORT_MPI_H_
