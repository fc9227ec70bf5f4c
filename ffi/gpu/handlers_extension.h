// XLA's own communicators: the "collectives" extension of its FFI, which jaxlib has from 0.11.2 on.
//
// We compile against older headers, so its C structures are written down here, as they are in XLA's
// collectives_c_api.h (xla/ffi/api/; extension versions 0.1 and 0.2 begin alike).
#ifndef PCCL_FFI_GPU_HANDLERS_EXTENSION_H_
#define PCCL_FFI_GPU_HANDLERS_EXTENSION_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace pccl::gpu {

struct XlaExtension {
  size_t struct_size;
  int64_t type;
  int32_t major_version, minor_version;
  const XlaExtension* next;
};

struct XlaFindExtensionArgs {
  size_t struct_size;
  void* extension_start;
  XLA_FFI_ExecutionContext* context;
  int64_t type;
  const XlaExtension* extension;  // out
};
using XlaFindExtension = XLA_FFI_Error*(XlaFindExtensionArgs*);

struct XlaReplicaGroup {
  const int64_t* ids;
  size_t size;
};

struct XlaCommunicatorArgs {
  size_t struct_size;
  void* extension_start;
  int32_t group_mode;
  const XlaReplicaGroup* groups;
  size_t num_groups;
  int64_t communication_id;
  void* communicator;  // out, of get only
};

struct XlaCollectivesExtension {
  XlaExtension base;
  void* state;
  XLA_FFI_Error* (*request)(const XlaCollectivesExtension*, XlaCommunicatorArgs*);
  XLA_FFI_Error* (*get)(const XlaCollectivesExtension*, XlaCommunicatorArgs*);
};

// The extension where XLA offers it, for one stage of one call.
class XlaCommunicators {
 public:
  using Groups = std::vector<std::vector<int64_t>>;

  XlaCommunicators() = default;
  XlaCommunicators(const XLA_FFI_Api* api, const XlaCollectivesExtension* extension)
      : api_(api), extension_(extension) {}

  bool there() const { return extension_ != nullptr; }
  // Has XLA make communicators of these groups of logical ids, which are apart from its own by
  // `id`. In the prepare stage only.
  void Request(const Groups& groups, int64_t id) const { Call(extension_->request, groups, id); }
  // This device's, as NCCL knows it. In later stages.
  void* Get(const Groups& groups, int64_t id) const { return Call(extension_->get, groups, id); }

 private:
  template <class Function>
  void* Call(Function* function, const Groups& groups, int64_t id) const {
    constexpr int32_t kFlattenedIds = 3;
    std::vector<XlaReplicaGroup> raw;
    for (const auto& group : groups) raw.push_back({group.data(), group.size()});
    XlaCommunicatorArgs args{};
    const bool gets = function == extension_->get;
    args.struct_size = gets ? sizeof args : offsetof(XlaCommunicatorArgs, communicator);
    args.group_mode = kFlattenedIds;
    args.groups = raw.data();
    args.num_groups = raw.size();
    args.communication_id = id;
    if (XLA_FFI_Error* error = function(extension_, &args)) {
      const std::string text = xla::ffi::internal::GetErrorMessage(api_, error);
      xla::ffi::internal::DestroyError(api_, error);
      throw std::runtime_error("XLA's communicators: " + text);
    }
    return args.communicator;
  }

  const XLA_FFI_Api* api_ = nullptr;
  const XlaCollectivesExtension* extension_ = nullptr;
};

// In versions 0.4 and 0.5 of the FFI the function that finds extensions is the first after those of
// 0.3, which is what we are compiled with.
inline XlaCommunicators FindXlaCommunicators(const XLA_FFI_Api* api,
                                             XLA_FFI_ExecutionContext* context) {
  static_assert(XLA_FFI_API_MAJOR == 0 && XLA_FFI_API_MINOR == 3,
                "compile against the headers of jaxlib 0.10.2");
  constexpr int64_t kCollectives = 129;
  constexpr size_t kEnd = XLA_FFI_STRUCT_SIZE(XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
  const XLA_FFI_Api_Version& version = api->api_version;
  if (version.major_version != 0 || version.minor_version < 4) return {};
  if (api->struct_size < kEnd + sizeof(void*)) return {};
  XlaFindExtension* find = nullptr;
  std::memcpy(&find, reinterpret_cast<const char*>(api) + kEnd, sizeof find);
  XlaFindExtensionArgs args{sizeof args, nullptr, context, kCollectives, nullptr};
  if (find == nullptr) return {};
  if (XLA_FFI_Error* error = find(&args)) {
    xla::ffi::internal::DestroyError(api, error);
    return {};
  }
  const XlaExtension* found = args.extension;
  if (found == nullptr || found->major_version != 0 || found->minor_version < 1) return {};
  return {api, reinterpret_cast<const XlaCollectivesExtension*>(found)};
}

}  // namespace pccl::gpu

namespace xla::ffi {

template <>
struct CtxDecoding<pccl::gpu::XlaCommunicators> {
  using Type = pccl::gpu::XlaCommunicators;
  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine&) {
    return pccl::gpu::FindXlaCommunicators(api, context);
  }
};

}  // namespace xla::ffi

#endif  // PCCL_FFI_GPU_HANDLERS_EXTENSION_H_
