// Conversions of the GPU kernels' codecs, as they are where no instruction replaces them, for
// ctypes.

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/codecs.h"

using namespace pccl::kernels;

namespace {

template <class Codec>
void Encode(const float* in, void* out, size_t count) {
  for (size_t i = 0; i < count; ++i) Store(out, i, Codec::Encode(in[i]));
}

template <class Codec>
void Decode(const void* in, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = Codec::Decode(Load<typename Codec::Wire>(in, i));
}

}  // namespace

extern "C" {

void encode_float16(const float* in, void* out, size_t n) { Encode<Float16>(in, out, n); }
void encode_bfloat16(const float* in, void* out, size_t n) { Encode<Bfloat16>(in, out, n); }
void encode_float8_e4m3fn(const float* in, void* out, size_t n) {
  Encode<Float8E4M3fn>(in, out, n);
}
void encode_float8_e5m2(const float* in, void* out, size_t n) { Encode<Float8E5M2>(in, out, n); }

void decode_float16(const void* in, float* out, size_t n) { Decode<Float16>(in, out, n); }
void decode_bfloat16(const void* in, float* out, size_t n) { Decode<Bfloat16>(in, out, n); }
void decode_float8_e4m3fn(const void* in, float* out, size_t n) {
  Decode<Float8E4M3fn>(in, out, n);
}
void decode_float8_e5m2(const void* in, float* out, size_t n) { Decode<Float8E5M2>(in, out, n); }

}  // extern "C"
