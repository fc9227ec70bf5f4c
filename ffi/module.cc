// The Python module pccl_jax._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "ffi/handlers.h"
#include "ffi/kept_memory.h"
#include "ffi/leaving.h"
#include "ffi/progress.h"
#include "ffi/shared/board.h"
#include "ffi/shared/direct.h"
#include "ffi/world.h"

namespace nb = nanobind;

namespace {

nb::dict CpuStages(bool ordered) {
  const pccl::HandlerTable table = pccl::CpuHandlers();
  nb::dict stages;
  stages["instantiate"] = nb::capsule(table.instantiate);
  stages["execute"] = nb::capsule(ordered ? table.execute_ordered : table.execute);
  return stages;
}

nb::dict CpuStateType() {
  nb::dict type;
  type["type_id"] = nb::capsule(pccl::CpuHandlers().state_type_id);
  type["type_info"] = nb::capsule(pccl::CpuHandlers().state_type_info);
  return type;
}

// The segments that this process has created, by name, until it joins their worlds. Guarded by the
// GIL.
std::map<std::string, pccl::Segment>& OwnSegments() {
  static std::map<std::string, pccl::Segment> segments;
  return segments;
}

void CreateSegment(const std::string& name, size_t nbytes) {
  pccl::Segment segment = pccl::Segment::Create(name, pccl::SegmentBytes(nbytes));
  pccl::FormatSegment(segment.data(), nbytes);
  OwnSegments()[name] = std::move(segment);
}

std::pair<int64_t, std::string> JoinWorld(
    bool ordered, int64_t process, std::vector<int64_t> host_of, std::vector<int64_t> mpi_rank,
    const std::string& mpi4py_file, int any_source, uint64_t comm, uint64_t comm_self,
    int largest_tag, const std::map<int64_t, std::string>& segments,
    std::map<int64_t, uint64_t> types, std::map<int64_t, uint64_t> ops) {
  auto world = std::make_unique<pccl::World>();
  world->ordered = ordered;
  world->process = process;
  world->pid = getpid();
  world->host_of = std::move(host_of);
  world->mpi_rank = std::move(mpi_rank);
  world->mpi = pccl::MpiLibrary::Bind(mpi4py_file, any_source);
  world->comm = static_cast<int64_t>(comm);
  world->tags.largest = largest_tag;
  world->mpi_types = std::move(types);
  world->mpi_ops = std::move(ops);
  for (const auto& [owner, name] : segments) {
    world->shared.segments[owner] =
        owner == process ? std::move(OwnSegments().at(name)) : pccl::Segment::Attach(name);
    OwnSegments().erase(name);
  }
  std::vector<char*> shared;
  for (const auto& [owner, segment] : world->shared.segments) {
    if (pccl::Visible(segment.data())) world->visible.insert(owner);
    shared.push_back(segment.data());
  }
  if (!shared.empty()) pccl::ProbeDirectReads(world->shared.Of(process), shared);
  const std::string library = world->mpi->name();
  world->mpi->BeforeFinalize(static_cast<int64_t>(comm_self), &pccl::StopProgress);
  const int64_t id = pccl::JoinWorld(std::move(world));
  pccl::StartProgress();
  return {id, library};
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The compiled part of pccl_jax: XLA FFI handlers and what they run on.";
  m.def(
      "cpu_handlers", &CpuStages, nb::arg("ordered"),
      "The stages of an FFI target for jax.ffi.register_ffi_target: of pccl_ordered_collective, or "
      "of pccl_collective.");
  m.def("cpu_state_type", &CpuStateType,
        "The type of the target's state for jax.ffi.register_ffi_type.");
  m.def(
      "ffi_api_version", [] { return std::pair(pccl::FfiApiMajor(), pccl::FfiApiMinor()); },
      "Version (major, minor) of the XLA FFI headers this module was compiled with.");
  m.def("keep_freed_memory", &pccl::KeepFreedMemory, nb::arg("nbytes"),
        "Has the process keep so much of what it frees, in place of giving it back to the kernel.");
  m.def("create_segment", &CreateSegment, nb::arg("name"), nb::arg("nbytes"),
        "Creates this process's shared memory, of about nbytes bytes.");
  m.def("unlink_segment", &pccl::Segment::Unlink, nb::arg("name"),
        "Removes a segment's name; those who have mapped it keep it.");
  m.def("join_world", &JoinWorld, nb::arg("ordered"), nb::arg("process"), nb::arg("host_of"),
        nb::arg("mpi_rank"), nb::arg("mpi4py_file"), nb::arg("any_source"), nb::arg("comm"),
        nb::arg("comm_self"), nb::arg("largest_tag"), nb::arg("segments"),
        nb::arg("types") = std::map<int64_t, uint64_t>(),
        nb::arg("ops") = std::map<int64_t, uint64_t>(),
        "Connects this process to the others: of the program, or of a communicator, whose "
        "collectives are ordered. Returns the world's id and the name of the MPI library.");
  m.def("leave_world", &pccl::LeaveWorld, nb::arg("id"),
        "Forgets a world; programs that use it keep it.");
  m.def("note_failure", &pccl::NoteFailure,
        "Says that the other processes may not end with this one.");
  m.def("leave", &pccl::Leave, nb::arg("reason"),
        "To be called when the program ends, with the exception that ends it or an empty text.");
}
