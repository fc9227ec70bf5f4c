// The Python module pccl_jax._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include "ffi/handlers.h"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  m.doc() = "The compiled part of pccl_jax: XLA FFI handlers and what they run on.";
  m.def(
      "cpu_handlers",
      [] {
        nb::dict stages;
        stages["instantiate"] = nb::capsule(pccl::CpuHandlers().instantiate);
        stages["execute"] = nb::capsule(pccl::CpuHandlers().execute);
        return stages;
      },
      "The stages of the FFI target for jax.ffi.register_ffi_target.");
  m.def(
      "cpu_state_type",
      [] {
        nb::dict type;
        type["type_id"] = nb::capsule(pccl::CpuHandlers().state_type_id);
        type["type_info"] = nb::capsule(pccl::CpuHandlers().state_type_info);
        return type;
      },
      "The type of the target's state for jax.ffi.register_ffi_type.");
  m.def(
      "ffi_api_version", [] { return std::pair(pccl::FfiApiMajor(), pccl::FfiApiMinor()); },
      "Version (major, minor) of the XLA FFI headers this module was compiled with.");
}
