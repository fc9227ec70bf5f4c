#include "kernels/reduce.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/copy.h"
#include "kernels/reduce_dispatch.h"
#include "kernels/reduce_ops.h"

// Tells the vectoriser that no iteration reads what another one wrote: dst equals a source or
// overlaps none. GCC would then unroll tiles in full, for twice the code and no gain.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // a hint: some loops do not pay
#define PCCL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define PCCL_INDEPENDENT _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#endif

#if defined(__x86_64__)
#include "kernels/reduce_f16c.h"
#define PCCL_HAS_AVX2 1
#else
#define PCCL_HAS_AVX2 0
#endif

namespace pccl {
namespace kernels {
namespace {

// Bytes of accumulators per pass over the sources. Small, so that the sources are read side by side
// and the hardware prefetches all of them: twice as fast from memory as 4 KiB of each in turn.
constexpr size_t kTileBytes = 512;

// Bytes of a reduced block, which must still be in the first-level cache for the last destination.
constexpr size_t kResultBytes = 8192;

template <class Codec, class Operator, int kSources>
PCCL_INLINE void FoldFixed(void* dst, const void* const* srcs, size_t count) {
  const void* src[kSources];
  for (int j = 0; j < kSources; ++j) src[j] = srcs[j];
  using Wire = typename Codec::Wire;
  PCCL_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    auto acc = Codec::Decode(Load<Wire>(src[0], i));
#pragma GCC unroll 8
    for (int j = 1; j < kSources; ++j) acc = Operator()(acc, Codec::Decode(Load<Wire>(src[j], i)));
    Store<Wire>(dst, i, Codec::Encode(acc));
  }
}

// All sources of a tile are read before it is written, so dst may equal any of them. `n` is a
// constant where it matters, for full tiles.
template <class Codec, class Operator>
PCCL_INLINE void FoldTile(void* dst, const void* const* srcs, int k, size_t begin, size_t n) {
  using Wire = typename Codec::Wire;
  typename Codec::Acc acc[kTileBytes / sizeof(typename Codec::Acc)];
  PCCL_INDEPENDENT
  for (size_t i = 0; i < n; ++i) acc[i] = Codec::Decode(Load<Wire>(srcs[0], begin + i));
  for (int j = 1; j < k; ++j) {
    const void* src = srcs[j];
    PCCL_INDEPENDENT
    for (size_t i = 0; i < n; ++i) {
      acc[i] = Operator()(acc[i], Codec::Decode(Load<Wire>(src, begin + i)));
    }
    // Keeps the compiler from jamming the loops into one that it cannot vectorise.
    __asm__ volatile("" ::: "memory");
  }
  PCCL_INDEPENDENT
  for (size_t i = 0; i < n; ++i) Store<Wire>(dst, begin + i, Codec::Encode(acc[i]));
}

template <class Codec, class Operator>
PCCL_INLINE void FoldAny(void* dst, const void* const* srcs, int k, size_t count) {
  constexpr size_t kTile = kTileBytes / sizeof(typename Codec::Acc);
  size_t begin = 0;
  for (; begin + kTile <= count; begin += kTile) {
    FoldTile<Codec, Operator>(dst, srcs, k, begin, kTile);
  }
  FoldTile<Codec, Operator>(dst, srcs, k, begin, count - begin);
}

template <class Codec, class Operator, int kSources>
PCCL_INLINE void FoldSpecial(void* dst, const void* const* srcs, size_t count) {
  if constexpr (std::is_same_v<Codec, Bfloat16>) {
    FoldFixed<Bfloat16Pair, Operator, kSources>(dst, srcs, count / 2);
    if (count % 2 != 0) FoldTile<Bfloat16, Operator>(dst, srcs, kSources, count - 1, 1);
  } else {
    FoldFixed<Codec, Operator, kSources>(dst, srcs, count);
  }
}

template <class Codec, class Operator, bool kSpecialize>
PCCL_INLINE void Fold(void* dst, const void* const* srcs, int k, size_t count) {
  if (k == 1) return CopyOne(dst, srcs[0], count * sizeof(typename Codec::Wire));
  if constexpr (kSpecialize) {
    if (k == 2) return FoldSpecial<Codec, Operator, 2>(dst, srcs, count);
    if (k == 3) return FoldSpecial<Codec, Operator, 3>(dst, srcs, count);
    if (k == 4) return FoldSpecial<Codec, Operator, 4>(dst, srcs, count);
    if (k == 8) return FoldSpecial<Codec, Operator, 8>(dst, srcs, count);
  }
  FoldAny<Codec, Operator>(dst, srcs, k, count);
}

// Where there is AVX2, this serves machines from before 2013: not worth the code of specialising.
template <class Codec, class Operator>
void FoldPortable(void* dst, const void* const* srcs, int k, size_t count) {
  Fold<Codec, Operator, !PCCL_HAS_AVX2>(dst, srcs, k, count);
}

#if PCCL_HAS_AVX2
// Without "fma" there is no instruction for a compiler to contract a product and a sum into.
template <class Codec, class Operator>
__attribute__((target("avx2"))) void FoldAvx2(void* dst, const void* const* srcs, int k,
                                              size_t count) {
  Fold<Codec, Operator, true>(dst, srcs, k, count);
}
#endif

template <class Codec, class Operator>
ReduceFn Pick(Isa isa) {
#if PCCL_HAS_AVX2
  constexpr bool kConvertsF16 = std::is_same_v<Codec, Float16>;
  if constexpr (kConvertsF16) {
    if (isa == Isa::kAvx2) return FoldF16<Operator>;
  } else {
    if (isa == Isa::kAvx2) return FoldAvx2<Codec, Operator>;
  }
#endif
  static_cast<void>(isa);
  return FoldPortable<Codec, Operator>;
}

struct Picker {
  Isa isa;

