// The side of XLA: calls the handlers, stage by stage, for every device of a mesh, each on a thread
// of its own. Of XLA's interface there is what our handlers use.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ffi/gpu/handlers.h"
#include "ffi/gpu/handlers_extension.h"
#include "ffi/gpu/nccl_library.h"
#include "ffi/gpu/world.h"
#include "tests/gpu/fake/deadlock.h"
#include "tests/gpu/fake/device.h"
#include "tests/gpu/fake/faults.h"
#include "tests/gpu/fake/knobs.h"
#include "tests/gpu/fake/mpi.h"
#include "xla/ffi/api/c_api.h"

// What XLA calls an error and an execution context is up to it.
struct XLA_FFI_Error {
  std::string text;
};

struct XLA_FFI_ExecutionContext {
  void** state;
  void* stream;
  int32_t ordinal;
  pccl::gpu::XlaCollectivesExtension* extension;  // null where there is none
};

namespace {

using pccl::gpu::NcclLibrary;
using Groups = std::vector<std::vector<int64_t>>;

// The function of newer versions of the interface, after all that the headers know.
struct Api {
  XLA_FFI_Api base;
  pccl::gpu::XlaFindExtension* find_extension;
};

XLA_FFI_Error* CreateError(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{args->message};
}
void GetMessage(XLA_FFI_Error_GetMessage_Args* args) { args->message = args->error->text.c_str(); }
void DestroyError(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

XLA_FFI_Error* SetState(XLA_FFI_State_Set_Args* args) {
  *args->ctx->state = args->state;
  return nullptr;
}
XLA_FFI_Error* GetState(XLA_FFI_State_Get_Args* args) {
  args->state = *args->ctx->state;
  return nullptr;
}
XLA_FFI_Error* GetStream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = args->ctx->stream;
  return nullptr;
}
XLA_FFI_Error* GetOrdinal(XLA_FFI_DeviceOrdinal_Get_Args* args) {
  args->device_ordinal = args->ctx->ordinal;
  return nullptr;
}
XLA_FFI_Error* FindExtension(pccl::gpu::XlaFindExtensionArgs* args) {
  args->extension = args->type == 129 && args->context->extension != nullptr
                        ? &args->context->extension->base
                        : nullptr;
  return nullptr;
}

Api MakeApi(int minor) {
  Api api{};
  api.base.struct_size = minor >= 4 ? sizeof api : sizeof api.base;
  api.base.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, 0, minor};
  api.base.XLA_FFI_Error_Create = CreateError;
  api.base.XLA_FFI_Error_GetMessage = GetMessage;
  api.base.XLA_FFI_Error_Destroy = DestroyError;
  api.base.XLA_FFI_State_Set = SetState;
  api.base.XLA_FFI_State_Get = GetState;
  api.base.XLA_FFI_Stream_Get = GetStream;
  api.base.XLA_FFI_DeviceOrdinal_Get = GetOrdinal;
  api.find_extension = FindExtension;
  return api;
}

// XLA's communicators of one program.
struct Cliques {
  std::mutex mutex;
  std::map<std::pair<int64_t, Groups>, std::vector<NcclLibrary::UniqueId>> requested;
  std::map<std::pair<int64_t, std::pair<int64_t, Groups>>, void*> made;  // by logical id
};

struct CliquesOfDevice {
  Cliques* cliques;
  int64_t logical_id;
};

std::atomic<int> num_given{0};  // communicators of XLA's that were asked for

Groups Read(const pccl::gpu::XlaCommunicatorArgs& args) {
  Groups groups;
  for (size_t i = 0; i < args.num_groups; ++i) {
    groups.emplace_back(args.groups[i].ids, args.groups[i].ids + args.groups[i].size);
  }
  return groups;
}

XLA_FFI_Error* Request(const pccl::gpu::XlaCollectivesExtension* self,
                       pccl::gpu::XlaCommunicatorArgs* args) {
  Cliques& cliques = *static_cast<CliquesOfDevice*>(self->state)->cliques;
  std::string why;
  std::lock_guard<std::mutex> lock(cliques.mutex);
  auto& ids = cliques.requested[{args->communication_id, Read(*args)}];
  while (ids.size() < args->num_groups) ids.push_back(NcclLibrary::Find("", &why)->NewId());
  return nullptr;
}

