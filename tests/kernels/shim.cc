// The kernels behind C names, for ctypes.

#include <cstddef>

#include "kernels/copy.h"
#include "kernels/reduce.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

using pccl::DType;
using pccl::FindReduce;
using pccl::Isa;
using pccl::Op;

extern "C" {

size_t item_size(int dtype) { return pccl::ItemSize(static_cast<DType>(dtype)); }

int best_isa() { return static_cast<int>(pccl::BestIsa()); }

int has_default(int dtype, int op) {
  return FindReduce(static_cast<DType>(dtype), static_cast<Op>(op)) != nullptr;
}

int reduce(int dtype, int op, int isa, void* dst, const void* const* srcs, int k, size_t count) {
  const auto fn = FindReduce(static_cast<DType>(dtype), static_cast<Op>(op), static_cast<Isa>(isa));
  if (fn == nullptr) return 0;
  fn(dst, srcs, k, count);
  return 1;
}

void reduce_broadcast(int dtype, int op, void* const* dsts, int num_dst, const void* const* srcs,
                      int k, size_t count, int stream) {
  const DType type = static_cast<DType>(dtype);
  pccl::ReduceBroadcast(FindReduce(type, static_cast<Op>(op)), pccl::ItemSize(type), dsts, num_dst,
                        srcs, k, count, stream != 0);
}

void copy(void* dst, const void* src, size_t nbytes, int stream) {
  pccl::Copy(dst, src, nbytes, stream != 0);
}

void copy_2d(void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t rows,
             size_t row_bytes, int stream) {
  pccl::Copy2D(dst, dst_stride, src, src_stride, rows, row_bytes, stream != 0);
}

void copy_to_many(void* const* dsts, int n, const void* src, size_t nbytes, int stream) {
  pccl::CopyToMany(dsts, n, src, nbytes, stream != 0);
}

void prepare_output(void* p, size_t nbytes) { pccl::PrepareOutput(p, nbytes); }

// Sets the calling thread to flush subnormals to zero, as XLA's threads do, or back; returns
// whether this machine can.
int flush_subnormals(int on) {
#if defined(__SSE2__)
  constexpr unsigned kFlushToZeroAndDenormalsAreZero = 0x8040;
  const unsigned rest = _mm_getcsr() & ~kFlushToZeroAndDenormalsAreZero;
  _mm_setcsr(on != 0 ? rest | kFlushToZeroAndDenormalsAreZero : rest);
  return 1;
#else
  return on == 0;
#endif
}

}  // extern "C"
