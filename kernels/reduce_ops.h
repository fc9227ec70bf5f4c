// Codecs and operators that the reduction kernels are made of; private to the kernels,
// those of the CPU and those of the GPU.
//
// A codec says how an element lies in memory (Wire), what it is folded as (Acc), and how to go from
// one to the other. All is branch-free and without calls, so that the loops over it vectorise.

#ifndef PCCL_KERNELS_REDUCE_OPS_H_
#define PCCL_KERNELS_REDUCE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

// Inlining into the function of each instruction set is what compiles the code for it.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define PCCL_INLINE __host__ __device__ __attribute__((always_inline)) inline
#else
#define PCCL_INLINE __attribute__((always_inline)) inline
#endif

namespace pccl::kernels {

template <class To, class From>
PCCL_INLINE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// memcpy, because a buffer of a rank need not be aligned nor hold objects of the type.
template <class T>
PCCL_INLINE T Load(const void* base, size_t i) {
  T value;
  __builtin_memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
PCCL_INLINE void Store(void* base, size_t i, T value) {
  __builtin_memcpy(static_cast<char*>(base) + i * sizeof(T), &value, sizeof(T));
}

// The fold of one vector.
PCCL_INLINE void CopyOne(void* dst, const void* src, size_t nbytes) {
  if (dst != src && nbytes > 0) __builtin_memcpy(dst, src, nbytes);
}

// The payload of a NaN depends on the order of operands, which a compiler may swap: one NaN for
// all.
template <class T>
PCCL_INLINE T CanonicalNan(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x == x ? x : std::numeric_limits<T>::quiet_NaN();
  } else {
    return x;
  }
}

template <class T>
struct Plain {
  using Wire = T;
  using Acc = T;
  static PCCL_INLINE Acc Decode(Wire x) { return x; }
  static PCCL_INLINE Wire Encode(Acc x) { return CanonicalNan(x); }
};

// The bits of x rounded to the upper half, which is its bfloat16; the lower half is meaningless.
PCCL_INLINE uint32_t RoundToBfloat16(float x) {
  const uint32_t bits = x == x ? BitCast<uint32_t>(x) : 0x7fc00000u;
  return bits + 0x7fffu + ((bits >> 16) & 1u);
}

struct Bfloat16 {
  using Wire = uint16_t;
  using Acc = float;
  static PCCL_INLINE Acc Decode(Wire x) { return BitCast<float>(uint32_t{x} << 16); }
  static PCCL_INLINE Wire Encode(Acc x) { return static_cast<Wire>(RoundToBfloat16(x) >> 16); }
};

// Two at a time, as halves of 32-bit lanes: widening and narrowing lanes would cost more than the
// arithmetic. Either of the two may come first in memory.
struct Bfloat16Pair {
  struct Value {
    float low, high;
    friend PCCL_INLINE Value operator+(Value a, Value b) {
      return {a.low + b.low, a.high + b.high};
    }
    friend PCCL_INLINE Value operator*(Value a, Value b) {
      return {a.low * b.low, a.high * b.high};
    }
  };
  using Wire = uint32_t;
  using Acc = Value;
  static PCCL_INLINE Acc Decode(Wire x) {
    return {BitCast<float>(x << 16), BitCast<float>(x & 0xffff0000u)};
  }
  static PCCL_INLINE Wire Encode(Acc x) {
    return (RoundToBfloat16(x.low) >> 16) | (RoundToBfloat16(x.high) & 0xffff0000u);
  }
};

// By exact float arithmetic, which vectorises everywhere. No intermediate value is subnormal in
// float32, so the result is the same where the caller's thread flushes subnormals to zero, as XLA's
// do.
struct Float16 {
  using Wire = uint16_t;
  using Acc = float;
  static PCCL_INLINE Acc Decode(Wire x) {
    const uint32_t bits = uint32_t{x} << 16;
    const uint32_t sign = bits & 0x80000000u;
    const uint32_t magnitude = bits + bits;
    const float normal = BitCast<float>((magnitude >> 4) + (0xe0u << 23)) * 0x1p-112f;
    const float subnormal = BitCast<float>((magnitude >> 17) | (126u << 23)) - 0.5f;
    const bool is_subnormal = magnitude < (1u << 27);
    return BitCast<float>(sign | BitCast<uint32_t>(is_subnormal ? subnormal : normal));
  }
  static PCCL_INLINE Wire Encode(Acc x) {
    const uint32_t bits = BitCast<uint32_t>(x);
    const uint32_t magnitude = bits + bits;
    // Overflows to infinity what float16 cannot hold, then aligns the last bit that it can hold
    // with the last bit of the sum below, where the addition rounds to nearest even.
    const float scaled = (BitCast<float>(magnitude >> 1) * 0x1p+112f) * 0x1p-110f;
    uint32_t bias = magnitude & 0xff000000u;
    bias = bias < 0x71000000u ? 0x71000000u : bias;
    const float rounded = BitCast<float>((bias >> 1) + 0x07800000u) + scaled;
    const uint32_t r = BitCast<uint32_t>(rounded);
    const uint32_t half = ((r >> 13) & 0x7c00u) + (r & 0x0fffu);
    return static_cast<Wire>(magnitude > 0xff000000u ? 0x7e00u : ((bits >> 16) & 0x8000u) | half);
  }
};

template <class T>
struct Complex {
  struct Value {
    T re, im;
    friend PCCL_INLINE Value operator+(Value a, Value b) { return {a.re + b.re, a.im + b.im}; }
    friend PCCL_INLINE Value operator*(Value a, Value b) {
      return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    }
  };
  using Wire = Value;
  using Acc = Value;
  static PCCL_INLINE Acc Decode(Wire x) { return x; }
  static PCCL_INLINE Wire Encode(Acc x) { return {CanonicalNan(x.re), CanonicalNan(x.im)}; }
};

// Floating point as integers of the same order, for max and min: -0 before +0, subnormals exact
// whatever the thread's mode, and NaN, whatever its sign, at the end that wins.
template <class Bits, Bits kInfinity, bool kNanIsLargest>
struct Ordered {
  using Wire = Bits;
  using Acc = std::make_signed_t<Bits>;
  static constexpr Bits kMagnitude = std::numeric_limits<Acc>::max();
  static PCCL_INLINE Acc Flip(Acc x) {
    return static_cast<Acc>(x ^ ((x >> (8 * sizeof(Acc) - 1)) & static_cast<Acc>(kMagnitude)));
  }
  static PCCL_INLINE Acc Decode(Wire x) {
    using Limits = std::numeric_limits<Acc>;
    const bool is_nan = static_cast<Acc>(x & kMagnitude) > static_cast<Acc>(kInfinity);
    const Acc nan = kNanIsLargest ? Limits::max() : Limits::min();
    return is_nan ? nan : Flip(static_cast<Acc>(x));
  }
  static PCCL_INLINE Wire Encode(Acc x) { return static_cast<Wire>(Flip(x)); }
};

struct Sum {
  template <class T>
  PCCL_INLINE T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};

struct Prod {
  template <class T>
  PCCL_INLINE T operator()(T a, T b) const {
    // Small unsigned types would be promoted to int, which overflows: 0xffff * 0xffff.
    if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(unsigned)) {
      return static_cast<T>(unsigned{a} * unsigned{b});
    } else {
      return a * b;
    }
  }
};

struct Max {
  template <class T>
  PCCL_INLINE T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

struct Min {
  template <class T>
  PCCL_INLINE T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

struct Or {
  template <class T>
  PCCL_INLINE T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};

struct And {
  template <class T>
  PCCL_INLINE T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};

}  // namespace pccl::kernels

#endif  // PCCL_KERNELS_REDUCE_OPS_H_
