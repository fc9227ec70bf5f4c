// How a message of a schedule gets from one rank of a group to another.
#ifndef PCCL_FFI_TRANSPORT_TRANSPORT_H_
#define PCCL_FFI_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ffi/byte_stream.h"

namespace pccl {

// The message that `sender` sends in `round`. Ranks are schedule ranks of one group.
struct Message {
  int64_t sender = 0;
  int64_t receiver = 0;
  int64_t round = 0;
};

// What the receiver does with the bytes of a message. Both functions may be called for any cut of
// the message, in order; bytes that went directly to their place are not handed to `take`.
struct Sink {
  size_t nbytes = 0;
  // Where bytes [begin, end) may be written as they come; nullptr where they may not.
  std::function<char*(size_t begin, size_t end)> place;
  std::function<void(size_t begin, size_t end, const char* data)> take;
};

enum class Delivery { kNothing, kSome, kAll };

// No method blocks. Called by whichever thread holds the lock of the rank in question. May throw
// std::runtime_error where the underlying library fails.
class Transport {
 public:
  virtual ~Transport() = default;

  // Starts sending; once per message. The bytes must stay valid and unchanged until Sent.
  virtual void Send(const Message& message, const ByteStream& bytes) = 0;
  // Whether everything that `rank` sent in rounds before `round` has been read, so that the
  // buffers it was sent from may be overwritten.
  virtual bool Sent(int64_t rank, int64_t round) = 0;
  // Hands to the sink what has come since the last call: kAll with the last byte.
  virtual Delivery Receive(const Message& message, const Sink& sink) = 0;
  // Gives up everything in flight: no buffer is written to afterwards.
  virtual void Cancel() {}
  // The ranks whose messages are missing, or who have not read ours.
  virtual std::vector<int64_t> Awaited() const { return {}; }
};

}  // namespace pccl

#endif  // PCCL_FFI_TRANSPORT_TRANSPORT_H_
