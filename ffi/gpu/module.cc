// The Python module pccl_jax._pccl_cuda, or pccl_jax._pccl_rocm.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ffi/gpu/handlers.h"
#include "ffi/gpu/nccl_library.h"
#include "ffi/gpu/runtime.h"
#include "ffi/gpu/world.h"
#include "kernels/gpu/kernels.h"

#if defined(__HIP_PLATFORM_AMD__)
#define PCCL_GPU_MODULE _pccl_rocm
constexpr bool kAmd = true;
#else
#define PCCL_GPU_MODULE _pccl_cuda
constexpr bool kAmd = false;
#endif

namespace nb = nanobind;

namespace {

using pccl::gpu::World;
using Owners = std::map<int64_t, std::pair<int64_t, int64_t>>;

nb::dict Stages(bool recorded) {
  const pccl::gpu::HandlerTable table = pccl::gpu::Handlers(recorded);
  nb::dict stages;
  stages["instantiate"] = nb::capsule(table.instantiate);
  stages["prepare"] = nb::capsule(table.prepare);
  stages["initialize"] = nb::capsule(table.initialize);
  stages["execute"] = nb::capsule(table.execute);
  return stages;
}

nb::dict StateType() {
  const pccl::gpu::HandlerTable table = pccl::gpu::Handlers(false);
  nb::dict type;
  type["type_id"] = nb::capsule(table.state_type_id);
  type["type_info"] = nb::capsule(table.state_type_info);
  return type;
}

// Calls Python, from threads of XLA. The object is never freed: that would need the interpreter.
World::ExchangeId Calling(nb::object function) {
  if (function.is_none()) return nullptr;
  auto* kept = new nb::object(std::move(function));
  return [kept](const std::string& key, const std::string& id) {
    nb::gil_scoped_acquire gil;
    const nb::object ours = id.empty() ? nb::none() : nb::object(nb::bytes(id.data(), id.size()));
    const nb::bytes agreed = nb::cast<nb::bytes>((*kept)(key, ours));
    return std::string(agreed.c_str(), agreed.size());
  };
}

void JoinMpi(World* world, const nb::dict& mpi) {
  const auto file = nb::cast<std::string>(mpi["mpi4py_file"]);
  world->mpi = pccl::MpiLibrary::Bind(file, nb::cast<int>(mpi["any_source"]));
  world->comm = static_cast<int64_t>(nb::cast<uint64_t>(mpi["comm"]));
  world->mpi_rank = nb::cast<std::vector<int64_t>>(mpi["mpi_rank"]);
  world->gpu_aware = world->mpi->KnowsGpus(kAmd);
}

std::string Join(int64_t process, std::map<int64_t, int64_t> ordinals, const Owners& owners,
                 nb::object exchange_id, std::string nccl_file, std::optional<nb::dict> mpi) {
  World world;
  world.process = process;
  world.device_of_ordinal = std::move(ordinals);
  for (const auto& [device, owner] : owners) world.owner_of[device] = {owner.first, owner.second};
  world.exchange_id = Calling(std::move(exchange_id));
  world.nccl_file = std::move(nccl_file);
  if (mpi) JoinMpi(&world, *mpi);
  const std::string text = world.mpi == nullptr ? "" : world.mpi->name();
  const bool aware = world.gpu_aware;
  pccl::gpu::JoinWorld(std::move(world));
  return aware ? text + ", GPU-aware" : text;
}

std::pair<bool, std::string> Nccl() {
  std::string why;
  const auto* library = pccl::gpu::NcclLibrary::Find(pccl::gpu::TheWorld()->nccl_file, &why);
  if (library == nullptr) return {false, why};
  return {true, library->version() + " (" + library->origin() + ")"};
}

// For checks of the kernels alone, on the default stream of the current device; pointers are the
// addresses of device buffers.
int Reduce(int dtype, int op, uintptr_t dst, const std::vector<uintptr_t>& sources, size_t count) {
  std::vector<const void*> srcs;
  for (const uintptr_t source : sources) srcs.push_back(reinterpret_cast<const void*>(source));
  return pccl_gpu_reduce(dtype, op, reinterpret_cast<void*>(dst), srcs.data(),
                         static_cast<int>(srcs.size()), count, nullptr);
}

int Permute(uintptr_t dst, uintptr_t src, int64_t rows, int64_t cols, size_t block_nbytes) {
  return pccl_gpu_permute(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), rows,
                          cols, block_nbytes, nullptr);
}

void Copy(uintptr_t dst, uintptr_t src, size_t nbytes) {
  pccl::gpu::CopyAsync(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), nbytes,
                       nullptr);
}

}  // namespace

NB_MODULE(PCCL_GPU_MODULE, m) {
  m.doc() = "The part of pccl_jax for GPUs: XLA FFI handlers and what they run on.";
  m.def(
      "handlers", &Stages, nb::arg("recorded") = false,
      "The stages of the FFI target for jax.ffi.register_ffi_target; `recorded`: whether calls may "
      "be recorded in CUDA graphs.");
  m.def("num_recorded", &pccl::gpu::NumRecorded, "How many calls were recorded in graphs so far.");
  m.def("state_type", &StateType, "The type of the target's state for jax.ffi.register_ffi_type.");
  m.def(
      "ffi_api_version",
      [] { return std::pair(pccl::gpu::FfiApiMajor(), pccl::gpu::FfiApiMinor()); },
      "Version (major, minor) of the XLA FFI headers this module was compiled with.");
  m.def("join", &Join, nb::arg("process"), nb::arg("ordinals"), nb::arg("owners"),
        nb::arg("exchange_id").none() = nb::none(), nb::arg("nccl_file") = "",
        nb::arg("mpi").none() = nb::none(),
        "Tells what the process is part of; returns the name of the MPI library, or ''.");
  m.def("nccl_version", &Nccl,
        "(True, version and file of the NCCL library in use) or (False, why there is none).");
  m.def("reduce", &Reduce, nb::arg("dtype"), nb::arg("op"), nb::arg("dst"), nb::arg("sources"),
        nb::arg("count"), "Enqueues one reduction; returns its code.");
  m.def("permute", &Permute, nb::arg("dst"), nb::arg("src"), nb::arg("rows"), nb::arg("cols"),
        nb::arg("block_nbytes"), "Enqueues one permutation of blocks; returns its code.");
  m.def("copy", &Copy, nb::arg("dst"), nb::arg("src"), nb::arg("nbytes"), "Enqueues a copy.");
  m.def(
      "synchronize", [] { pccl::gpu::Synchronize(nullptr); },
      nb::call_guard<nb::gil_scoped_release>(), "Waits for what was enqueued.");
}
