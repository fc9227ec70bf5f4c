// Which codec and operator reduce an element type: one table for the CPU and the GPU.

#ifndef PCCL_KERNELS_REDUCE_DISPATCH_H_
#define PCCL_KERNELS_REDUCE_DISPATCH_H_

#include <cstdint>
#include <type_traits>

#include "kernels/reduce_ops.h"
#include "kernels/types.h"

namespace pccl::kernels {

template <class Result, class Visitor>
Result DispatchBool(Op op, const Visitor& visitor, Result none) {
  switch (op) {
    case Op::kSum:
    case Op::kMax:
      return visitor.template Visit<Plain<uint8_t>, Or>();
    case Op::kProd:
    case Op::kMin:
      return visitor.template Visit<Plain<uint8_t>, And>();
  }
  return none;
}

// Sums and products of signed integers are those of unsigned ones, which wrap.
template <class Int, class Result, class Visitor>
Result DispatchInt(Op op, const Visitor& visitor, Result none) {
  using Unsigned = Plain<std::make_unsigned_t<Int>>;
  switch (op) {
    case Op::kSum:
      return visitor.template Visit<Unsigned, Sum>();
    case Op::kProd:
      return visitor.template Visit<Unsigned, Prod>();
    case Op::kMax:
      return visitor.template Visit<Plain<Int>, Max>();
    case Op::kMin:
      return visitor.template Visit<Plain<Int>, Min>();
  }
  return none;
}

// Magnitudes above kInfinity are NaN; a type without infinities has its largest number there.
template <class Codec, class Bits, Bits kInfinity, class Result, class Visitor>
Result DispatchFloat(Op op, const Visitor& visitor, Result none) {
  switch (op) {
    case Op::kSum:
      return visitor.template Visit<Codec, Sum>();
    case Op::kProd:
      return visitor.template Visit<Codec, Prod>();
    case Op::kMax:
      return visitor.template Visit<Ordered<Bits, kInfinity, true>, Max>();
    case Op::kMin:
      return visitor.template Visit<Ordered<Bits, kInfinity, false>, Min>();
  }
  return none;
}

template <class T, class Result, class Visitor>
Result DispatchComplex(Op op, const Visitor& visitor, Result none) {
  switch (op) {
    case Op::kSum:
      return visitor.template Visit<Complex<T>, Sum>();
    case Op::kProd:
      return visitor.template Visit<Complex<T>, Prod>();
    case Op::kMax:
    case Op::kMin:
      break;
  }
  return none;
}

// visitor.Visit<Codec, Operator>() of the type and operator, or `none` where the CPU has no kernel.
template <class Result, class Visitor>
Result Dispatch(DType dtype, Op op, const Visitor& visitor, Result none) {
  switch (dtype) {
    case DType::kBool:
      return DispatchBool(op, visitor, none);
    case DType::kInt8:
      return DispatchInt<int8_t>(op, visitor, none);
    case DType::kInt16:
      return DispatchInt<int16_t>(op, visitor, none);
    case DType::kInt32:
      return DispatchInt<int32_t>(op, visitor, none);
    case DType::kInt64:
      return DispatchInt<int64_t>(op, visitor, none);
    case DType::kUint8:
      return DispatchInt<uint8_t>(op, visitor, none);
    case DType::kUint16:
      return DispatchInt<uint16_t>(op, visitor, none);
    case DType::kUint32:
      return DispatchInt<uint32_t>(op, visitor, none);
    case DType::kUint64:
      return DispatchInt<uint64_t>(op, visitor, none);
    case DType::kFloat16:
      return DispatchFloat<Float16, uint16_t, 0x7c00>(op, visitor, none);
    case DType::kBfloat16:
      return DispatchFloat<Bfloat16, uint16_t, 0x7f80>(op, visitor, none);
    case DType::kFloat32:
      return DispatchFloat<Plain<float>, uint32_t, 0x7f800000>(op, visitor, none);
    case DType::kFloat64:
      return DispatchFloat<Plain<double>, uint64_t, 0x7ff0000000000000>(op, visitor, none);
    case DType::kComplex64:
      return DispatchComplex<float>(op, visitor, none);
    case DType::kComplex128:
      return DispatchComplex<double>(op, visitor, none);
    case DType::kFloat8E4M3fn:
    case DType::kFloat8E5M2:
      break;
  }
  return none;
}

}  // namespace pccl::kernels

#endif  // PCCL_KERNELS_REDUCE_DISPATCH_H_
