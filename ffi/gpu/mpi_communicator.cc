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
// Without slots: what has come is reduced while the rest is on its way.
constexpr size_t kDirectBytes = size_t{8} << 20;
// MPI promises tags up to this.
constexpr int64_t kTags = 32768;
// After so many looks in vain the core is left to whoever we wait for.
constexpr int kSpins = 200;
constexpr timespec kNap{0, 20'000};

struct Segment {
  const Transfer* message;
  size_t begin, nbytes;

  int64_t peer() const { return message->peer; }
  char* data() const { return message->data + begin; }  // on the device
  void Arrive(Stream stream) const {
    if (message->arrived) message->arrived(begin, nbytes, stream);
  }
};

// The first segments of all messages, then the second ones, and so on: the order in which every
// member sends and receives. Of what has not been received yet, the segment with the least
// (beginning, receiver, sender) is next at both of its ends, so there always is one that can go.
std::vector<Segment> Cut(const std::vector<Transfer>& messages, size_t most) {
  std::vector<Segment> segments;
  size_t longest = 0;
  for (const Transfer& t : messages) longest = std::max(longest, t.nbytes);
  for (size_t begin = 0; begin < longest; begin += most) {
    for (const Transfer& t : messages) {
      if (begin < t.nbytes) segments.push_back({&t, begin, std::min(most, t.nbytes - begin)});
    }
  }
  return segments;
}

// Whether what has come may be written to its target. `gone`: of the segments sent, so many have
// left the memory they were in.
bool MayArrive(const Segment& come, const std::vector<Segment>& sent, size_t gone) {
  return !come.message->in_place || gone == sent.size() || sent[gone].begin > come.begin;
}

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
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
  // Work that is enqueued here from now on comes after what is in `other`.
  void Follow(Stream other) {
    order.Record(other);
    order.HoldBack(stream.get());
  }
  // What is enqueued in `other` from now on comes after the work here.
  void Lead(Stream other) {
    order.Record(stream.get());
    order.HoldBack(other);
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

// Two devices of a process may talk to two of another at once. What is left of the tags tells
// collectives apart: those of programs that run in another order elsewhere, nearly always.
int MpiCommunicator::Tag(int64_t sender, int64_t receiver) const {
  const int64_t pairs = settings_.devices * settings_.devices;
  const int64_t pair = peers_[static_cast<size_t>(sender)].device * settings_.devices +
                       peers_[static_cast<size_t>(receiver)].device;
  const int64_t calls = std::max<int64_t>(1, kTags / pairs);
  return static_cast<int>(pair +
                          pairs * static_cast<int64_t>(call() % static_cast<uint64_t>(calls)));
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
    if (!watch.Look(false)) throw std::runtime_error(DeviceIsLate());
  }
  const std::vector<Segment> in = Cut(receives, kDirectBytes), out = Cut(sends, kDirectBytes);
  std::vector<MpiLibrary::Handle> coming(in.size()), going(out.size());
  size_t posted = 0, arrived = 0, gone = 0;
  try {
    for (; posted < in.size(); ++posted) {
      const Segment& s = in[posted];
      coming[posted] = settings_.mpi->Irecv(s.data(), s.nbytes, RankOf(s.peer()),
                                            Tag(s.peer(), rank()), settings_.comm);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const Segment& s = out[i];
      going[i] = settings_.mpi->Isend(s.data(), s.nbytes, RankOf(s.peer()), Tag(rank(), s.peer()),
                                      settings_.comm);
    }
    size_t come = 0;
    while (arrived < in.size() || gone < out.size()) {
      bool any = false;
      for (; gone < out.size() && settings_.mpi->Test(&going[gone]); ++gone) any = true;
      for (; come < in.size() && settings_.mpi->Test(&coming[come]); ++come) any = true;
      for (; arrived < come && MayArrive(in[arrived], out, gone); ++arrived) {
        in[arrived].Arrive(stream);
      }
      if (watch.Look(any)) continue;
      const bool receiving = come < in.size();
      throw std::runtime_error(
          PeerIsLate(receiving, receiving ? in[come].peer() : out[gone].peer()));
    }
  } catch (const std::exception&) {
    broken_ = true;
    for (size_t i = arrived; i < posted; ++i) Cancel(&coming[i]);
    throw;
  }
}

// One that has ended is no request any more, and ended is what MPI says of it.
void MpiCommunicator::Cancel(MpiLibrary::Handle* receive) {
  try {
    if (!settings_.mpi->Test(receive)) settings_.mpi->CancelReceive(receive);
  } catch (const std::exception&) {  // the first error is the one that is told
  }
}

void MpiCommunicator::Staged(const std::vector<Transfer>& sends,
                             const std::vector<Transfer>& receives, Stream stream) {
  if (!out_) out_ = std::make_unique<Lane>();
  if (!in_) in_ = std::make_unique<Lane>();
  out_->Start(Cut(sends, kSegmentBytes));
  in_->Start(Cut(receives, kSegmentBytes));
  // What is sent may still be computed, and where it is received to may still be read.
  out_->Follow(stream);
  in_->Follow(stream);
  Watch watch(settings_.timeout_s);
  try {
    while (!out_->done() || !in_->done()) {
      const bool sent = AdvanceOut(out_.get()), received = AdvanceIn(in_.get(), *out_);
      if (watch.Look(sent || received)) continue;
      if (!out_->order.Passed()) throw std::runtime_error(DeviceIsLate());
      const bool receiving = in_->passed < in_->segments.size();
      const Lane& lane = receiving ? *in_ : *out_;
      const size_t at = receiving ? in_->passed : out_->ended;
      throw std::runtime_error(PeerIsLate(receiving, lane.segments[at].peer()));
    }
  } catch (const std::exception&) {
    Abandon(stream);
    throw;
  }
  in_->Lead(stream);
}

// The library may still read and write the slots: they are never freed. What is already on its way
// to the device arrives before anything else uses its memory.
void MpiCommunicator::Abandon(Stream stream) {
  broken_ = true;
  Lane* const in = in_.release();
  static_cast<void>(out_.release());
  try {
    in->Lead(stream);
  } catch (const std::exception&) {  // the first error is the one that is told
  }
}

std::string MpiCommunicator::DeviceIsLate() const {
  return settings_.title +
         ": this device has not finished what comes before the collective within " +
         Seconds(settings_.timeout_s) +
         ". Does it compute for so long, or wait for another collective? If it does, raise "
         "PCCL_TIMEOUT_S.";
}

std::string MpiCommunicator::PeerIsLate(bool receiving, int64_t peer) const {
  return settings_.title + ": rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
         " has waited " + Seconds(settings_.timeout_s) +
         (receiving ? " for a message of rank " : " to send to rank ") + std::to_string(peer) +
         ". Do all processes run the same program, in the same order? If the missing one is only "
         "slow, raise PCCL_TIMEOUT_S.";
}

// From the device into a slot, then away.
bool MpiCommunicator::AdvanceOut(Lane* out) {
  bool any = false;
  while (out->begun < out->segments.size() && out->begun < out->ended + kSlots) {
    const Segment& s = out->segments[out->begun];
    Lane::Slot& slot = out->slot(out->begun++);
    CopyAsync(slot.memory.data(), s.data(), s.nbytes, out->stream.get());
    slot.copied.Record(out->stream.get());
    any = true;
  }
  while (out->passed < out->begun && out->slot(out->passed).copied.Passed()) {
    const Segment& s = out->segments[out->passed];
    Lane::Slot& slot = out->slot(out->passed++);
    slot.request = settings_.mpi->Isend(slot.memory.data(), s.nbytes, RankOf(s.peer()),
                                        Tag(rank(), s.peer()), settings_.comm);
    any = true;
  }
  while (out->ended < out->passed && settings_.mpi->Test(&out->slot(out->ended).request)) {
    ++out->ended;
    any = true;
  }
  return any;
}

// Received ahead into slots that have been emptied, from there to the device, and to where it goes.
bool MpiCommunicator::AdvanceIn(Lane* in, const Lane& out) {
  bool any = false;
  while (in->begun < in->segments.size() && in->begun < in->ended + kSlots) {
    const Segment& s = in->segments[in->begun];
    Lane::Slot& slot = in->slot(in->begun);
    // Its last segment may be on its way to the device.
    if (!slot.copied.Passed()) break;
    slot.request = settings_.mpi->Irecv(slot.memory.data(), s.nbytes, RankOf(s.peer()),
                                        Tag(s.peer(), rank()), settings_.comm);
    ++in->begun;
    any = true;
  }
  while (in->passed < in->begun && settings_.mpi->Test(&in->slot(in->passed).request)) {
    const Segment& s = in->segments[in->passed];
    Lane::Slot& slot = in->slot(in->passed++);
    CopyAsync(s.data(), slot.memory.data(), s.nbytes, in->stream.get());
    slot.copied.Record(in->stream.get());
    any = true;
  }
  while (in->ended < in->passed && MayArrive(in->segments[in->ended], out.segments, out.passed)) {
    in->segments[in->ended++].Arrive(in->stream.get());
    any = true;
  }
  return any;
}

}  // namespace pccl::gpu
