// Sum and product of float16 by the conversion instructions of F16C; private to reduce.cc.
//
// The only intrinsics among the reductions: compilers do not vectorise these conversions, and the
// arithmetic ones of Float16 (reduce_ops.h) run at a third of the speed of memory.

#ifndef PCCL_KERNELS_REDUCE_F16C_H_
#define PCCL_KERNELS_REDUCE_F16C_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/reduce_ops.h"

#define PCCL_F16C __attribute__((target("avx2,f16c")))

namespace pccl::kernels {

constexpr size_t kF16Lanes = 8;

PCCL_F16C PCCL_INLINE __m256 LoadF16(const void* base, size_t i) {
  const char* p = static_cast<const char*>(base) + i * sizeof(uint16_t);
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// NaN becomes the same one that Float16::Encode gives.
PCCL_F16C PCCL_INLINE void StoreF16(void* base, size_t i, __m256 x) {
  const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  const __m256 clean = _mm256_blendv_ps(x, nan, is_nan);
  char* p = static_cast<char*>(base) + i * sizeof(uint16_t);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT));
}

template <class Operator>
PCCL_F16C PCCL_INLINE __m256 Combine(__m256 a, __m256 b) {
  if constexpr (std::is_same_v<Operator, Sum>) {
    return _mm256_add_ps(a, b);
  } else {
    static_assert(std::is_same_v<Operator, Prod>);
    return _mm256_mul_ps(a, b);
  }
}

// Folds kVectors vectors from element i on, in registers, for any number of sources.
template <class Operator, size_t kVectors>
PCCL_F16C PCCL_INLINE void FoldVectors(void* dst, const void* const* srcs, int k, size_t i) {
  __m256 acc[kVectors];
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) acc[v] = LoadF16(srcs[0], i + v * kF16Lanes);
  for (int j = 1; j < k; ++j) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      acc[v] = Combine<Operator>(acc[v], LoadF16(srcs[j], i + v * kF16Lanes));
    }
  }
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) StoreF16(dst, i + v * kF16Lanes, acc[v]);
}

// The last elements, fewer than a vector, by way of padded vectors.
template <class Operator>
PCCL_F16C PCCL_INLINE void FoldLast(void* dst, const void* const* srcs, int k, size_t i, size_t n) {
  const size_t offset = i * sizeof(uint16_t), nbytes = n * sizeof(uint16_t);
  uint16_t lanes[kF16Lanes] = {};
  std::memcpy(lanes, static_cast<const char*>(srcs[0]) + offset, nbytes);
  __m256 acc = LoadF16(lanes, 0);
  for (int j = 1; j < k; ++j) {
    std::memcpy(lanes, static_cast<const char*>(srcs[j]) + offset, nbytes);
    acc = Combine<Operator>(acc, LoadF16(lanes, 0));
  }
  StoreF16(lanes, 0, acc);
  std::memcpy(static_cast<char*>(dst) + offset, lanes, nbytes);
}

template <class Operator>
PCCL_F16C void FoldF16(void* dst, const void* const* srcs, int k, size_t count) {
  if (k == 1) return CopyOne(dst, srcs[0], count * sizeof(uint16_t));
  constexpr size_t kUnroll = 4;
  size_t i = 0;
  for (; i + kUnroll * kF16Lanes <= count; i += kUnroll * kF16Lanes) {
    FoldVectors<Operator, kUnroll>(dst, srcs, k, i);
  }
  for (; i + kF16Lanes <= count; i += kF16Lanes) FoldVectors<Operator, 1>(dst, srcs, k, i);
  if (i < count) FoldLast<Operator>(dst, srcs, k, i, count - i);
}

}  // namespace pccl::kernels

#undef PCCL_F16C

#endif  // PCCL_KERNELS_REDUCE_F16C_H_
