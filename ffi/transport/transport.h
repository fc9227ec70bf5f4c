// How a message of a schedule gets from one rank of a group to another.
#ifndef PCCL_FFI_TRANSPORT_TRANSPORT_H_
#define PCCL_FFI_TRANSPORT_TRANSPORT_H_

#include <cstdint>

#include "ffi/geometry.h"

namespace pccl {

// Ranks are schedule ranks of one group.
struct Message {
  int64_t sender = 0;
  int64_t receiver = 0;
  int64_t round = 0;
};

// No method blocks. Called by whichever thread holds the lock of the rank in question.
class Transport {
 public:
  virtual ~Transport() = default;

  // Whether the whole message can be read through Chunk().
  virtual bool Arrived(const Message& message) = 0;
  // One chunk of an arrived message; readable until the receiver completes the round.
  virtual View Chunk(const Message& message, int64_t chunk) = 0;
  // Whether everything that `rank` sent in rounds before `round` has been read, so that the
  // buffers it was sent from may be overwritten.
  virtual bool Released(int64_t rank, int64_t round) = 0;
};

}  // namespace pccl

#endif  // PCCL_FFI_TRANSPORT_TRANSPORT_H_
