// Ranks that reach each other through NCCL.
#ifndef PCCL_FFI_GPU_NCCL_COMMUNICATOR_H_
#define PCCL_FFI_GPU_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ffi/gpu/communicator.h"
#include "ffi/gpu/nccl_library.h"

namespace pccl::gpu {

// Calls only enqueue. Every message moves as bytes, so that its type does not matter.
class NcclCommunicator : public Communicator {
 public:
  enum class Owner { kUs, kXla };

  // `comm` must outlive this. Our rank i is its rank order[i].
  NcclCommunicator(const NcclLibrary& library, NcclLibrary::Comm comm, Owner owner, int64_t rank,
                   std::vector<int> order);

  void Exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives,
                Stream stream) override;
  bool Collects(Collective collective, const Arithmetic& arithmetic) const override;
  void Collect(Collective collective, const std::vector<Job>& jobs, const Arithmetic& arithmetic,
               Stream stream) override;
  bool Capturable() const override { return true; }
  std::string Trouble() const override;

 private:
  const NcclLibrary& library_;
  const NcclLibrary::Comm comm_;
  const Owner owner_;
  const std::vector<int> order_;
  bool in_order_ = true;
};

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_NCCL_COMMUNICATOR_H_
