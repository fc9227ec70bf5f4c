// What the handlers for CPU and those for GPUs share: the attributes of a call, element types.
#ifndef PCCL_FFI_HANDLERS_COMMON_H_
#define PCCL_FFI_HANDLERS_COMMON_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/types.h"
#include "xla/ffi/api/ffi.h"

namespace pccl {

// Binds the attributes that the lowering gives every call (pccl_jax/primitives/emit.py).
template <class Binding>
auto BindCallAttributes(Binding&& binding) {
  using Integers = ::xla::ffi::Span<const int64_t>;
  return std::forward<Binding>(binding)
      .template Attr<int64_t>("collective")
      .template Attr<int64_t>("op")
      .template Attr<Integers>("program")
      .template Attr<Integers>("members")
      .template Attr<Integers>("places")
      .template Attr<Integers>("processes")
      .template Attr<int64_t>("rows")
      .template Attr<std::string_view>("label")
      .template Attr<std::string_view>("algorithm")
      .template Attr<int64_t>("site");
}

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

#endif  // PCCL_FFI_HANDLERS_COMMON_H_
