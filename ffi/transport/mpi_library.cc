#include "ffi/transport/mpi_library.h"

#include <dlfcn.h>

#include <climits>
#include <stdexcept>
#include <type_traits>

namespace pccl {
namespace {

// H is the handle type of the ABI: int for MPICH and Intel MPI, void* for Open MPI and the
// standard ABI. Constants are those that the ABIs freeze.
template <class H>
class Library final : public MpiLibrary {
 public:
  Library(void* file, const char* name, H byte, void* status_ignore, int any_source)
      : file_(file),
        name_(name),
        byte_(byte),
        status_ignore_(status_ignore),
        any_source_(any_source) {
    Load(file, isend_, "MPI_Isend");
    Load(file, irecv_, "MPI_Irecv");
    Load(file, test_, "MPI_Test");
    Load(file, cancel_, "MPI_Cancel");
    Load(file, improbe_, "MPI_Improbe");
    Load(file, mrecv_, "MPI_Mrecv");
    Load(file, error_string_, "MPI_Error_string");
    Load(file, create_keyval_, "MPI_Comm_create_keyval");
    Load(file, set_attr_, "MPI_Comm_set_attr");
    Load(file, finalized_, "MPI_Finalized");
    Load(file, comm_group_, "MPI_Comm_group");
    Load(file, group_incl_, "MPI_Group_incl");
    Load(file, group_free_, "MPI_Group_free");
    Load(file, comm_create_group_, "MPI_Comm_create_group");
    Load(file, comm_free_, "MPI_Comm_free");
    Load(file, comm_get_errhandler_, "MPI_Comm_get_errhandler");
    Load(file, comm_set_errhandler_, "MPI_Comm_set_errhandler");
    Load(file, errhandler_free_, "MPI_Errhandler_free");
    Load(file, ibarrier_, "MPI_Ibarrier");
    Load(file, iallgather_, "MPI_Iallgather");
    Load(file, ireduce_scatter_block_, "MPI_Ireduce_scatter_block");
    Load(file, iallreduce_, "MPI_Iallreduce");
  }

  Handle Isend(const void* data, size_t nbytes, int to, int tag, Handle comm) override {
    H request{};
    Check(isend_(data, Count(nbytes), byte_, to, tag, Narrow(comm), &request));
    return Widen(request);
  }

  Handle Irecv(void* data, size_t nbytes, int from, int tag, Handle comm) override {
    H request{};
    Check(irecv_(data, Count(nbytes), byte_, from, tag, Narrow(comm), &request));
    return Widen(request);
  }

  bool Test(Handle* request) override {
    H handle = Narrow(*request);
    int done = 0;
    Check(test_(&handle, &done, status_ignore_));
    *request = Widen(handle);
    return done != 0;
  }

  void CancelReceive(Handle* request) override {
    H handle = Narrow(*request);
    Check(cancel_(&handle));
    *request = Widen(handle);
  }

  bool ReceiveFromAny(void* data, size_t nbytes, int tag, Handle comm) override {
    int found = 0;
    H message{};
    Check(improbe_(any_source_, tag, Narrow(comm), &found, &message, status_ignore_));
    if (found != 0) Check(mrecv_(data, Count(nbytes), byte_, &message, status_ignore_));
    return found != 0;
  }

  Handle CreateCommunicator(const std::vector<int>& ranks, int tag, Handle parent) override {
    H all{}, group{}, comm{}, handler{};
    Check(comm_group_(Narrow(parent), &all));
    Check(group_incl_(all, static_cast<int>(ranks.size()), ranks.data(), &group));
    Check(comm_create_group_(Narrow(parent), group, tag, &comm));
    Check(group_free_(&group));
    Check(group_free_(&all));
    Check(comm_get_errhandler_(Narrow(parent), &handler));
    Check(comm_set_errhandler_(comm, handler));
    Check(errhandler_free_(&handler));
    return Widen(comm);
  }

  void FreeCommunicator(Handle comm) override {
    int ended = 0;
    finalized_(&ended);
    H handle = Narrow(comm);
    if (ended == 0) comm_free_(&handle);
  }

  Handle Ibarrier(Handle comm) override {
    H request{};
    Check(ibarrier_(Narrow(comm), &request));
    return Widen(request);
  }

  Handle Iallgather(const void* in, void* out, size_t count, Handle type, Handle comm) override {
    H request{};
    Check(iallgather_(in, Count(count), Narrow(type), out, Count(count), Narrow(type), Narrow(comm),
                      &request));
    return Widen(request);
  }

  Handle IreduceScatterBlock(const void* in, void* out, size_t count, Handle type, Handle op,
                             Handle comm) override {
    H request{};
    Check(ireduce_scatter_block_(in, out, Count(count), Narrow(type), Narrow(op), Narrow(comm),
                                 &request));
    return Widen(request);
  }

  Handle Iallreduce(const void* in, void* out, size_t count, Handle type, Handle op,
                    Handle comm) override {
    H request{};
    Check(iallreduce_(in, out, Count(count), Narrow(type), Narrow(op), Narrow(comm), &request));
    return Widen(request);
  }

