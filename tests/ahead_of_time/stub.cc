// Handlers that decode what the handlers for GPUs decode, and run nothing: XLA asks them to
// instantiate a call while it compiles, so a difference in names or types is an error there.
#include <cstdint>
#include <memory>
#include <string_view>

#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = ::xla::ffi;
using Integers = ffi::Span<const int64_t>;

struct State {
  static ffi::TypeId id;
};
ffi::TypeId State::id = {};

ffi::ErrorOr<std::unique_ptr<State>> Instantiate(int64_t, int64_t, Integers program,
                                                 Integers members, Integers places,
                                                 Integers processes, int64_t, std::string_view,
                                                 std::string_view, int64_t, Integers devices) {
  const size_t n = members.size();
  if (n == 0 || n != places.size() || n != processes.size() || n > devices.size()) {
    return ffi::Unexpected(ffi::Error::InvalidArgument("groups do not match the devices"));
  }
  if (program.size() < 5 || (program.size() - 5) % 12 != 0) {
    return ffi::Unexpected(ffi::Error::InvalidArgument("not a program"));
  }
  return std::make_unique<State>();
}

ffi::Error Execute(State*, ffi::AnyBuffer, ffi::Result<ffi::AnyBuffer>,
                   ffi::Result<ffi::BufferR1<ffi::DataType::U8>>) {
  return ffi::Error(ffi::ErrorCode::kUnimplemented, "made to be compiled, not to be run");
}

ffi::TypeInfo kStateInfo = ffi::MakeTypeInfo<State>();

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(stub_instantiate, Instantiate,
                              ffi::Ffi::BindInstantiate()
                                  .Attr<int64_t>("collective")
                                  .Attr<int64_t>("op")
                                  .Attr<Integers>("program")
                                  .Attr<Integers>("members")
                                  .Attr<Integers>("places")
                                  .Attr<Integers>("processes")
                                  .Attr<int64_t>("rows")
                                  .Attr<std::string_view>("label")
                                  .Attr<std::string_view>("algorithm")
                                  .Attr<int64_t>("site")
                                  .Attr<Integers>("devices"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(stub_execute, Execute,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::State<State>>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::BufferR1<ffi::DataType::U8>>());

extern "C" void* stub_type_id() { return &State::id; }
extern "C" void* stub_type_info() { return &kStateInfo; }
