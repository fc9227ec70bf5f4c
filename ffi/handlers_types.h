// Element types as XLA names them.
#ifndef PCCL_FFI_HANDLERS_TYPES_H_
#define PCCL_FFI_HANDLERS_TYPES_H_

#include <optional>

#include "kernels/types.h"
#include "xla/ffi/api/ffi.h"

namespace pccl {

// The type by which kernels know it, if any of them does.
inline std::optional<DType> ReducibleType(::xla::ffi::DataType type) {
  using Type = ::xla::ffi::DataType;
  switch (type) {
    case Type::PRED:
      return DType::kBool;
    case Type::S8:
      return DType::kInt8;
    case Type::S16:
      return DType::kInt16;
    case Type::S32:
      return DType::kInt32;
    case Type::S64:
      return DType::kInt64;
    case Type::U8:
      return DType::kUint8;
    case Type::U16:
      return DType::kUint16;
    case Type::U32:
      return DType::kUint32;
    case Type::U64:
      return DType::kUint64;
    case Type::F16:
      return DType::kFloat16;
    case Type::BF16:
      return DType::kBfloat16;
    case Type::F32:
      return DType::kFloat32;
    case Type::F64:
      return DType::kFloat64;
    case Type::C64:
      return DType::kComplex64;
    case Type::C128:
      return DType::kComplex128;
    case Type::F8E4M3FN:
      return DType::kFloat8E4M3fn;
    case Type::F8E5M2:
      return DType::kFloat8E5M2;
    default:
      return std::nullopt;
  }
}

}  // namespace pccl

#endif  // PCCL_FFI_HANDLERS_TYPES_H_
