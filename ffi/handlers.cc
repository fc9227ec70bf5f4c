#include "ffi/handlers.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ffi/call_site.h"
#include "ffi/meeting.h"
#include "xla/ffi/api/ffi.h"

namespace pccl {
namespace {

namespace ffi = ::xla::ffi;

// What XLA keeps of a call between its stages.
struct State {
  static ffi::TypeId id;
  CallSite site;
};
ffi::TypeId State::id = {};

std::optional<DType> ReducibleType(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::PRED:
      return DType::kBool;
    case ffi::DataType::S8:
      return DType::kInt8;
    case ffi::DataType::S16:
      return DType::kInt16;
    case ffi::DataType::S32:
      return DType::kInt32;
    case ffi::DataType::S64:
      return DType::kInt64;
    case ffi::DataType::U8:
      return DType::kUint8;
    case ffi::DataType::U16:
      return DType::kUint16;
    case ffi::DataType::U32:
      return DType::kUint32;
    case ffi::DataType::U64:
      return DType::kUint64;
    case ffi::DataType::F16:
      return DType::kFloat16;
    case ffi::DataType::BF16:
      return DType::kBfloat16;
    case ffi::DataType::F32:
      return DType::kFloat32;
    case ffi::DataType::F64:
      return DType::kFloat64;
    case ffi::DataType::C64:
      return DType::kComplex64;
    case ffi::DataType::C128:
      return DType::kComplex128;
    default:
      return std::nullopt;
  }
}

// Runs `body`, which returns an error text or "", and turns what it throws into an error: no
// exception may cross into XLA.
template <class Body>
ffi::Error Guarded(ffi::ErrorCode code, Body&& body) {
  try {
    std::string error = body();
    return error.empty() ? ffi::Error::Success() : ffi::Error(code, std::move(error));
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "pccl_jax: out of memory");
  } catch (const std::exception& e) {
    return ffi::Error(ffi::ErrorCode::kInternal, std::string("pccl_jax: ") + e.what());
  }
}

ffi::ErrorOr<std::unique_ptr<State>> Instantiate(int64_t collective, int64_t op,
                                                 ffi::Span<const int64_t> program,
                                                 ffi::Span<const int64_t> members,
                                                 ffi::Span<const int64_t> places, int64_t rows,
                                                 std::string_view label, std::string_view algorithm,
                                                 int64_t site_id) {
  auto state = std::make_unique<State>();
  const ffi::Error error = Guarded(ffi::ErrorCode::kInvalidArgument, [&] {
    CallSite& site = state->site;
    site.collective = static_cast<Collective>(collective);
    site.op = static_cast<Op>(op);
    site.members.assign(members.begin(), members.end());
    site.places.assign(places.begin(), places.end());
    site.rows = rows;
    site.label = label;
    site.algorithm = algorithm;
    site.id = site_id;
    site.patience = Patience::FromEnvironment();
    std::string fault = Schedule::Decode(program.begin(), program.size(), &site.schedule);
    return fault.empty() ? site.Validate() : fault;
  });
  if (error.failure()) return ffi::Unexpected(error);
  return state;
}

std::string Run(const CallSite& site, int64_t run_id, int64_t logical_id, ffi::AnyBuffer x,
                ffi::AnyBuffer out) {
  const CallSite::Seat seat = site.Find(logical_id);
  if (seat.group < 0) {
    return site.label + ": device " + std::to_string(logical_id) + " is in none of its groups";
  }
  Arrival arrival;
  arrival.rank = seat.rank;
  arrival.buffers = {x.untyped_data(), out.untyped_data()};
  arrival.in_bytes = x.size_bytes();
  arrival.out_bytes = out.size_bytes();
  arrival.item_bytes = ffi::ByteWidth(x.element_type());
  if (site.collective != Collective::kAllGather) {
    const std::optional<DType> dtype = ReducibleType(x.element_type());
    if (!dtype || FindReduce(*dtype, site.op) == nullptr) {
      return site.label + ": no kernel reduces this element type with this operator";
    }
    arrival.dtype = *dtype;
  }
  return MeetPeers(run_id, site, seat.group, arrival);
}

ffi::Error Execute(State* state, ffi::RunId run_id, ffi::AnyBuffer x,
                   ffi::BufferR0<ffi::DataType::U32> logical_id, ffi::Result<ffi::AnyBuffer> out) {
  return Guarded(ffi::ErrorCode::kDeadlineExceeded, [&] {
    return Run(state->site, run_id.run_id, logical_id.typed_data()[0], x, *out);
  });
}

XLA_FFI_DEFINE_HANDLER(kInstantiate, Instantiate,
                       ffi::Ffi::BindInstantiate()
                           .Attr<int64_t>("collective")
                           .Attr<int64_t>("op")
                           .Attr<ffi::Span<const int64_t>>("program")
                           .Attr<ffi::Span<const int64_t>>("members")
                           .Attr<ffi::Span<const int64_t>>("places")
                           .Attr<int64_t>("rows")
                           .Attr<std::string_view>("label")
                           .Attr<std::string_view>("algorithm")
                           .Attr<int64_t>("site"));

XLA_FFI_DEFINE_HANDLER(kExecute, Execute,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::State<State>>()
                           .Ctx<ffi::RunId>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::BufferR0<ffi::DataType::U32>>()
                           .Ret<ffi::AnyBuffer>());

ffi::TypeInfo kStateInfo = ffi::MakeTypeInfo<State>();

}  // namespace

HandlerTable CpuHandlers() {
  return {reinterpret_cast<void*>(kInstantiate), reinterpret_cast<void*>(kExecute), &State::id,
          &kStateInfo};
}

int FfiApiMajor() { return XLA_FFI_API_MAJOR; }
int FfiApiMinor() { return XLA_FFI_API_MINOR; }

}  // namespace pccl
