// The sizes of one call on a GPU, and where the executor keeps what in its scratch.
//
// The executor works on regular arrays: one chunk after the other, all of the same size, in order
// of schedule ranks. An array that is not (a later dimension, devices in another order than on the
// axis, a vector that does not divide) is brought into that form in scratch, by one pass over it.
#ifndef PCCL_FFI_GPU_PLAN_H_
#define PCCL_FFI_GPU_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "ffi/gpu/runtime.h"
#include "ffi/schedule.h"

namespace pccl::gpu {

struct Region {
  size_t begin = 0, nbytes = 0;
};

// Where the regions are, in this order; each begins at a multiple of 256 bytes.
struct Scratch {
  Region packed;    // the regular form of the larger array
  Region own;       // the chunks m * local + index of this rank, for every node m
  Region outgoing;  // a message whose chunks do not lie one after the other
  Region incoming;  // a message that is reduced, or whose chunks go to different places
  Region node;      // chunks in the order of a collective within the node
  Region exchange;  // what CollectByMessages wants: needed only where the library has no collective

  // With everything; the end of `node` suffices where nothing is exchanged.
  size_t nbytes() const { return exchange.begin + exchange.nbytes; }
};

// What the arrays of a call look like.
struct Shape {
  Collective collective = Collective::kAllGather;
  const int64_t* places = nullptr;  // schedule rank -> place on the axis
  int64_t rows = 1;                 // of a chunk inside the larger array
  size_t in_bytes = 0, out_bytes = 0;
  size_t item_bytes = 1;
};

struct Plan {
  size_t chunk_bytes = 0;  // of the whole vector where it travels whole
  bool regular = true;     // of the larger array
  Scratch scratch;

  // Returns an error text where the sizes contradict each other, or "".
  static std::string Make(const Schedule& schedule, const Shape& shape, Plan* plan);
};

// From the larger array as the caller has it to its regular form, and back.
void Pack(const Schedule& schedule, const Shape& shape, const Plan& plan, const char* whole,
          char* regular, Stream stream);
void Unpack(const Schedule& schedule, const Shape& shape, const Plan& plan, const char* regular,
            char* whole, Stream stream);

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_PLAN_H_
