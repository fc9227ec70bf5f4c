#include "ffi/gpu/mpi_communicator.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>

namespace pccl::gpu {
namespace {

// A slot of pinned memory holds one; larger than this gains nothing, smaller ones cost latency.
constexpr size_t kSegmentBytes = size_t{1} << 20;
constexpr size_t kSlots = 4;  // each direction
// MPI counts bytes in an int.
constexpr size_t kDirectBytes = size_t{1} << 30;
// After so many looks in vain the core is left to whoever we wait for.
constexpr int kSpins = 200;
constexpr timespec kNap{0, 20'000};

struct Segment {
  int64_t peer;
  char* data;  // on the device
  size_t nbytes;
};

std::vector<Segment> Cut(const std::vector<Transfer>& transfers, size_t most) {
  std::vector<Segment> segments;
  for (const Transfer& t : transfers) {
    for (size_t begin = 0; begin < t.nbytes; begin += most) {
      segments.push_back({t.peer, t.data + begin, std::min(most, t.nbytes - begin)});
    }
  }
  return segments;
}

}  // namespace

// One direction: segment i goes through slot i mod kSlots. A slot passes through two stages, on the
// device's side (a copy) and on the network's (a message), in the order of the direction.
struct MpiCommunicator::Lane {
  struct Slot {
    PinnedMemory memory{kSegmentBytes};
    Event copied;
    MpiLibrary::Handle request = 0;
  };

  SideStream stream;
  Event order;  // between this stream and the caller's
  std::array<Slot, kSlots> slots;
  std::vector<Segment> segments;
  size_t begun = 0, passed = 0, ended = 0;  // segments that have entered, are between, have left

  void Start(std::vector<Segment> what) {
    segments = std::move(what);
    begun = passed = ended = 0;
  }
  Slot& slot(size_t i) { return slots[i % kSlots]; }
  bool done() const { return ended == segments.size(); }
};

// How long nothing has happened; ends the wait when that is too long.
class MpiCommunicator::Watch {
 public:
  explicit Watch(double timeout_s) : timeout_s_(timeout_s) {}

  // Returns whether to go on waiting.
  bool Look(bool any) {
    if (any) {
      spins_ = 0;
      since_ = Clock::now();
      return true;
    }
    if (++spins_ < kSpins) return true;
    nanosleep(&kNap, nullptr);
    return std::chrono::duration<double>(Clock::now() - since_).count() < timeout_s_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const double timeout_s_;
  int spins_ = 0;
  Clock::time_point since_ = Clock::now();
};

MpiCommunicator::MpiCommunicator(MpiSettings settings, int64_t rank, std::vector<MpiPeer> peers)
    : Communicator(rank, static_cast<int64_t>(peers.size())),
      settings_(std::move(settings)),
      peers_(std::move(peers)) {}

MpiCommunicator::~MpiCommunicator() = default;

// Two devices of a process may talk to two of another at once.
int MpiCommunicator::Tag(int64_t sender, int64_t receiver) const {
  const int64_t pair = peers_[static_cast<size_t>(sender)].device * settings_.devices +
                       peers_[static_cast<size_t>(receiver)].device;
  return static_cast<int>(pair);
}

void MpiCommunicator::Exchange(const std::vector<Transfer>& sends,
                               const std::vector<Transfer>& receives, Stream stream) {
  if (broken_) {
    throw std::runtime_error(settings_.title +
                             ": messages of an earlier call may still be in flight, which failed; "
                             "start the program anew");
  }
  if (IsCapturing(stream)) {
    throw std::runtime_error(settings_.title +
                             ": MPI cannot be recorded in a CUDA graph; run with "
                             "XLA_FLAGS=--xla_gpu_enable_command_buffer=");
  }
  if (settings_.gpu_aware) {
    Direct(sends, receives, stream);
  } else {
    Staged(sends, receives, stream);
  }
}

void MpiCommunicator::Direct(const std::vector<Transfer>& sends,
                             const std::vector<Transfer>& receives, Stream stream) {
  Watch watch(settings_.timeout_s);
  Event ready;
  ready.Record(stream);
  while (!ready.Passed()) {
    if (watch.Look(false)) continue;
    throw std::runtime_error(settings_.title + ": the device has not finished what comes before");
  }
  std::vector<MpiLibrary::Handle> requests;
  const std::vector<Segment> in = Cut(receives, kDirectBytes), out = Cut(sends, kDirectBytes);
  for (const Segment& s : in) {
    const int from = peers_[static_cast<size_t>(s.peer)].rank;
    requests.push_back(
        settings_.mpi->Irecv(s.data, s.nbytes, from, Tag(s.peer, rank()), settings_.comm));
  }
  for (const Segment& s : out) {
    const int to = peers_[static_cast<size_t>(s.peer)].rank;
    requests.push_back(
        settings_.mpi->Isend(s.data, s.nbytes, to, Tag(rank(), s.peer), settings_.comm));
  }
  std::vector<bool> done(requests.size());
  for (size_t left = requests.size(); left > 0;) {
    bool any = false;
    int64_t waits_for = -1;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (done[i]) continue;
      if (!settings_.mpi->Test(&requests[i])) {
        waits_for = i < in.size() ? in[i].peer : out[i - in.size()].peer;
        continue;
      }
      done[i] = any = true;
      --left;
    }
    if (watch.Look(any)) continue;
    broken_ = true;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!done[i]) settings_.mpi->CancelReceive(&requests[i]);
    }
    throw std::runtime_error(settings_.title + ": waited too long for rank " +
                             std::to_string(waits_for) + " of " + std::to_string(size()));
  }
}

