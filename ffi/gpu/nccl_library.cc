#include "ffi/gpu/nccl_library.h"

#include <dlfcn.h>
#include <time.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ffi/environment.h"

namespace pccl::gpu {

struct NcclLibrary::Functions {
  // Passed by value, as the library's own structure is.
  struct Id {
    char internal[128];
  };

  int (*GetVersion)(int*);
  const char* (*GetErrorString)(int);
  int (*GetUniqueId)(Id*);
  int (*CommInitRank)(Comm*, int, Id, int);
  int (*CommUserRank)(Comm, int*);
  int (*CommCount)(Comm, int*);
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*Send)(const void*, size_t, int, int, Comm, Stream);
  int (*Recv)(void*, size_t, int, int, Comm, Stream);
  int (*AllGather)(const void*, void*, size_t, int, Comm, Stream);
  int (*ReduceScatter)(const void*, void*, size_t, int, int, Comm, Stream);
  int (*AllReduce)(const void*, void*, size_t, int, int, Comm, Stream);
  // Null in old versions.
  const char* (*GetLastError)(Comm);
  int (*CommGetAsyncError)(Comm, int*);

  // Returns the name of a function that is not there, or "".
  std::string Bind(void* library) {
    std::string missing;
    const auto bind = [&](const char* name, auto* function) {
      void* found = dlsym(library, name);
      if (found == nullptr) missing = name;
      std::memcpy(function, &found, sizeof found);
    };
    bind("ncclGetLastError", &GetLastError);
    bind("ncclCommGetAsyncError", &CommGetAsyncError);
    missing.clear();
    bind("ncclGetVersion", &GetVersion);
    bind("ncclGetErrorString", &GetErrorString);
    bind("ncclGetUniqueId", &GetUniqueId);
    bind("ncclCommInitRank", &CommInitRank);
    bind("ncclCommUserRank", &CommUserRank);
    bind("ncclCommCount", &CommCount);
    bind("ncclGroupStart", &GroupStart);
    bind("ncclGroupEnd", &GroupEnd);
    bind("ncclSend", &Send);
    bind("ncclRecv", &Recv);
    bind("ncclAllGather", &AllGather);
    bind("ncclReduceScatter", &ReduceScatter);
    bind("ncclAllReduce", &AllReduce);
    return missing;
  }
};