XLA_FFI_Error* Get(const pccl::gpu::XlaCollectivesExtension* self,
                   pccl::gpu::XlaCommunicatorArgs* args) {
  const CliquesOfDevice& mine = *static_cast<CliquesOfDevice*>(self->state);
  Cliques& cliques = *mine.cliques;
  const std::pair<int64_t, Groups> key{args->communication_id, Read(*args)};
  NcclLibrary::UniqueId id;
  const std::vector<int64_t>* group = nullptr;
  {
    std::lock_guard<std::mutex> lock(cliques.mutex);
    const auto requested = cliques.requested.find(key);
    if (requested == cliques.requested.end()) return new XLA_FFI_Error{"was not requested"};
    const auto made = cliques.made.find({mine.logical_id, key});
    if (made != cliques.made.end()) {
      args->communicator = made->second;
      return nullptr;
    }
    for (size_t g = 0; g < key.second.size(); ++g) {
      const auto& members = key.second[g];
      if (std::count(members.begin(), members.end(), mine.logical_id) == 0) continue;
      group = &members;
      id = requested->second[g];
    }
  }
  if (group == nullptr) return new XLA_FFI_Error{"in none of the groups"};
  std::string why;
  const auto rank = std::find(group->begin(), group->end(), mine.logical_id) - group->begin();
  args->communicator = NcclLibrary::Find("", &why)->Init(static_cast<int>(group->size()), id,
                                                         static_cast<int>(rank));
  ++num_given;
  std::lock_guard<std::mutex> lock(cliques.mutex);
  cliques.made[{mine.logical_id, key}] = args->communicator;
  return nullptr;
}

// Attributes as XLA passes them: sorted by name.
class Attributes {
 public:
  void Integer(const char* name, int64_t value) {
    integers_.push_back(value);
    scalars_.push_back({XLA_FFI_DataType_S64, &integers_.back()});
    Add(name, XLA_FFI_AttrType_SCALAR, &scalars_.back());
  }
  void Array(const char* name, const int64_t* data, size_t size) {
    arrays_.push_back({XLA_FFI_DataType_S64, size, const_cast<int64_t*>(data)});
    Add(name, XLA_FFI_AttrType_ARRAY, &arrays_.back());
  }
  void Text(const char* name, const char* text) {
    texts_.push_back({text, std::strlen(text)});
    Add(name, XLA_FFI_AttrType_STRING, &texts_.back());
  }
  XLA_FFI_Attrs Get() {
    for (auto& [name, value] : values_) {
      names_.push_back({name.c_str(), name.size()});
      name_pointers_.push_back(&names_.back());
      types_.push_back(value.first);
      pointers_.push_back(value.second);
    }
    XLA_FFI_Attrs attrs{};
    attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
    attrs.size = static_cast<int64_t>(values_.size());
    attrs.types = types_.data();
    attrs.names = name_pointers_.data();
    attrs.attrs = pointers_.data();
    return attrs;
  }

 private:
  void Add(const char* name, XLA_FFI_AttrType type, void* value) { values_[name] = {type, value}; }

  std::map<std::string, std::pair<XLA_FFI_AttrType, void*>> values_;
  std::deque<int64_t> integers_;
  std::deque<XLA_FFI_Scalar> scalars_;
  std::deque<XLA_FFI_Array> arrays_;
  std::deque<XLA_FFI_ByteSpan> texts_, names_;
  std::vector<XLA_FFI_ByteSpan*> name_pointers_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<void*> pointers_;
};

XLA_FFI_Buffer BufferOf(int32_t type, void* data, int64_t* count) {
  XLA_FFI_Buffer buffer{};
  buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
  buffer.dtype = static_cast<XLA_FFI_DataType>(type);
  buffer.data = data;
  buffer.rank = 1;
  buffer.dims = count;
  return buffer;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

struct FakeProgram {
  int64_t collective, op, rows;
  const int64_t* program;
  size_t program_size;
  const int64_t *members, *places;
  size_t num_members;
  const int64_t* devices;  // ids, by logical id
  size_t num_devices;
  int32_t dtype;  // XLA's
  int64_t in_count, out_count, scratch_bytes;
  int32_t ffi_minor, extension_minor;  // of XLA; the latter negative for no extension
  int64_t first_id;                    // device ordinal k has id first_id + k
  int32_t missing;                     // the last device takes part in this many of two runs less
  int32_t hangs;                       // whether nobody notices that all wait
  int32_t again;                       // whether who fails tries once more
  int32_t threads;                     // that run it at once on each device
  int32_t other_site;                  // whether the last device runs another call of the program
};

}  // extern "C"

