// The MPI library that mpi4py has loaded, whichever it is: no MPI header, no link to MPI.
#ifndef PCCL_FFI_TRANSPORT_MPI_LIBRARY_H_
#define PCCL_FFI_TRANSPORT_MPI_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pccl {

// The handful of functions the transport needs, with handles widened to integers: MPICH's are
// ints, Open MPI's and the MPI-5 standard ABI's are pointers. Thread safe where MPI was
// initialised with MPI_THREAD_MULTIPLE, which start-up checks. Every method throws
// std::runtime_error with MPI's own text where MPI reports an error. None blocks, except that
// ReceiveFromAny waits for a message that has begun to come, and CreateCommunicator for its
// processes.
class MpiLibrary {
 public:
  using Handle = int64_t;

  virtual ~MpiLibrary() = default;

  // Ranks and tags as in MPI; data is bytes, at most 2^31 - 1 of them. The buffer must stay
  // valid until Test says that the request is done.
  virtual Handle Isend(const void* data, size_t nbytes, int to, int tag, Handle comm) = 0;
  virtual Handle Irecv(void* data, size_t nbytes, int from, int tag, Handle comm) = 0;
  // Whether the request is done; if so, it is freed.
  virtual bool Test(Handle* request) = 0;
  // Gives up a receive. Afterwards Test says when its buffer is not written to any more: at once,
  // unless the message is coming in already.
  virtual void CancelReceive(Handle* request) = 0;
  // Receives a message with this tag that has come from anybody. Returns false where none has.
  // Finding and claiming it are one step: a receive from anybody after a probe never returned with
  // MPICH between hosts, whatever the probe had seen.
  virtual bool ReceiveFromAny(void* data, size_t nbytes, int tag, Handle comm) = 0;

  // A communicator of `ranks` of the parent, in that order. Blocks until all of them have called
  // it with the same tag; calls with different tags may overlap.
  virtual Handle CreateCommunicator(const std::vector<int>& ranks, int tag, Handle parent) = 0;
  // Does nothing after MPI has ended; reports no errors.
  virtual void FreeCommunicator(Handle comm) = 0;
  // As in MPI, `count` elements of `type` per process; at most 2^31 - 1.
  virtual Handle Ibarrier(Handle comm) = 0;
  virtual Handle Iallgather(const void* in, void* out, size_t count, Handle type, Handle comm) = 0;
  virtual Handle IreduceScatterBlock(const void* in, void* out, size_t count, Handle type,
                                     Handle op, Handle comm) = 0;
  virtual Handle Iallreduce(const void* in, void* out, size_t count, Handle type, Handle op,
                            Handle comm) = 0;

  // Has `function` called when MPI is finalised, before anything of it is gone.
  virtual void BeforeFinalize(Handle comm_self, void (*function)()) = 0;

  // Whether it says that messages may be in the memory of a GPU: an AMD one, or NVIDIA's.
  virtual bool KnowsGpus(bool amd) const = 0;

  // "mpich", "openmpi" or "mpi-abi".
  virtual const char* name() const = 0;

  // Binds to the library that the extension module mpi4py.MPI (its file) is linked to.
  static std::unique_ptr<MpiLibrary> Bind(const std::string& mpi4py_file, int any_source);
};

}  // namespace pccl

#endif  // PCCL_FFI_TRANSPORT_MPI_LIBRARY_H_
