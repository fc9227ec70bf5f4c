#include "kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace pccl {
namespace {

// Bytes that stay in the first-level cache while they are copied to several places.
constexpr size_t kBlock = 8192;

char* Bytes(void* p) { return static_cast<char*>(p); }
const char* Bytes(const void* p) { return static_cast<const char*>(p); }

#if defined(__SSE2__)
constexpr size_t kLine = 64;

// Below this the partial lines at both ends outweigh what streaming saves.
constexpr size_t kMinStream = 4 * kLine;

// dst is aligned to a line: a line written in full leaves the write-combining buffer as one burst.
void StreamLines(char* dst, const char* src, size_t num_lines) {
  for (size_t i = 0; i < num_lines; ++i, dst += kLine, src += kLine) {
    const __m128i* in = reinterpret_cast<const __m128i*>(src);
    __m128i* out = reinterpret_cast<__m128i*>(dst);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
}
#endif

// For rows of a few bytes the call of memcpy would cost ten times the copy.
template <size_t kRowBytes>
void CopyShortRows(char* dst, size_t dst_stride, const char* src, size_t src_stride, size_t rows) {
  for (size_t r = 0; r < rows; ++r)
    std::memcpy(dst + r * dst_stride, src + r * src_stride, kRowBytes);
}

void CopyRows(char* dst, size_t dst_stride, const char* src, size_t src_stride, size_t rows,
              size_t row_bytes, bool stream) {
  switch (row_bytes) {
    case 1:
      return CopyShortRows<1>(dst, dst_stride, src, src_stride, rows);
    case 2:
      return CopyShortRows<2>(dst, dst_stride, src, src_stride, rows);
    case 4:
      return CopyShortRows<4>(dst, dst_stride, src, src_stride, rows);
    case 8:
      return CopyShortRows<8>(dst, dst_stride, src, src_stride, rows);
    case 16:
      return CopyShortRows<16>(dst, dst_stride, src, src_stride, rows);
    default:
      for (size_t r = 0; r < rows; ++r) {
        CopyUnfenced(dst + r * dst_stride, src + r * src_stride, row_bytes, stream);
      }
  }
}

}  // namespace

void CopyUnfenced(void* dst, const void* src, size_t nbytes, bool stream) {
  if (nbytes == 0 || dst == src) return;  // memcpy takes no null, and streaming no equal pointers
#if defined(__SSE2__)
  if (stream && nbytes >= kMinStream) {
    const size_t head = (kLine - reinterpret_cast<uintptr_t>(dst) % kLine) % kLine;
    const size_t body = (nbytes - head) / kLine * kLine;
    std::memcpy(dst, src, head);
    StreamLines(Bytes(dst) + head, Bytes(src) + head, body / kLine);
    const size_t done = head + body;
    std::memcpy(Bytes(dst) + done, Bytes(src) + done, nbytes - done);
    return;
  }
#endif
  static_cast<void>(stream);
  std::memcpy(dst, src, nbytes);
}

void StreamFence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

void Copy(void* dst, const void* src, size_t nbytes, bool stream) {
  CopyUnfenced(dst, src, nbytes, stream);
  if (stream) StreamFence();
}

void Copy2D(void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t rows,
            size_t row_bytes, bool stream) {
  if (dst_stride == row_bytes && src_stride == row_bytes) {
    return Copy(dst, src, rows * row_bytes, stream);
  }
  CopyRows(Bytes(dst), dst_stride, Bytes(src), src_stride, rows, row_bytes, stream);
  if (stream) StreamFence();
}

void CopyToMany(void* const* dsts, int n, const void* src, size_t nbytes, bool stream) {
  for (size_t begin = 0; begin < nbytes; begin += kBlock) {
    const size_t size = std::min(kBlock, nbytes - begin);
    for (int j = 0; j < n; ++j) {
      CopyUnfenced(Bytes(dsts[j]) + begin, Bytes(src) + begin, size, stream);
    }
  }
  if (stream) StreamFence();
}

void PrepareOutput(void* p, size_t nbytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  if (nbytes < 2 * kHugePage) return;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p);
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (begin + nbytes) / kHugePage * kHugePage;
  // A failure (no huge pages in this kernel) leaves the region as it was, which is still right.
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  static_cast<void>(p);
  static_cast<void>(nbytes);
#endif
}

}  // namespace pccl