namespace {

struct Device {
  const FakeProgram* program;
  Api* api;
  XLA_FFI_Attrs attrs;
  void** state;
  Cliques* cliques;
  int64_t logical_id;
  const void* in;
  void *out, *scratch;

  std::string Call(void* handler, XLA_FFI_ExecutionStage stage, XLA_FFI_ExecutionContext* context,
                   bool with_buffers) const {
    int64_t in_count = program->in_count, out_count = program->out_count;
    int64_t scratch_bytes = program->scratch_bytes;
    XLA_FFI_Buffer x = BufferOf(program->dtype, const_cast<void*>(in), &in_count);
    XLA_FFI_Buffer results[2] = {BufferOf(program->dtype, out, &out_count),
                                 BufferOf(XLA_FFI_DataType_U8, scratch, &scratch_bytes)};
    XLA_FFI_ArgType arg_type = XLA_FFI_ArgType_BUFFER;
    XLA_FFI_RetType ret_types[2] = {XLA_FFI_RetType_BUFFER, XLA_FFI_RetType_BUFFER};
    void* args[1] = {&x};
    void* rets[2] = {&results[0], &results[1]};
    XLA_FFI_CallFrame frame{};
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api = &api->base;
    frame.ctx = context;
    frame.stage = stage;
    frame.attrs = attrs;
    frame.args.struct_size = XLA_FFI_Args_STRUCT_SIZE;
    frame.rets.struct_size = XLA_FFI_Rets_STRUCT_SIZE;
    if (with_buffers) {
      frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, 1, &arg_type, args};
      frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, 2, ret_types, rets};
    }
    XLA_FFI_Error* error = reinterpret_cast<XLA_FFI_Handler*>(handler)(&frame);
    if (error == nullptr) return "";
    const std::string text = error->text;
    delete error;
    return text;
  }

  int Runs() const {
    const bool last = logical_id == static_cast<int64_t>(program->num_devices) - 1;
    return last ? 2 - program->missing : 2;
  }

  // All stages of one run.
  std::string Once(XLA_FFI_ExecutionContext* context) const {
    const pccl::gpu::HandlerTable handlers = pccl::gpu::Handlers(false);
    std::string error = Call(handlers.prepare, XLA_FFI_ExecutionStage_PREPARE, context, false);
    if (error.empty()) {
      error = Call(handlers.initialize, XLA_FFI_ExecutionStage_INITIALIZE, context, true);
    }
    if (error.empty()) {
      error = Call(handlers.execute, XLA_FFI_ExecutionStage_EXECUTE, context, true);
    }
    return error;
  }

  std::string Run() const {
    const int64_t id = program->devices[static_cast<size_t>(logical_id)];
    const auto ordinal = static_cast<int32_t>(id - program->first_id);
    fake::Reset(-1, false);
    CliquesOfDevice mine{cliques, logical_id};
    pccl::gpu::XlaCollectivesExtension extension{
        {sizeof(pccl::gpu::XlaExtension), 129, 0, program->extension_minor, nullptr},
        &mine,
        Request,
        Get};
    XLA_FFI_ExecutionContext context{state, fake::NewStream(), ordinal,
                                     program->extension_minor < 0 ? nullptr : &extension};
    std::string error;
    for (int run = 0; run < Runs() && error.empty(); ++run) error = Once(&context);
    if (error.empty()) fake::Drain(context.stream);
    if (error.empty()) error = fake::Failure();
    return error.empty() || program->again == 0 ? error : Once(&context);
  }
};

void Fill(const FakeProgram& p, int64_t site, Attributes* attributes) {
  attributes->Integer("collective", p.collective);
  attributes->Integer("op", p.op);
  attributes->Array("program", p.program, p.program_size);
  attributes->Array("members", p.members, p.num_members);
  attributes->Array("places", p.places, p.num_members);
  attributes->Array("processes", p.places, p.num_members);
  attributes->Integer("rows", p.rows);
  attributes->Text("label", "collective over axis 'x'");
  attributes->Text("algorithm", "test");
  attributes->Integer("site", site);
  attributes->Array("devices", p.devices, p.num_devices);
}

