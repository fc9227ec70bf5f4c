// NCCL, or AMD's RCCL, whichever copy the process has: no header, no link.
#ifndef PCCL_FFI_GPU_NCCL_LIBRARY_H_
#define PCCL_FFI_GPU_NCCL_LIBRARY_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "ffi/gpu/runtime.h"

namespace pccl::gpu {

// The dozen functions we call. Methods throw std::runtime_error with the library's own text where
// it reports an error, and may be called from any thread. Communication is only enqueued.
class NcclLibrary {
 public:
  using Comm = void*;                      // its communicator, of one device
  using UniqueId = std::array<char, 128>;  // names a communicator that is about to be made
  // Its codes, which are the same in every version.
  enum Type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kHalf, kFloat, kDouble, kBfloat16 };
  enum Reduction { kSum, kProd, kMax, kMin };

  // Where it was found, e.g. "libnccl.so.2, already loaded", and its version, e.g. "2.28.3".
  const std::string& origin() const { return origin_; }
  std::string version() const;

  UniqueId NewId() const;
  // Waits for all `size` members.
  Comm Init(int size, const UniqueId& id, int rank) const;
  int RankIn(Comm comm) const;
  int SizeOf(Comm comm) const;

  // Runs `calls`, which are one operation on `comm`. NCCL's group is the thread's, also for XLA: it
  // is ended where one of them fails, too, or whatever comes after it would never begin.
  template <class Calls>
  void Grouped(Comm comm, Calls&& calls) const {
    GroupStart();
    try {
      calls();
    } catch (...) {
      AbandonGroup();
      throw;
    }
    GroupEnd(comm);
  }
  void Send(const void* data, size_t nbytes, int peer, Comm comm, Stream stream) const;
  void Receive(void* data, size_t nbytes, int peer, Comm comm, Stream stream) const;
  // `count` elements of the smaller array.
  void AllGather(const void* in, void* out, size_t count, Type type, Comm comm,
                 Stream stream) const;
  void ReduceScatter(const void* in, void* out, size_t count, Type type, Reduction op, Comm comm,
                     Stream stream) const;
  void AllReduce(const void* in, void* out, size_t count, Type type, Reduction op, Comm comm,
                 Stream stream) const;

  // What has gone wrong on a communicator since it was made, e.g. that a peer is gone; "" if
  // nothing. May be called from any thread while communication is on its way.
  std::string Trouble(Comm comm) const;

  // The library of this process, found once: PCCL_NCCL_LIBRARY, else the copy that is loaded
  // already (XLA's), else `hint` (a path; may be empty), else what the loader finds. Null, and the
  // reason in *why, where there is none. Never unloaded.
  static const NcclLibrary* Find(const std::string& hint, std::string* why);

 private:
  struct Functions;
  NcclLibrary(std::shared_ptr<const Functions> functions, std::string origin);
  static std::unique_ptr<NcclLibrary> Load(const std::string& hint, std::string* why);
  void Check(int code, const char* what) const;
  void GroupStart() const;
  void GroupEnd(Comm comm) const;
  void AbandonGroup() const;

  std::shared_ptr<const Functions> functions_;
  std::string origin_;
};

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_NCCL_LIBRARY_H_
