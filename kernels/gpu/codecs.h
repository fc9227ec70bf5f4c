// Codecs that only the GPU kernels have, and the ones that its instructions replace.

#ifndef PCCL_KERNELS_GPU_CODECS_H_
#define PCCL_KERNELS_GPU_CODECS_H_

#include <cstdint>

#include "kernels/gpu/port.h"
#include "kernels/reduce_ops.h"

namespace pccl::kernels {

// An 8-bit float: sign, exponent of the given bias, kMantissa bits. kOverflow is the code of what
// is too large to hold: infinity, or NaN where the type has no infinity (OCP 8-bit floating point
// specification 1.0). Its conversions are exact integer and float arithmetic on every device: the
// instructions of sm_89 saturate instead.
template <int kMantissa, int kBias, uint8_t kOverflow, uint8_t kNan>
struct Float8 {
  using Wire = uint8_t;
  using Acc = float;
  static constexpr int kShift = 23 - kMantissa;
  static constexpr uint32_t kMantissaMask = (1u << kMantissa) - 1;
  static constexpr uint32_t kRebias = 127 - kBias;
  static constexpr uint32_t kSmallestNormal = (kRebias + 1) << 23;
  // The float whose last bit weighs as much as the last bit of a subnormal: adding it rounds.
  static constexpr uint32_t kAlign = (kRebias + 1 + kShift) << 23;

  static PCCL_INLINE Acc Decode(Wire x) {
    const uint32_t magnitude = x & 0x7fu;
    uint32_t bits = (magnitude << kShift) + (kRebias << 23);
    if (magnitude <= kMantissaMask) {
      bits = BitCast<uint32_t>(BitCast<float>(kAlign | magnitude) - BitCast<float>(kAlign));
    }
    if (magnitude >= kOverflow) bits = 0x7f800000u | ((magnitude & kMantissaMask) << kShift);
    return BitCast<float>(bits | (uint32_t{x} & 0x80u) << 24);
  }

  static PCCL_INLINE Wire Encode(Acc x) {
    const uint32_t bits = BitCast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
    const uint32_t half = ((1u << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1u);
    uint32_t code = ((magnitude + half) >> kShift) - (kRebias << kMantissa);
    if (magnitude < kSmallestNormal) {
      code = BitCast<uint32_t>(BitCast<float>(magnitude) + BitCast<float>(kAlign)) - kAlign;
    } else if (code > kOverflow) {
      code = kOverflow;
    }
    if (magnitude > 0x7f800000u) code = kNan;
    return static_cast<Wire>(code | ((bits >> 24) & 0x80u));
  }
};

using Float8E4M3fn = Float8<3, 7, 0x7f, 0x7f>;
using Float8E5M2 = Float8<2, 15, 0x7c, 0x7e>;

// The codec that does the same as Codec with the instructions of the device, where there are some.
template <class Codec>
struct Native {
  using type = Codec;
};

#if defined(PCCL_GPU_CUDA)

struct CudaFloat16 {
  using Wire = uint16_t;
  using Acc = float;
  static PCCL_GPU_INLINE Acc Decode(Wire x) { return __half2float(__ushort_as_half(x)); }
  static PCCL_GPU_INLINE Wire Encode(Acc x) { return __half_as_ushort(__float2half_rn(x)); }
};

struct CudaBfloat16 {
  using Wire = uint16_t;
  using Acc = float;
  static PCCL_GPU_INLINE Acc Decode(Wire x) { return Bfloat16::Decode(x); }
  static PCCL_GPU_INLINE Wire Encode(Acc x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
};

template <>
struct Native<Float16> {
  using type = CudaFloat16;
};
template <>
struct Native<Bfloat16> {
  using type = CudaBfloat16;
};

#endif

}  // namespace pccl::kernels

#endif  // PCCL_KERNELS_GPU_CODECS_H_
