// How the ranks of a set reach each other: NCCL, or MPI for whatever NCCL does not.
#ifndef PCCL_FFI_GPU_COMMUNICATOR_H_
#define PCCL_FFI_GPU_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ffi/gpu/runtime.h"
#include "ffi/schedule.h"
#include "kernels/types.h"

namespace pccl::gpu {

// How values are reduced; of an all-gather it says nothing.
struct Arithmetic {
  DType dtype = DType::kUint8;
  Op op = Op::kSum;
};

// Enqueues what is done with bytes [begin, begin + nbytes) of a message that has come.
using Arrived = std::function<void(size_t begin, size_t nbytes, Stream stream)>;

struct Transfer {
  int64_t peer = 0;
  char* data = nullptr;
  size_t nbytes = 0;
  // Of what is received; may be empty. Called piece by piece, in order, each as soon as the same
  // bytes of all receives before this one in the list have come as well.
  Arrived arrived = nullptr;
  // Whether it writes to where the same bytes of what is sent come from; to others it never does.
  bool in_place = false;
};

// One collective on contiguous buffers among n ranks. All-gather: `nbytes` in, n times as many out,
// in order of ranks. Reduce-scatter: n times `nbytes` in, `nbytes` out. All-reduce: `nbytes` both.
// The smaller array may lie in its place within the larger, and an all-reduce may be in place.
struct Job {
  const char* in = nullptr;
  char* out = nullptr;
  size_t nbytes = 0;
};

// Of one device. Its members are the ranks of a node, or the rank-aligned ones of all nodes,
// numbered from 0. Every member makes the same calls in the same order. Buffers are the device's
// and must stay valid until the stream has passed. Methods throw std::runtime_error. Whether a
// method waits for the other members or only enqueues is up to the library; where it waits, that
// has an end.
class Communicator {
 public:
  Communicator(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }

  // One round of messages. A member sends as many bytes to a peer, maybe none, as that peer
  // receives from it; no pair has two messages in a round. Later work in the stream finds all of
  // them done.
  virtual void Exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives,
                        Stream stream) = 0;

  // Whether the library has this collective, with our rules for rounding, NaN and booleans.
  virtual bool Collects(Collective collective, const Arithmetic& arithmetic) const;
  // Several at once. Only where Collects().
  virtual void Collect(Collective collective, const std::vector<Job>& jobs,
                       const Arithmetic& arithmetic, Stream stream);
  // Whether it only enqueues, so that its calls may be recorded in a graph.
  virtual bool Capturable() const = 0;
  // What has gone wrong since, with what was enqueued: an error text, or "". From any thread.
  virtual std::string Trouble() const { return ""; }

  // The calls from now on belong to this collective of the program: every member says the same
  // number. Where programs run in another order elsewhere their messages are not mistaken for ours.
  void Serve(uint64_t call) { call_ = call; }

 protected:
  uint64_t call() const { return call_; }

 private:
  const int64_t rank_, size_;
  uint64_t call_ = 0;
};

// Bytes of scratch that CollectByMessages uses.
size_t MessageScratchBytes(Collective collective, int64_t size, size_t nbytes);

// A collective made of one or two rounds of messages and our kernels. All members get the same
// bits.
void CollectByMessages(Communicator* communicator, Collective collective, const Job& job,
                       const Arithmetic& arithmetic, char* scratch, Stream stream);

// dst = sources[0] op sources[1] op ..., `nbytes` each; dst may be any of them. More sources than a
// kernel takes are reduced in batches, whose results are kept in `partial`; it may be a source of
// the first batch. One source is copied.
void Reduce(const Arithmetic& arithmetic, char* dst, const std::vector<const char*>& sources,
            size_t nbytes, char* partial, Stream stream);

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_COMMUNICATOR_H_
