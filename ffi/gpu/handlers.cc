#include "ffi/gpu/handlers.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ffi/gpu/connections.h"
#include "ffi/gpu/execution.h"
#include "ffi/gpu/handlers_extension.h"
#include "ffi/gpu/nccl_communicator.h"
#include "ffi/gpu/nccl_library.h"
#include "ffi/gpu/plan.h"
#include "ffi/gpu/runtime.h"
#include "ffi/gpu/site.h"
#include "ffi/gpu/watchdog.h"
#include "ffi/gpu/world.h"
#include "ffi/handlers_common.h"
#include "ffi/hash.h"
#include "ffi/patience.h"
#include "xla/ffi/api/ffi.h"

namespace pccl::gpu {
namespace {

namespace ffi = ::xla::ffi;
using Scratch8 = ffi::Buffer<ffi::DataType::U8>;

// Tell our communicators from XLA's own of the same devices.
constexpr int64_t kNodeCommunicators = 0x7063636c'00;
constexpr int64_t kAlignedCommunicators = 0x7063636c'01;

// What XLA keeps of a call between its stages.
struct State {
  static ffi::TypeId id;
  Site site;
  // As XLA is asked for their communicators.
  std::vector<Site::Team> nodes, aligned;
};
ffi::TypeId State::id = {};

// Runs `body`; what it throws becomes an error, as no exception may cross into XLA.
template <class Body>
ffi::Error Guarded(const Site& site, Body&& body) {
  std::string text = "unknown exception";
  try {
    body();
    return ffi::Error::Success();
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
  }
  const bool named = text.find(site.label) != std::string::npos;
  return ffi::Error::Internal("pccl_jax: " + (named ? text : site.label + ": " + text));
}

// XLA gives communicators whose ranks are in the order of the list or in that of devices: in lists
// in the order of devices both are the same.
Site::Team ByDevice(const Site& site, Site::Team team) {
  std::sort(team.begin(), team.end(), [&](int64_t a, int64_t b) {
    return site.devices[static_cast<size_t>(a)] < site.devices[static_cast<size_t>(b)];
  });
  return team;
}

std::vector<Site::Team> ByDevice(const Site& site, std::vector<Site::Team> teams) {
  for (Site::Team& team : teams) team = ByDevice(site, std::move(team));
  return teams;
}

ffi::ErrorOr<std::unique_ptr<State>> Instantiate(int64_t collective, int64_t op,
                                                 ffi::Span<const int64_t> program,
                                                 ffi::Span<const int64_t> members,
                                                 ffi::Span<const int64_t> places,
                                                 ffi::Span<const int64_t>, int64_t rows,
                                                 std::string_view label, std::string_view algorithm,
                                                 int64_t call, ffi::Span<const int64_t> devices) {
  auto state = std::make_unique<State>();
  Site& site = state->site;
  site.label = label;
  const ffi::Error error = Guarded(site, [&] {
    site.collective = static_cast<Collective>(collective);
    site.op = static_cast<Op>(op);
    site.members.assign(members.begin(), members.end());
    site.places.assign(places.begin(), places.end());
    site.devices.assign(devices.begin(), devices.end());
    site.rows = rows;
    site.algorithm = algorithm;
    const Patience patience = Patience::FromEnvironment();
    site.timeout_s = patience.timeout.count();
    site.warn_s = patience.warn.count();
    site.call = Mix(HashOf(site.label), static_cast<uint64_t>(call));
    std::string fault = Schedule::Decode(program.begin(), program.size(), &site.schedule);
    if (fault.empty()) fault = site.Validate();
    if (!fault.empty()) throw std::runtime_error(fault);
    if (site.HasNodes()) state->nodes = ByDevice(site, site.AllNodes());
    if (site.HasAligned()) state->aligned = ByDevice(site, site.AllAligned());
  });
  if (error.failure()) return ffi::Unexpected(error);
  return state;
}

ffi::Error Prepare(State* state, XlaCommunicators xla) {
  const Site& site = state->site;
  return Guarded(site, [&] {
    if (!xla.there()) return;
    const Ways ways = ChooseWays(*TheWorld());
    if (site.HasNodes() && ways.inside == Way::kNccl) {
      xla.Request(state->nodes, kNodeCommunicators);
    }
    if (site.HasAligned() && ways.between == Way::kNccl) {
      xla.Request(state->aligned, kAlignedCommunicators);
    }
  });
}

// The communicator of the team that the device belongs to in one kind of phase.
struct Link {
  const Site& site;
  const XlaCommunicators& xla;
  int64_t device;