// Every device is this process's; where NCCL is not asked for they reach each other by MPI.
pccl::gpu::World WorldOf(const FakeProgram& program) {
  static auto* network = new fake::MpiNetwork;
  pccl::gpu::World world;
  for (size_t k = 0; k < program.num_devices; ++k) {
    const auto ordinal = static_cast<int64_t>(k);
    world.device_of_ordinal[ordinal] = program.first_id + ordinal;
    world.owner_of[program.first_id + ordinal] = {0, ordinal};
  }
  world.mpi_rank = {0};
  if (fake::Knob("mpi program") != 0) world.mpi = std::make_unique<fake::Mpi>(network, 0);
  return world;
}

// Every device on threads of its own; those after the first of a device have memory of their own,
// in which they must find what the first has found.
void RunAll(const FakeProgram& program, const std::vector<Device>& devices,
            std::vector<std::string>* faults) {
  std::vector<std::thread> threads;
  std::vector<Device> each;
  const size_t out_bytes = static_cast<size_t>(program.out_count) * sizeof(int32_t);
  std::deque<std::vector<char>> memory;
  for (size_t i = 0; i < faults->size(); ++i) {
    each.push_back(devices[i % devices.size()]);
    if (i < devices.size()) continue;
    each[i].out = memory.emplace_back(out_bytes).data();
    each[i].scratch = memory.emplace_back(static_cast<size_t>(program.scratch_bytes)).data();
  }
  const size_t phantom = program.hangs != 0 ? 1000 : 0;  // who never comes to wait
  fake::TheDeadlock().Begin(static_cast<int>(faults->size() + phantom));
  for (size_t i = 0; i < faults->size(); ++i) {
    threads.emplace_back([&, i] {
      (*faults)[i] = each[i].Run();
      std::lock_guard<std::mutex> lock(fake::TheDeadlock().mutex);
      fake::TheDeadlock().Leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = devices.size(); i < each.size(); ++i) {
    const bool same = std::memcmp(each[i].out, each[i % devices.size()].out, out_bytes) == 0;
    if (!same) (*faults)[i] += "threads got different results";
  }
}

}  // namespace

extern "C" {

// How many communicators XLA has given so far.
int fake_num_given() { return num_given.load(); }

// As fake_run, by the handlers; buffers by logical id.
int fake_program(const FakeProgram* program, const void* const* in, void* const* out,
                 void* const* scratch, char* errors, size_t errors_size) {
  pccl::gpu::JoinWorld(WorldOf(*program));
  const pccl::gpu::HandlerTable handlers = pccl::gpu::Handlers(false);
  static_cast<XLA_FFI_TypeId*>(handlers.state_type_id)->type_id = 1;
  Api api = MakeApi(program->ffi_minor);
  Attributes attributes, others;
  Fill(*program, 1, &attributes);
  Fill(*program, 2, &others);
  void *state = nullptr, *other_state = nullptr;
  Cliques cliques;
  std::vector<Device> devices;
  const XLA_FFI_Attrs attrs = attributes.Get(), other_attrs = others.Get();
  for (size_t i = 0; i < program->num_devices; ++i) {
    devices.push_back({program, &api, attrs, &state, &cliques, static_cast<int64_t>(i), in[i],
                       out[i], scratch[i]});
  }
  Device other = devices.back();
  other.attrs = other_attrs;
  other.state = &other_state;
  if (program->other_site != 0) devices.back() = other;
  std::vector<std::string> faults(devices.size() * static_cast<size_t>(program->threads));
  for (const Device& device : {devices[0], other}) {
    XLA_FFI_ExecutionContext context{device.state, nullptr, 0, nullptr};
    faults[0] += device.Call(handlers.instantiate, XLA_FFI_ExecutionStage_INSTANTIATE, &context,
                             /*with_buffers=*/false);
  }
  if (faults[0].empty()) {
    RunAll(*program, devices, &faults);
    for (void* made : {state, other_state}) {
      static_cast<XLA_FFI_TypeInfo*>(handlers.state_type_info)->deleter(made);
    }
  }
  return fake::Report(faults, errors, errors_size);
}

}  // extern "C"
#pragma GCC visibility pop
