// The kernel that folds k vectors into one, block by block, and its launch.
//
// One kernel serves all calls: a plain reduction is a matrix of one block, a permutation the fold
// of one source. Nothing is __restrict__: dst may be a source, and loads through the read-only
// cache, which __restrict__ would allow, are undefined then. Each thread reads all that it needs of
// an element, or of a batch of vectors, before it writes there, and no other thread reads it.

#ifndef PCCL_KERNELS_GPU_FOLD_KERNEL_H_
#define PCCL_KERNELS_GPU_FOLD_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/codecs.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/port.h"

namespace pccl::kernels {

constexpr unsigned kThreads = 256;

// The widest access there is.
struct alignas(16) Vector {
  uint32_t word[4];
};

template <class Wire>
struct Items {
  static constexpr size_t kCount = sizeof(Vector) / sizeof(Wire);
  Wire item[kCount];
};

template <int kSources>
struct Pointers {
  const char* src[kSources];
};

// A rows x cols matrix of blocks of `count` items, row by row in the sources and column by column
// in the destination.
struct Blocks {
  int64_t rows, cols;
  size_t count;
};

// About eight loads are in flight for each thread, whatever the number of sources.
template <int kSources>
constexpr int kBatch = kSources <= 2   ? 4
                       : kSources <= 4 ? 2
                                       : 1;

template <class Codec, class Operator, int kSources>
PCCL_GPU_INLINE typename Codec::Wire FoldItem(const typename Codec::Wire* in) {
  typename Codec::Acc acc = Codec::Decode(in[0]);
#pragma unroll
  for (int j = 1; j < kSources; ++j) acc = Operator()(acc, Codec::Decode(in[j]));
  return Codec::Encode(acc);
}

template <class Codec, class Operator, int kSources>
PCCL_GPU_INLINE Vector FoldVector(const Vector* in) {
  using Wire = typename Codec::Wire;
  Items<Wire> items[kSources], result;
#pragma unroll
  for (int j = 0; j < kSources; ++j) items[j] = BitCast<Items<Wire>>(in[j]);
#pragma unroll
  for (size_t e = 0; e < Items<Wire>::kCount; ++e) {
    Wire column[kSources];
#pragma unroll
    for (int j = 0; j < kSources; ++j) column[j] = items[j].item[e];
    result.item[e] = FoldItem<Codec, Operator, kSources>(column);
  }
  return BitCast<Vector>(result);
}

// Vectors first, first + blockDim.x, ... (kNum of them), all read before the first is written.
template <class Codec, class Operator, int kSources, int kNum>
PCCL_GPU_INLINE void FoldBatch(char* dst, const Pointers<kSources>& from, size_t first) {
  Vector in[kNum][kSources];
#pragma unroll
  for (int v = 0; v < kNum; ++v) {
#pragma unroll
    for (int j = 0; j < kSources; ++j) {
      in[v][j] = reinterpret_cast<const Vector*>(from.src[j])[first + v * blockDim.x];
    }
  }
#pragma unroll
  for (int v = 0; v < kNum; ++v) {
    reinterpret_cast<Vector*>(dst)[first + v * blockDim.x] =
        FoldVector<Codec, Operator, kSources>(in[v]);
  }
}

// All pointers are multiples of 16 bytes.
template <class Codec, class Operator, int kSources>
PCCL_GPU_INLINE void FoldVectors(char* dst, const Pointers<kSources>& from, size_t num_vectors) {
  constexpr int kNum = kBatch<kSources>;
  const size_t tile = size_t{blockDim.x} * kNum;
  for (size_t begin = blockIdx.x * tile; begin < num_vectors; begin += gridDim.x * tile) {
    const size_t first = begin + threadIdx.x;
    if (begin + tile <= num_vectors) {
      FoldBatch<Codec, Operator, kSources, kNum>(dst, from, first);
    } else {
      for (size_t v = first; v < num_vectors; v += blockDim.x) {
        FoldBatch<Codec, Operator, kSources, 1>(dst, from, v);
      }
    }
  }
}

// Items [0, head) and those from `head` + `skip` on, `num` in all; byte by byte where an item does
// not lie as its type wants.
template <class Codec, class Operator, int kSources, bool kAligned>
PCCL_GPU_INLINE void FoldItems(char* dst, const Pointers<kSources>& from, size_t head, size_t skip,
                               size_t num) {
  using Wire = typename Codec::Wire;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t e = size_t{blockIdx.x} * blockDim.x + threadIdx.x; e < num; e += step) {
    const size_t i = e < head ? e : e + skip;
    Wire in[kSources];
#pragma unroll
    for (int j = 0; j < kSources; ++j) {
      in[j] = kAligned ? reinterpret_cast<const Wire*>(from.src[j])[i] : Load<Wire>(from.src[j], i);
    }
    const Wire result = FoldItem<Codec, Operator, kSources>(in);
    if (kAligned) {
      reinterpret_cast<Wire*>(dst)[i] = result;
    } else {
      Store<Wire>(dst, i, result);
    }
  }
}