  std::shared_ptr<Communicator> Make(Way way, const Site::Team& team,
                                     const std::vector<Site::Team>& all, int64_t id) const {
    const std::vector<int64_t> devices = site.DevicesOf(team);
    const std::shared_ptr<const World> world = TheWorld();
    if (way != Way::kNccl || !xla.there()) {
      return Connect(world, way, devices, device, site.timeout_s);
    }
    std::string why;
    const NcclLibrary* library = NcclLibrary::Find(world->nccl_file, &why);
    if (library == nullptr) throw std::runtime_error(why);
    const Site::Team there = ByDevice(site, team);
    std::vector<int> order;
    for (const int64_t member : team) {
      const auto at = std::find(there.begin(), there.end(), member);
      order.push_back(static_cast<int>(at - there.begin()));
    }
    const auto me = std::find(devices.begin(), devices.end(), device);
    const NcclLibrary::Comm comm = xla.Get(all, id);
    if (comm == nullptr) throw std::runtime_error("XLA has given no communicator for this device");
    return std::make_shared<NcclCommunicator>(*library, comm, NcclCommunicator::Owner::kXla,
                                              me - devices.begin(), std::move(order));
  }
};

struct Links {
  std::shared_ptr<Communicator> node, aligned;
};

Links Connected(const State& state, const Site::Seat& seat, const XlaCommunicators& xla,
                int64_t device) {
  const Site& site = state.site;
  const Ways ways = ChooseWays(*TheWorld());
  const Link link{site, xla, device};
  Links links;
  if (site.HasNodes()) {
    links.node = link.Make(ways.inside, site.NodeOf(seat), state.nodes, kNodeCommunicators);
  }
  if (site.HasAligned()) {
    links.aligned =
        link.Make(ways.between, site.AlignedWith(seat), state.aligned, kAlignedCommunicators);
  }
  return links;
}

// The device, while a call has it to itself: programs that several threads launch at once on it
// take turns.
class ThisDevice {
 public:
  explicit ThisDevice(int32_t ordinal) : lock_(Turn(ordinal)) {
    CheckDevice(ordinal);
    if (CurrentDevice() != ordinal) SetDevice(ordinal);
    id = TheWorld()->DeviceOf(ordinal);
  }

  int64_t id = -1;  // in JAX

 private:
  static std::mutex& Turn(int32_t ordinal) {
    static std::mutex all;
    static auto* turns = new std::map<int32_t, std::mutex>;
    std::lock_guard<std::mutex> lock(all);
    return (*turns)[ordinal];
  }

