// Reductions of k vectors into one, on the CPU.
//
// Every function here is thread-safe, keeps no state, allocates nothing and returns when done.
// Buffers belong to the caller. Results depend on the values alone: they are bit-identical whatever
// the instruction set, the alignment, the position of an element or the cut into segments, NaNs
// included (a sum or product that is NaN is the canonical quiet NaN).

#ifndef PCCL_KERNELS_REDUCE_H_
#define PCCL_KERNELS_REDUCE_H_

#include <cstddef>

#include "kernels/types.h"

namespace pccl {

// dst[i] = (..(srcs[0][i] op srcs[1][i]) op ..) op srcs[k-1][i] for i < count, k >= 1.
//
// dst may be equal to any of srcs; otherwise it overlaps none of them. No alignment is assumed.
// float16 and bfloat16 are accumulated in float32 and rounded once, to nearest even. Integers wrap.
// Max and min are IEEE 754-2019 maximum and minimum: NaN if any is NaN, and -0 < +0. Booleans are
// bytes of value 0 or 1: sum and max are "or", product and min are "and". One vector (k = 1) is
// copied as it is.
using ReduceFn = void (*)(void* dst, const void* const* srcs, int k, size_t count);

// Instruction sets that kernels are compiled for. kAvx2 includes F16C. AVX-512 is left out: sums of
// AVX2 are already twice as fast as memory.
enum class Isa { kPortable, kAvx2 };

// The best one that this machine runs.
Isa BestIsa();

// The kernel, or nullptr where there is none (max and min of complex numbers, unknown codes).
ReduceFn FindReduce(DType dtype, Op op);

// The same for a given instruction set, which the machine must have; for tests and benchmarks.
ReduceFn FindReduce(DType dtype, Op op, Isa isa);

// Writes the reduction of srcs[0..k) to each of dsts[0..num_dst), each source read once: what an
// all-reduce within one process does. `fn` must be of a type of `item_size` bytes. Any source may
// be equal to any destination. `stream` asks for non-temporal stores, for results too large to stay
// in the cache; they are visible to other threads when the call returns.
void ReduceBroadcast(ReduceFn fn, size_t item_size, void* const* dsts, int num_dst,
                     const void* const* srcs, int k, size_t count, bool stream);

}  // namespace pccl

#endif  // PCCL_KERNELS_REDUCE_H_
