#include "ffi/handlers.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ffi/call_site.h"
#include "ffi/handlers_common.h"
#include "ffi/hash.h"
#include "ffi/meeting.h"
#include "ffi/world.h"
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

// Runs `body`, which returns an error text or "", and returns the text; also of what it throws: no
// exception may cross into XLA.
template <class Body>
std::string Guarded(Body&& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    return std::string("pccl_jax: ") + e.what();
  }
}

ffi::ErrorOr<std::unique_ptr<State>> Instantiate(int64_t collective, int64_t op,
                                                 ffi::Span<const int64_t> program,
                                                 ffi::Span<const int64_t> members,
                                                 ffi::Span<const int64_t> places,
                                                 ffi::Span<const int64_t> processes, int64_t rows,
                                                 std::string_view label, std::string_view algorithm,
                                                 int64_t site_id, int64_t world) {
  auto state = std::make_unique<State>();
  const std::string error = Guarded([&] {
    CallSite& site = state->site;
    site.collective = static_cast<Collective>(collective);
    site.op = static_cast<Op>(op);
    site.members.assign(members.begin(), members.end());
    site.places.assign(places.begin(), places.end());
    site.processes.assign(processes.begin(), processes.end());
    site.rows = rows;
    site.label = label;
    site.algorithm = algorithm;
    site.id = site_id;
    site.world = FindWorld(world);
    if (world != 0 && site.world == nullptr) {
      return site.label +
             ": the communicator that this was compiled for has been freed, or is one "
             "of another process";
    }
    site.patience = Patience::FromEnvironment();
    site.digest = HashOf({program.begin(), program.end()}, 0);
    std::string fault = Schedule::Decode(program.begin(), program.size(), &site.schedule);
    if (fault.empty() && site.schedule.HasInter()) {
      fault = site.label + ": algorithm '" + site.algorithm + "' is for GPUs; on CPU take another";
    }
    return fault.empty() ? site.Validate() : fault;
  });
  if (!error.empty()) return ffi::Unexpected(ffi::Error::InvalidArgument(error));
  return state;
}

// Whether the device is where it was when the program was lowered.
std::string CheckProcess(const CallSite& site, const CallSite::Seat& seat, int64_t logical_id) {
  const std::string device = site.label + ": device " + std::to_string(logical_id);
  if (seat.group < 0) return device + " is in none of its groups";
  const World* world = site.world.get();
  const int64_t then = site.team(seat.group).process_of[static_cast<size_t>(seat.rank)];
  if (world == nullptr || then == world->process) return "";
  return device + " of the mesh was in process " + std::to_string(then) +
         " when the program was lowered and is in process " + std::to_string(world->process) +
         " now. A function that is reused under a mesh of another device order must be compiled "
         "for it: call jax.jit anew, or pass a mesh with devices instead of an abstract one.";
}

// Sends the rank to its meeting; returns an error text where it cannot go there.
std::string Arrive(const CallSite& site, int64_t run_id, int64_t logical_id,
                   const ffi::AnyBuffer& x, const ffi::AnyBuffer& out, Done done) {
  const CallSite::Seat seat = site.Find(logical_id);
  const std::string error = CheckProcess(site, seat, logical_id);
  if (!error.empty()) {
    if (seat.group >= 0) RefuseMeeting(run_id, site, seat.group, error);
    return error;
  }
  Arrival arrival;
  arrival.rank = seat.rank;
  arrival.buffers = {x.untyped_data(), out.untyped_data()};
  arrival.in_bytes = x.size_bytes();
  arrival.out_bytes = out.size_bytes();
  arrival.item_bytes = ffi::ByteWidth(x.element_type());
  arrival.done = std::move(done);
  if (site.collective != Collective::kAllGather) {
    const std::optional<DType> dtype = ReducibleType(x.element_type());
    if (!dtype || FindReduce(*dtype, site.op) == nullptr) {
      return site.label + ": no kernel reduces this element type with this operator";
    }
    arrival.dtype = *dtype;
  }
  MeetPeers(run_id, site, seat.group, std::move(arrival));
  return "";
}

// The buffers of an asynchronous call live until its future is complete.
ffi::Future Begin(const CallSite& site, int64_t run_id, int64_t logical_id, ffi::AnyBuffer x,
                  ffi::Result<ffi::AnyBuffer> out) {
  ffi::Promise promise;
  ffi::Future future(promise);
  const Done done = [promise](const std::string& error) mutable {
    if (error.empty()) return promise.SetAvailable();
    promise.SetError(ffi::Error(ffi::ErrorCode::kDeadlineExceeded, error));
  };
  const std::string error =
      Guarded([&] { return Arrive(site, run_id, logical_id, x, *out, done); });
  if (!error.empty()) done(error);
  return future;
}

ffi::Future Execute(State* state, ffi::RunId run_id, ffi::AnyBuffer x,
                    ffi::BufferR0<ffi::DataType::U32> logical_id, ffi::Result<ffi::AnyBuffer> out) {
  return Begin(state->site, run_id.run_id, logical_id.typed_data()[0], x, out);
}

// In an ordered world a process is a rank. XLA runs calls that a token connects one by one.
ffi::Future ExecuteOrdered(State* state, ffi::RunId run_id, ffi::AnyBuffer x, ffi::Token,
                           ffi::Result<ffi::AnyBuffer> out, ffi::Result<ffi::Token>) {
  const CallSite& site = state->site;
  return Begin(site, run_id.run_id, site.ordered() ? site.world->process : 0, x, out);
}

XLA_FFI_DEFINE_HANDLER(kInstantiate, Instantiate,
                       BindCallAttributes(ffi::Ffi::BindInstantiate()).Attr<int64_t>("world"));

XLA_FFI_DEFINE_HANDLER(kExecute, Execute,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::State<State>>()
                           .Ctx<ffi::RunId>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::BufferR0<ffi::DataType::U32>>()
                           .Ret<ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER(kExecuteOrdered, ExecuteOrdered,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::State<State>>()
                           .Ctx<ffi::RunId>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::Token>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::Token>());

ffi::TypeInfo kStateInfo = ffi::MakeTypeInfo<State>();

}  // namespace

HandlerTable CpuHandlers() {
  return {reinterpret_cast<void*>(kInstantiate), reinterpret_cast<void*>(kExecute),
          reinterpret_cast<void*>(kExecuteOrdered), &State::id, &kStateInfo};
}

int FfiApiMajor() { return XLA_FFI_API_MAJOR; }
int FfiApiMinor() { return XLA_FFI_API_MINOR; }

}  // namespace pccl