  std::lock_guard<std::mutex> lock_;
};

// Meets the other devices before anything is enqueued: no graph is being recorded then.
ffi::Error Initialize(State* state, int32_t ordinal, XlaCommunicators xla) {
  const Site& site = state->site;
  return Guarded(site, [&] {
    if (xla.there()) return;
    const ThisDevice device(ordinal);
    Connected(*state, site.Find(device.id), xla, device.id);
  });
}

// Whether some collective within nodes or between them is made of messages.
bool Exchanges(const Site& site, const Links& links, const Arithmetic& arithmetic) {
  for (const Phase& phase : site.schedule.phases) {
    if (!phase.intra && !phase.inter) continue;
    const Communicator& communicator = phase.intra ? *links.node : *links.aligned;
    if (!communicator.Collects(phase.collective, arithmetic)) return true;
  }
  return false;
}

void CheckScratch(const Site& site, const Plan& plan, bool exchanges, size_t nbytes) {
  const size_t needed = exchanges ? plan.scratch.nbytes() : plan.scratch.exchange.begin;
  if (nbytes >= needed) return;
  throw std::runtime_error(
      site.label + ": got " + std::to_string(nbytes) + " bytes of scratch, expected " +
      std::to_string(needed) +
      ": pccl_jax's Python files and its GPU module are of different versions; "
      "build it anew");
}

std::atomic<int64_t> num_recorded{0};

// Runs the execution under the eyes of the watchdog, where the device may come to wait for others.
void EnqueueWatched(const Site& site, const Execution::Setup& setup, const Links& links,
                    int32_t ordinal, void* stream) {
  if (IsCapturing(stream)) ++num_recorded;
  Watched watched;
  for (const auto& communicator : {links.node, links.aligned}) {
    if (communicator != nullptr && communicator->Capturable()) {
      watched.communicators.push_back(communicator);
    }
  }
  if (watched.communicators.empty()) return Execution(setup).Enqueue(stream);
  watched.name = site.label + " by " + site.algorithm + ", rank " + std::to_string(setup.rank) +
                 " of " + std::to_string(site.schedule.ranks());
  watched.ordinal = ordinal;
  watched.warn_s = site.warn_s;
  watched.timeout_s = site.timeout_s;
  Watch watch(stream);
  Execution(setup).Enqueue(stream);
  watch.Enqueued(std::move(watched));
}

void Enqueue(const State& state, int32_t ordinal, void* stream, const XlaCommunicators& xla,
             const ffi::AnyBuffer& x, const ffi::AnyBuffer& out, const Scratch8& scratch) {
  const ThisDevice device(ordinal);
  const Site& site = state.site;
  const Site::Seat seat = site.Find(device.id);
  Shape shape{site.collective,  site.group_places(seat.group),   site.rows, x.size_bytes(),
              out.size_bytes(), ffi::ByteWidth(x.element_type())};
  Plan plan;
  const std::string fault = Plan::Make(site.schedule, shape, &plan);
  if (!fault.empty()) throw std::runtime_error(fault);
  Arithmetic arithmetic;
  if (site.collective != Collective::kAllGather) {
    const std::optional<DType> dtype = ReducibleType(x.element_type());
    if (!dtype) throw std::runtime_error("no kernel reduces this element type");
    arithmetic = {*dtype, site.op};
  }
  const Links links = Connected(state, seat, xla, device.id);
  CheckScratch(site, plan, Exchanges(site, links, arithmetic), scratch.size_bytes());
  Execution::Setup setup;
  setup.schedule = &site.schedule;
  setup.plan = &plan;
  setup.shape = shape;
  setup.arithmetic = arithmetic;
  setup.call = site.call;
  setup.rank = seat.rank;
  setup.node = links.node.get();
  setup.aligned = links.aligned.get();
  setup.in = static_cast<const char*>(x.untyped_data());
  setup.out = static_cast<char*>(out.untyped_data());
  setup.scratch = reinterpret_cast<char*>(scratch.typed_data());
  EnqueueWatched(site, setup, links, ordinal, stream);
}

ffi::Error Execute(State* state, int32_t ordinal, void* stream, XlaCommunicators xla,
                   ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> out,
                   ffi::Result<Scratch8> scratch) {
  return Guarded(state->site, [&] { Enqueue(*state, ordinal, stream, xla, x, *out, *scratch); });
}

XLA_FFI_DEFINE_HANDLER(
    kInstantiate, Instantiate,
    BindCallAttributes(ffi::Ffi::BindInstantiate()).Attr<ffi::Span<const int64_t>>("devices"));

XLA_FFI_DEFINE_HANDLER(kPrepare, Prepare,
                       ffi::Ffi::BindPrepare().Ctx<ffi::State<State>>().Ctx<XlaCommunicators>());

XLA_FFI_DEFINE_HANDLER(kInitialize, Initialize,
                       ffi::Ffi::BindInitialize()
                           .Ctx<ffi::State<State>>()
                           .Ctx<ffi::DeviceOrdinal>()
                           .Ctx<XlaCommunicators>());

auto BindExecute() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::State<State>>()
      .Ctx<ffi::DeviceOrdinal>()
      .Ctx<ffi::PlatformStream<void*>>()
      .Ctx<XlaCommunicators>()
      .Arg<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Ret<Scratch8>();
}

XLA_FFI_DEFINE_HANDLER(kExecute, Execute, BindExecute());
XLA_FFI_DEFINE_HANDLER(kRecordedExecute, Execute, BindExecute(),
                       {ffi::Traits::kCmdBufferCompatible});

ffi::TypeInfo kStateInfo = ffi::MakeTypeInfo<State>();

}  // namespace

HandlerTable Handlers(bool recorded) {
  return {reinterpret_cast<void*>(kInstantiate),
          reinterpret_cast<void*>(kPrepare),
          reinterpret_cast<void*>(kInitialize),
          recorded ? reinterpret_cast<void*>(kRecordedExecute) : reinterpret_cast<void*>(kExecute),
          &State::id,
          &kStateInfo};
}

int64_t NumRecorded() { return num_recorded.load(); }
int FfiApiMajor() { return XLA_FFI_API_MAJOR; }
int FfiApiMinor() { return XLA_FFI_API_MINOR; }

}  // namespace pccl::gpu