  // Finalising deletes the attributes of MPI_COMM_SELF first of all.
  void BeforeFinalize(Handle comm_self, void (*function)()) override {
    int key = 0;
    Check(create_keyval_(&DoNotCopy, &CallAttribute, &key, nullptr));
    Check(set_attr_(Narrow(comm_self), key, reinterpret_cast<void*>(function)));
  }

  // MPICH and its relatives have one function for all kinds of GPU, Open MPI one for each.
  bool KnowsGpus(bool amd) const override {
    constexpr int kCuda = 0, kHip = 2;
    using Query = int (*)();
    using QueryKind = int (*)(int, int*);
    int found = 0;
    if (const auto query = Optional<QueryKind>("MPIX_GPU_query_support")) {
      return query(amd ? kHip : kCuda, &found) == 0 && found != 0;
    }
    const auto query = Optional<Query>(amd ? "MPIX_Query_rocm_support" : "MPIX_Query_cuda_support");
    return query != nullptr && query() != 0;
  }

  const char* name() const override { return name_; }

 private:
  static int DoNotCopy(H, int, void*, void*, void*, int* copied) {
    *copied = 0;
    return 0;
  }
  static int CallAttribute(H, int, void* function, void*) {
    reinterpret_cast<void (*)()>(function)();
    return 0;
  }

  template <class F>
  static void Load(void* file, F& function, const char* symbol) {
    function = reinterpret_cast<F>(dlsym(file, symbol));
    if (function == nullptr) {
      throw std::runtime_error(std::string("pccl_jax: the MPI library has no ") + symbol);
    }
  }

  static int Count(size_t count) {
    if (count > INT_MAX) throw std::runtime_error("pccl_jax: a message of more than 2^31 items");
    return static_cast<int>(count);
  }

  static H Narrow(Handle handle) {
    if constexpr (std::is_pointer_v<H>) {
      return reinterpret_cast<H>(handle);
    } else {
      return static_cast<H>(handle);
    }
  }

  static Handle Widen(H handle) {
    if constexpr (std::is_pointer_v<H>) {
      return reinterpret_cast<Handle>(handle);
    } else {
      return handle;
    }
  }

  void Check(int code) const {
    if (code == 0) return;
    constexpr int kLongest = 8192;  // of any implementation's MPI_MAX_ERROR_STRING
    char text[kLongest] = "unknown error";
    int length = 0;
    error_string_(code, text, &length);
    throw std::runtime_error(std::string("pccl_jax: MPI: ") + text);
  }

  template <class F>
  F Optional(const char* symbol) const {
    return reinterpret_cast<F>(dlsym(file_, symbol));
  }

  void* file_;
  const char* name_;
  H byte_;
  void* status_ignore_;
  int any_source_;
  int (*isend_)(const void*, int, H, int, int, H, H*);
  int (*irecv_)(void*, int, H, int, int, H, H*);
  int (*test_)(H*, int*, void*);
  int (*cancel_)(H*);
  int (*improbe_)(int, int, H, int*, H*, void*);
  int (*mrecv_)(void*, int, H, H*, void*);
  int (*error_string_)(int, char*, int*);
  int (*create_keyval_)(int (*)(H, int, void*, void*, void*, int*), int (*)(H, int, void*, void*),
                        int*, void*);
  int (*set_attr_)(H, int, void*);
  int (*finalized_)(int*);
  int (*comm_group_)(H, H*);
  int (*group_incl_)(H, int, const int*, H*);
  int (*group_free_)(H*);
  int (*comm_create_group_)(H, H, int, H*);
  int (*comm_free_)(H*);
  int (*comm_get_errhandler_)(H, H*);
  int (*comm_set_errhandler_)(H, H);
  int (*errhandler_free_)(H*);
  int (*ibarrier_)(H, H*);
  int (*iallgather_)(const void*, int, H, void*, int, H, H, H*);
  int (*ireduce_scatter_block_)(const void*, void*, int, H, H, H, H*);
  int (*iallreduce_)(const void*, void*, int, H, H, H, H*);
};

int StandardAbiMajor(void* file) {
  using Function = int (*)(int*, int*);
  const auto function = reinterpret_cast<Function>(dlsym(file, "MPI_Abi_get_version"));
  int major = -1, minor = -1;
  if (function != nullptr) function(&major, &minor);
  return major;
}

}  // namespace

std::unique_ptr<MpiLibrary> MpiLibrary::Bind(const std::string& mpi4py_file, int any_source) {
  void* file = dlopen(mpi4py_file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (file == nullptr) {
    throw std::runtime_error("pccl_jax: " + mpi4py_file + " is not loaded; import mpi4py.MPI");
  }
  if (void* byte = dlsym(file, "ompi_mpi_byte")) {
    return std::make_unique<Library<void*>>(file, "openmpi", byte, nullptr, any_source);
  }
  if (StandardAbiMajor(file) > 0) {
    void* byte = reinterpret_cast<void*>(uintptr_t{0x247});
    return std::make_unique<Library<void*>>(file, "mpi-abi", byte, nullptr, any_source);
  }
  void* status_ignore = reinterpret_cast<void*>(uintptr_t{1});
  return std::make_unique<Library<int>>(file, "mpich", 0x4c00010d, status_ignore, any_source);
}

}  // namespace pccl
