// Element types and operators of the reduction kernels.
//
// The codes are part of the contract with pccl_jax/types.py (REDUCE_DTYPES and Op): they travel as
// integers in the attributes of the call, so a value once given is never reused.

#ifndef PCCL_KERNELS_TYPES_H_
#define PCCL_KERNELS_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace pccl {

enum class DType : int32_t {
  kBool = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kUint8 = 5,
  kUint16 = 6,
  kUint32 = 7,
  kUint64 = 8,
  kFloat16 = 9,
  kBfloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kComplex64 = 13,
  kComplex128 = 14,
  kFloat8E4M3fn = 15,  // this and the next: on the GPU only
  kFloat8E5M2 = 16,
};

enum class Op : int32_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

// Bytes of one element; 0 for a value that names no element type.
constexpr size_t ItemSize(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kUint8:
    case DType::kFloat8E4M3fn:
    case DType::kFloat8E5M2:
      return 1;
    case DType::kInt16:
    case DType::kUint16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kInt32:
    case DType::kUint32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kUint64:
    case DType::kFloat64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
  }
  return 0;
}

}  // namespace pccl

#endif  // PCCL_KERNELS_TYPES_H_
