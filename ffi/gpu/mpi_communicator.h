// Ranks that reach each other through MPI, whose library may or may not know GPU memory.
#ifndef PCCL_FFI_GPU_MPI_COMMUNICATOR_H_
#define PCCL_FFI_GPU_MPI_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ffi/gpu/communicator.h"
#include "ffi/transport/mpi_library.h"

namespace pccl::gpu {

// Where a member is reached: its MPI rank, and its number among the devices of that process.
struct MpiPeer {
  int rank = 0;
  int64_t device = 0;
};

struct MpiSettings {
  MpiLibrary* mpi = nullptr;
  MpiLibrary::Handle comm = 0;  // nobody else sends there
  int64_t devices = 1;          // the most that any process has
  bool gpu_aware = false;
  double timeout_s = 300.0;  // without anything happening
  std::string title;         // for errors
};

// Exchange() waits until everything that this member sends and receives has gone through MPI; the
// last of it is then on its way from pinned memory to the device. So calls cannot be recorded in a
// graph. Messages go in segments, which take turns in a few pinned slots; what is done with a
// segment, such as a reduction, is enqueued while the next is on the wire. Peers must be in
// ascending order in every list: then segments always find room.
class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MpiSettings settings, int64_t rank, std::vector<MpiPeer> peers);
  ~MpiCommunicator() override;

  void Exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives,
                Stream stream) override;
  bool Capturable() const override { return false; }

 private:
  struct Lane;
  class Watch;

  int Tag(int64_t sender, int64_t receiver) const;
  void Direct(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives,
              Stream stream);
  void Staged(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives,
              Stream stream);
  bool AdvanceOut(Lane* out);
  bool AdvanceIn(Lane* in, const Lane& out);
  void Abandon(Stream stream);
  void Cancel(MpiLibrary::Handle* receive);
  int RankOf(int64_t peer) const { return peers_[static_cast<size_t>(peer)].rank; }
  std::string DeviceIsLate() const;
  std::string PeerIsLate(bool receiving, int64_t peer) const;

  const MpiSettings settings_;
  const std::vector<MpiPeer> peers_;
  std::unique_ptr<Lane> out_, in_;  // made at the first staged exchange
  bool broken_ = false;
};

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_MPI_COMMUNICATOR_H_