// The items before the first multiple of 16 bytes; all of them where that is not the same item, or
// in the midst of one, in some vector.
template <class Wire, int kSources>
PCCL_GPU_INLINE size_t HeadOf(const char* dst, const Pointers<kSources>& from, size_t count) {
  const uintptr_t to = reinterpret_cast<uintptr_t>(dst);
  const size_t nbytes = (0 - to) % sizeof(Vector);
  uintptr_t differs = nbytes % sizeof(Wire);
#pragma unroll
  for (int j = 0; j < kSources; ++j) {
    differs |= (reinterpret_cast<uintptr_t>(from.src[j]) ^ to) % sizeof(Vector);
  }
  return differs != 0 || nbytes / sizeof(Wire) > count ? count : nbytes / sizeof(Wire);
}

template <class Wire, int kSources>
PCCL_GPU_INLINE bool ItemsAreAligned(const char* dst, const Pointers<kSources>& from) {
  uintptr_t all = reinterpret_cast<uintptr_t>(dst);
#pragma unroll
  for (int j = 0; j < kSources; ++j) all |= reinterpret_cast<uintptr_t>(from.src[j]);
  return all % alignof(Wire) == 0;
}

template <class Codec, class Operator, int kSources>
PCCL_GPU_INLINE void FoldBlock(char* dst, const Pointers<kSources>& from, size_t count) {
  using Wire = typename Codec::Wire;
  const size_t head = HeadOf<Wire>(dst, from, count);
  const size_t num_vectors = (count - head) / Items<Wire>::kCount;
  const size_t skip = num_vectors * Items<Wire>::kCount;
  if (num_vectors > 0) {
    Pointers<kSources> body;
#pragma unroll
    for (int j = 0; j < kSources; ++j) body.src[j] = from.src[j] + head * sizeof(Wire);
    FoldVectors<Codec, Operator>(dst + head * sizeof(Wire), body, num_vectors);
  }
  if (ItemsAreAligned<Wire>(dst, from)) {
    FoldItems<Codec, Operator, kSources, true>(dst, from, head, skip, count - skip);
  } else {
    FoldItems<Codec, Operator, kSources, false>(dst, from, head, skip, count - skip);
  }
}

// Threads along x share a block, those along y and the grid's y take blocks in turn.
template <class Codec, class Operator, int kSources>
__global__ void __launch_bounds__(kThreads)
    FoldKernel(char* dst, Pointers<kSources> from, Blocks blocks) {
  const size_t nbytes = blocks.count * sizeof(typename Codec::Wire);
  const int64_t num_blocks = blocks.rows * blocks.cols;
  const int64_t step = int64_t{gridDim.y} * blockDim.y;
  for (int64_t b = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; b < num_blocks; b += step) {
    const int64_t source = b % blocks.rows * blocks.cols + b / blocks.rows;
    Pointers<kSources> block;
#pragma unroll
    for (int j = 0; j < kSources; ++j) {
      block.src[j] = from.src[j] + static_cast<size_t>(source) * nbytes;
    }
    FoldBlock<Codec, Operator>(dst + static_cast<size_t>(b) * nbytes, block, blocks.count);
  }
}

struct Launch {
  void* dst;
  const void* const* srcs;
  Blocks blocks;
  void* stream;

  template <class Codec, class Operator, int kSources>
  int Run() const {
    if (blocks.rows == 0 || blocks.cols == 0 || blocks.count == 0) return PCCL_GPU_OK;
    constexpr size_t kBytesEach = sizeof(Vector) * kBatch<kSources>;
    constexpr size_t kMaxGridX = size_t{1} << 20, kMaxGridY = 65535;
    const size_t nbytes = blocks.count * sizeof(typename Codec::Wire);
    const size_t work = (nbytes + kBytesEach - 1) / kBytesEach;
    unsigned x = 1;
    while (x < kThreads && x < work) x *= 2;
    const unsigned y = kThreads / x;
    const size_t grid_x = (work + x - 1) / x;
    const size_t grid_y = (static_cast<size_t>(blocks.rows * blocks.cols) + y - 1) / y;
    const dim3 grid(static_cast<unsigned>(grid_x < kMaxGridX ? grid_x : kMaxGridX),
                    static_cast<unsigned>(grid_y < kMaxGridY ? grid_y : kMaxGridY));
    Pointers<kSources> from;
    for (int j = 0; j < kSources; ++j) from.src[j] = static_cast<const char*>(srcs[j]);
    PCCL_GPU_LAUNCH((FoldKernel<Codec, Operator, kSources>), grid, dim3(x, y), stream,
                    static_cast<char*>(dst), from, blocks);
    return PCCL_GPU_LAST_ERROR();
  }
};

}  // namespace pccl::kernels

#endif  // PCCL_KERNELS_GPU_FOLD_KERNEL_H_
