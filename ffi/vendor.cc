#include "ffi/vendor.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include "ffi/control.h"
#include "ffi/pool.h"
#include "kernels/copy.h"

namespace pccl {
namespace {

// Copying this much costs less than a barrier.
constexpr size_t kCopiedBytes = size_t{32} << 10;
constexpr std::chrono::microseconds kPolling{200};

size_t BytesOf(const Layout& layout, bool whole) {
  const size_t all = layout.geometry.whole_bytes();
  return whole || !layout.split ? all : layout.geometry.Own(nullptr).nbytes();
}

// Booleans are bytes of 0 and 1.
Op AsMpiOp(DType dtype, Op op) {
  if (dtype != DType::kBool) return op;
  return op == Op::kSum || op == Op::kMax ? Op::kMax : Op::kMin;
}

DType AsMpiType(DType dtype) { return dtype == DType::kBool ? DType::kUint8 : dtype; }

// What is only moved needs a type of the right size, no more.
DType TypeOfSize(size_t nbytes) {
  switch (nbytes) {
    case 1:
      return DType::kUint8;
    case 2:
      return DType::kUint16;
    case 4:
      return DType::kUint32;
    case 8:
      return DType::kUint64;
    case 16:
      return DType::kComplex128;
  }
  throw std::runtime_error("MPI moves no elements of " + std::to_string(nbytes) + " bytes");
}

template <class Map, class Key>
MpiLibrary::Handle Find(const Map& handles, Key key, const char* what) {
  const auto it = handles.find(static_cast<int64_t>(key));
  if (it == handles.end()) {
    throw std::runtime_error(std::string("the MPI library has no such ") + what);
  }
  return static_cast<MpiLibrary::Handle>(it->second);
}

}  // namespace

bool IsVendor(const Schedule& schedule) {
  return schedule.phases.size() == 1 && schedule.phases[0].vendor;
}

// Making a communicator blocks until all its processes make it, so a thread of the pool does, and
// is left behind where that never ends.
struct VendorCollective::Opening {
  MpiLibrary* mpi = nullptr;
  MpiLibrary::Handle parent = 0, made = 0;
  std::vector<int> ranks;
  int tag = 0;
  std::string error;
  std::atomic<bool> over{false};

  void Run() {
    try {
      made = mpi->CreateCommunicator(ranks, tag, parent);
    } catch (const std::exception& e) {
      error = e.what();
    }
    over.store(true, std::memory_order_release);
  }
};

VendorCollective::VendorCollective(const World& world, const Setup& setup)
    : world_(world),
      site_(*setup.site),
      layout_(*setup.layout),
      dtype_(setup.dtype),
      team_(setup.site->team(setup.group)),
      channel_(setup.site->channel(setup.group)),
      buffers_(setup.buffers),
      in_bytes_(BytesOf(layout_, layout_.collective != Collective::kAllGather)),
      out_bytes_(BytesOf(layout_, layout_.collective != Collective::kReduceScatter)),
      copies_(in_bytes_ + out_bytes_ <= kCopiedBytes) {
  if (site_.rows != 1 || team_.width != 1) {
    throw std::runtime_error("algorithm mpi needs one row a chunk and one rank a process");
  }
}

bool VendorCollective::Advance() {
  switch (stage_) {
    case Stage::kOpen:
      Open();
      return true;
    case Stage::kOpening:
      return AwaitOpening();
    case Stage::kBarrier:
      if (!Poll()) return false;
      Start();
      return true;
    case Stage::kMove:
      if (!Poll()) return false;
      Finish();
      return true;
    case Stage::kComplete:
      return false;
  }
  return false;
}

// Ranks of the communicator are the places on the axis, whatever the order of the schedule.
void VendorCollective::Open() {
  if (channel_->communicator != 0) return Enter();
  opening_ = std::make_shared<Opening>();
  opening_->mpi = world_.mpi.get();
  opening_->parent = world_.comm;
  opening_->tag = channel_->first_tag;
  opening_->ranks.resize(team_.process_of.size());
  for (size_t rank = 0; rank < team_.process_of.size(); ++rank) {
    const auto process = static_cast<size_t>(team_.process_of[rank]);
    opening_->ranks[static_cast<size_t>(layout_.places[rank])] =
        static_cast<int>(world_.mpi_rank[process]);
  }
  RunInPool([opening = opening_] { RunBlocking([&] { opening->Run(); }); });
  stage_ = Stage::kOpening;
}

bool VendorCollective::AwaitOpening() {
  if (!opening_->over.load(std::memory_order_acquire)) return false;
  if (!opening_->error.empty()) throw std::runtime_error(opening_->error);
  channel_->communicator = opening_->made;
  Enter();
  return true;
}

void VendorCollective::Enter() {
  if (copies_) return Start();
  request_ = world_.mpi->Ibarrier(channel_->communicator);
  stage_ = Stage::kBarrier;
}

void VendorCollective::Start() {
  const void* in = buffers_.in;
  void* out = buffers_.out;
  if (copies_) {
    staged_ = Scratch(in_bytes_ + out_bytes_);
    in = std::memcpy(staged_.data(), in, in_bytes_);
    out = staged_.data() + in_bytes_;
  }
  if (layout_.collective == Collective::kAllGather) {
    const size_t width = layout_.geometry.item_bytes();
    const auto type = Find(world_.mpi_types, TypeOfSize(width), "element type");
    request_ = world_.mpi->Iallgather(in, out, in_bytes_ / width, type, channel_->communicator);
  } else {
    StartReduction(in, out);
  }
  stage_ = Stage::kMove;
}

void VendorCollective::StartReduction(const void* in, void* out) {
  const auto type = Find(world_.mpi_types, AsMpiType(dtype_), "element type");
  const auto op = Find(world_.mpi_ops, AsMpiOp(dtype_, site_.op), "operator");
  const size_t count = out_bytes_ / layout_.geometry.item_bytes();
  const MpiLibrary::Handle comm = channel_->communicator;
  request_ = layout_.collective == Collective::kAllReduce
                 ? world_.mpi->Iallreduce(in, out, count, type, op, comm)
                 : world_.mpi->IreduceScatterBlock(in, out, count, type, op, comm);
}

void VendorCollective::Finish() {
  if (copies_) std::memcpy(buffers_.out, staged_.data() + in_bytes_, out_bytes_);
  staged_ = Scratch();
  stage_ = Stage::kComplete;
}

bool VendorCollective::Poll() {
  using Clock = std::chrono::steady_clock;
  if (world_.mpi->Test(&request_)) return true;
  if (stage_ != Stage::kMove || copies_) return false;
  const Clock::time_point until = Clock::now() + kPolling;
  while (Clock::now() < until) {
    sched_yield();
    if (world_.mpi->Test(&request_)) return true;
  }
  return false;
}

void VendorCollective::Abandon() {
  if (stage_ == Stage::kOpen || stage_ == Stage::kComplete) return;
  channel_->communicator = 0;
  if (stage_ == Stage::kMove && copies_) new Scratch(std::move(staged_));
}

std::string VendorCollective::WaitingFor() const {
  if (stage_ == Stage::kOpen || stage_ == Stage::kComplete) return "";
  std::string text;
  for (const int64_t process : team_.processes) {
    if (process == world_.process) continue;
    text += (text.empty() ? "process " : "; process ") + std::to_string(process) +
            PeerNews(world_, process);
  }
  return (team_.processes.size() == 2 ? "for " : "for at least one of ") + text;
}

}  // namespace pccl