  template <class Codec, class Operator>
  ReduceFn Visit() const {
    return Pick<Codec, Operator>(isa);
  }
};

bool AnyInPlace(void* const* dsts, int num_dst, const void* const* srcs, int k) {
  return std::any_of(dsts, dsts + num_dst,
                     [=](void* dst) { return std::find(srcs, srcs + k, dst) != srcs + k; });
}

}  // namespace
}  // namespace kernels

Isa BestIsa() {
#if PCCL_HAS_AVX2
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (has_avx2) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

ReduceFn FindReduce(DType dtype, Op op) { return FindReduce(dtype, op, BestIsa()); }

ReduceFn FindReduce(DType dtype, Op op, Isa isa) {
  return kernels::Dispatch<ReduceFn>(dtype, op, kernels::Picker{isa}, nullptr);
}

void ReduceBroadcast(ReduceFn fn, size_t item_size, void* const* dsts, int num_dst,
                     const void* const* srcs, int k, size_t count, bool stream) {
  if (num_dst == 1 && !stream) return fn(dsts[0], srcs, k, count);
  // The lines of a source are in the cache: there a regular store is free, and streaming evicts
  // them.
  stream = stream && !kernels::AnyInPlace(dsts, num_dst, srcs, k);
  alignas(64) char result[kernels::kResultBytes];
  const size_t block = sizeof result / item_size;
  std::vector<const void*> pieces(srcs, srcs + k);
  for (size_t begin = 0; begin < count; begin += block) {
    const size_t n = std::min(block, count - begin);
    const size_t offset = begin * item_size;
    for (int j = 0; j < k; ++j)
      pieces[static_cast<size_t>(j)] = static_cast<const char*>(srcs[j]) + offset;
    fn(result, pieces.data(), k, n);
    for (int j = 0; j < num_dst; ++j) {
      CopyUnfenced(static_cast<char*>(dsts[j]) + offset, result, n * item_size, stream);
    }
  }
  if (stream) StreamFence();
}

}  // namespace pccl
