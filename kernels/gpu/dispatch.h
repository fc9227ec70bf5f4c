// Which codec and operator reduce an element type on a GPU.

#ifndef PCCL_KERNELS_GPU_DISPATCH_H_
#define PCCL_KERNELS_GPU_DISPATCH_H_

#include <cstdint>

#include "kernels/gpu/codecs.h"
#include "kernels/reduce_dispatch.h"
#include "kernels/types.h"

namespace pccl::kernels {

// As Dispatch, with the 8-bit floats, of which a CPU has none.
template <class Result, class Visitor>
Result DispatchGpu(DType dtype, Op op, const Visitor& visitor, Result none) {
  switch (dtype) {
    case DType::kFloat8E4M3fn:
      return DispatchFloat<Float8E4M3fn, uint8_t, 0x7e>(op, visitor, none);
    case DType::kFloat8E5M2:
      return DispatchFloat<Float8E5M2, uint8_t, 0x7c>(op, visitor, none);
    default:
      return Dispatch(dtype, op, visitor, none);
  }
}

}  // namespace pccl::kernels

#endif  // PCCL_KERNELS_GPU_DISPATCH_H_
