// A whole collective handed to the MPI library: the algorithm `mpi`.
#ifndef PCCL_FFI_VENDOR_H_
#define PCCL_FFI_VENDOR_H_

#include <memory>
#include <string>
#include <vector>

#include "ffi/call_site.h"
#include "ffi/rank_state.h"
#include "ffi/scratch.h"
#include "ffi/world.h"

namespace pccl {

// One execution, for the one rank of the group that this process holds; chunks have one row. The
// group's communicator is made at the call site's first execution and kept in the channel. A
// collective that has begun cannot be taken back, so none begins on the caller's buffers before
// everybody has come: small ones work on copies, large ones meet at a barrier first.
//
// Not thread safe: the caller holds the rank's lock. Methods may throw std::runtime_error.
class VendorCollective {
 public:
  struct Setup {
    const CallSite* site;
    const Layout* layout;
    DType dtype;  // of a reduction
    int64_t group;
    RankBuffers buffers;
  };

  // All that `setup` points to must outlive this.
  VendorCollective(const World& world, const Setup& setup);

  // Does what can be done now without blocking, once the channel has its tags. Returns whether
  // that was anything.
  bool Advance();
  bool complete() const { return stage_ == Stage::kComplete; }
  // Gives up. The communicator is not used again, as its processes may be out of step for good.
  // Copies stay until the program ends. Buffers of the caller are in use afterwards only if
  // somebody has died in the middle.
  void Abandon();
  // Whom this process is waiting for, for people; "" where for nobody.
  std::string WaitingFor() const;

 private:
  enum class Stage { kOpen, kOpening, kBarrier, kMove, kComplete };
  struct Opening;

  void Open();
  bool AwaitOpening();
  void Enter();
  void Start();
  void StartReduction(const void* in, void* out);
  void Finish();
  // Whether the request in flight is done. Polls for a moment once everybody is there, as MPI moves
  // data only while it is polled.
  bool Poll();

  const World& world_;
  const CallSite& site_;
  const Layout& layout_;
  const DType dtype_;
  const Team& team_;
  Channel* const channel_;
  const RankBuffers buffers_;
  const size_t in_bytes_, out_bytes_;
  const bool copies_;
  Stage stage_ = Stage::kOpen;
  std::shared_ptr<Opening> opening_;
  MpiLibrary::Handle request_ = 0;
  Scratch staged_;  // input, then output
};

// Whether the schedule is one whole collective of the MPI library.
bool IsVendor(const Schedule& schedule);

}  // namespace pccl

#endif  // PCCL_FFI_VENDOR_H_