namespace {

// What calls on a communicator answer that does not block, as XLA's are where its flags say so: the
// state of the communicator tells when they are done.
constexpr int kInProgress = 7;
constexpr timespec kNap{0, 50'000};

#if defined(__HIP_PLATFORM_AMD__)
const char* const kNames[] = {"librccl.so.1", "libnccl.so.2"};
constexpr char kMissing[] = "RCCL was not found (";
constexpr char kAdvice[] = "). It comes with ROCm: install rccl; or name its file in ";
#else
const char* const kNames[] = {"libnccl.so.2", "librccl.so.1"};
constexpr char kMissing[] = "NCCL was not found (";
constexpr char kAdvice[] =
    "). Install it with jax: pip install 'jax[cuda13]'; or name its file in ";
#endif

struct Candidate {
  std::string name;
  int mode;
  std::string origin;
};

std::vector<Candidate> Candidates(const std::string& hint) {
  constexpr int kOpen = RTLD_NOW | RTLD_LOCAL;
  const char* chosen = std::getenv("PCCL_NCCL_LIBRARY");
  if (chosen != nullptr && *chosen != '\0') {
    return {{chosen, kOpen, std::string(chosen) + ", from PCCL_NCCL_LIBRARY"}};
  }
  std::vector<Candidate> all;
  for (const char* name : kNames) {
    all.push_back({name, kOpen | RTLD_NOLOAD, std::string(name) + ", already loaded"});
  }
  if (!hint.empty()) all.push_back({hint, kOpen, hint});
  for (const char* name : kNames) all.push_back({name, kOpen, name});
  return all;
}

}  // namespace

NcclLibrary::NcclLibrary(std::shared_ptr<const Functions> functions, std::string origin)
    : functions_(std::move(functions)), origin_(std::move(origin)) {}

std::unique_ptr<NcclLibrary> NcclLibrary::Load(const std::string& hint, std::string* why) {
  for (const Candidate& candidate : Candidates(hint)) {
    void* library = dlopen(candidate.name.c_str(), candidate.mode);
    if (library == nullptr) {
      const char* reason = dlerror();
      if ((candidate.mode & RTLD_NOLOAD) == 0) {
        *why += (why->empty() ? "" : "; ") + std::string(reason == nullptr ? "?" : reason);
      }
      continue;
    }
    auto functions = std::make_shared<Functions>();
    const std::string missing = functions->Bind(library);
    if (missing.empty()) {
      why->clear();
      return std::unique_ptr<NcclLibrary>(new NcclLibrary(functions, candidate.origin));
    }
    *why += (why->empty() ? "" : "; ") + candidate.name + " has no " + missing;
  }
  *why = kMissing + *why + kAdvice + "PCCL_NCCL_LIBRARY";
  return nullptr;
}

const NcclLibrary* NcclLibrary::Find(const std::string& hint, std::string* why) {
  static std::mutex mutex;
  static const NcclLibrary* found = nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  why->clear();
  if (found == nullptr) found = Load(hint, why).release();
  return found;
}

void NcclLibrary::Check(int code, const char* what) const {
  if (code == 0 || code == kInProgress) return;
  std::string text = std::string("NCCL: ") + what + ": " + functions_->GetErrorString(code);
  const char* last =
      functions_->GetLastError == nullptr ? nullptr : functions_->GetLastError(nullptr);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  throw std::runtime_error(text + "; NCCL_DEBUG=WARN prints more");
}

std::string NcclLibrary::version() const {
  int v = 0;
  Check(functions_->GetVersion(&v), "version");
  const int major = v >= 10000 ? v / 10000 : v / 1000;
  const int minor = v >= 10000 ? v % 10000 / 100 : v % 1000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(v % 100);
}

NcclLibrary::UniqueId NcclLibrary::NewId() const {
  Functions::Id raw = {};
  Check(functions_->GetUniqueId(&raw), "unique id");
  UniqueId id;
  std::memcpy(id.data(), raw.internal, id.size());
  return id;
}

NcclLibrary::Comm NcclLibrary::Init(int size, const UniqueId& id, int rank) const {
  Functions::Id raw;
  std::memcpy(raw.internal, id.data(), id.size());
  Comm comm = nullptr;
  Check(functions_->CommInitRank(&comm, size, raw, rank), "start of a communicator");
  return comm;
}

int NcclLibrary::RankIn(Comm comm) const {
  int rank = -1;
  Check(functions_->CommUserRank(comm, &rank), "rank");
  return rank;
}

int NcclLibrary::SizeOf(Comm comm) const {
  int size = -1;
  Check(functions_->CommCount(comm, &size), "size");
  return size;
}

void NcclLibrary::GroupStart() const { Check(functions_->GroupStart(), "start of a group"); }
void NcclLibrary::AbandonGroup() const { static_cast<void>(functions_->GroupEnd()); }

void NcclLibrary::GroupEnd(Comm comm) const {
  using Clock = std::chrono::steady_clock;
  int code = functions_->GroupEnd();
  const auto begin = Clock::now();
  const double timeout_s = SecondsFrom("PCCL_TIMEOUT_S", 300.0);
  while (code == kInProgress && functions_->CommGetAsyncError != nullptr) {
    Check(functions_->CommGetAsyncError(comm, &code), "state of a communicator");
    if (code != kInProgress) break;
    if (std::chrono::duration<double>(Clock::now() - begin).count() > timeout_s) {
      throw std::runtime_error(
          "NCCL: an operation has not begun within " + std::to_string(timeout_s) +
          " s (PCCL_TIMEOUT_S): does a rank of the communicator not take part?");
    }
    nanosleep(&kNap, nullptr);
  }
  Check(code, "end of a group");
}

std::string NcclLibrary::Trouble(Comm comm) const {
  int code = 0;
  if (functions_->CommGetAsyncError == nullptr) return "";
  if (functions_->CommGetAsyncError(comm, &code) != 0 || code == 0 || code == kInProgress)
    return "";
  return functions_->GetErrorString(code);
}

void NcclLibrary::Send(const void* data, size_t nbytes, int peer, Comm comm, Stream stream) const {
  Check(functions_->Send(data, nbytes, kInt8, peer, comm, stream), "send");
}

void NcclLibrary::Receive(void* data, size_t nbytes, int peer, Comm comm, Stream stream) const {
  Check(functions_->Recv(data, nbytes, kInt8, peer, comm, stream), "receive");
}

void NcclLibrary::AllGather(const void* in, void* out, size_t count, Type type, Comm comm,
                            Stream stream) const {
  Check(functions_->AllGather(in, out, count, type, comm, stream), "all-gather");
}

void NcclLibrary::ReduceScatter(const void* in, void* out, size_t count, Type type, Reduction op,
                                Comm comm, Stream stream) const {
  Check(functions_->ReduceScatter(in, out, count, type, op, comm, stream), "reduce-scatter");
}

void NcclLibrary::AllReduce(const void* in, void* out, size_t count, Type type, Reduction op,
                            Comm comm, Stream stream) const {
  Check(functions_->AllReduce(in, out, count, type, op, comm, stream), "all-reduce");
}

}  // namespace pccl::gpu