void MpiCommunicator::Staged(const std::vector<Transfer>& sends,
                             const std::vector<Transfer>& receives, Stream stream) {
  if (!out_) out_ = std::make_unique<Lane>();
  if (!in_) in_ = std::make_unique<Lane>();
  out_->Start(Cut(sends, kSegmentBytes));
  in_->Start(Cut(receives, kSegmentBytes));
  // What is sent may still be computed, and where it is received to may still be read.
  for (Lane* lane : {out_.get(), in_.get()}) {
    lane->order.Record(stream);
    lane->order.HoldBack(lane->stream.get());
  }
  Watch watch(settings_.timeout_s);
  try {
    while (!out_->done() || !in_->done()) {
      const bool sent = AdvanceOut(out_.get()), received = AdvanceIn(in_.get());
      if (watch.Look(sent || received)) continue;
      const bool receiving = in_->passed < in_->segments.size();
      const Lane& lane = receiving ? *in_ : *out_;
      const size_t at = receiving ? in_->passed : out_->ended;
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.3g s", settings_.timeout_s);
      throw std::runtime_error(
          settings_.title + ": rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
          " has waited " + seconds + (receiving ? " for a message of rank " : " to send to rank ") +
          std::to_string(lane.segments[at].peer) +
          ". Do all processes run the same program? If the missing one is only slow, raise "
          "PCCL_TIMEOUT_S.");
    }
  } catch (const std::exception&) {
    // The library may still read and write the slots: they are never freed.
    broken_ = true;
    static_cast<void>(out_.release());
    static_cast<void>(in_.release());
    throw;
  }
  in_->order.Record(in_->stream.get());
  in_->order.HoldBack(stream);
}

// From the device into a slot, then away.
bool MpiCommunicator::AdvanceOut(Lane* out) {
  bool any = false;
  while (out->begun < out->segments.size() && out->begun < out->ended + kSlots) {
    const Segment& s = out->segments[out->begun];
    Lane::Slot& slot = out->slot(out->begun++);
    CopyAsync(slot.memory.data(), s.data, s.nbytes, out->stream.get());
    slot.copied.Record(out->stream.get());
    any = true;
  }
  while (out->passed < out->begun && out->slot(out->passed).copied.Passed()) {
    const Segment& s = out->segments[out->passed];
    Lane::Slot& slot = out->slot(out->passed++);
    const int to = peers_[static_cast<size_t>(s.peer)].rank;
    slot.request =
        settings_.mpi->Isend(slot.memory.data(), s.nbytes, to, Tag(rank(), s.peer), settings_.comm);
    any = true;
  }
  while (out->ended < out->passed && settings_.mpi->Test(&out->slot(out->ended).request)) {
    ++out->ended;
    any = true;
  }
  return any;
}

// Received ahead into slots that have been emptied, from there to the device.
bool MpiCommunicator::AdvanceIn(Lane* in) {
  bool any = false;
  while (in->begun < in->segments.size() && in->begun < in->ended + kSlots) {
    const Segment& s = in->segments[in->begun];
    Lane::Slot& slot = in->slot(in->begun);
    // An earlier exchange may have left its last segments on their way to the device.
    if (!slot.copied.Passed()) break;
    const int from = peers_[static_cast<size_t>(s.peer)].rank;
    slot.request = settings_.mpi->Irecv(slot.memory.data(), s.nbytes, from, Tag(s.peer, rank()),
                                        settings_.comm);
    ++in->begun;
    any = true;
  }
  while (in->passed < in->begun && settings_.mpi->Test(&in->slot(in->passed).request)) {
    const Segment& s = in->segments[in->passed];
    Lane::Slot& slot = in->slot(in->passed++);
    CopyAsync(s.data, slot.memory.data(), s.nbytes, in->stream.get());
    slot.copied.Record(in->stream.get());
    ++in->ended;
    any = true;
  }
  return any;
}

}  // namespace pccl::gpu
