#include "ffi/gpu/nccl_communicator.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace pccl::gpu {
namespace {

// How NCCL does a reduction of ours: which of its types, how many of them make one element.
struct Native {
  NcclLibrary::Type type;
  NcclLibrary::Reduction op;
  size_t parts = 1;
};

std::optional<Native> Number(NcclLibrary::Type type, Op op) {
  return Native{type, static_cast<NcclLibrary::Reduction>(op)};
}

// NCCL's max and min may lose a NaN, which has to win as in jax.lax.
std::optional<Native> Float(NcclLibrary::Type type, Op op) {
  if (op == Op::kMax || op == Op::kMin) return std::nullopt;
  return Number(type, op);
}

std::optional<Native> Complex(NcclLibrary::Type part, Op op) {
  if (op != Op::kSum) return std::nullopt;
  return Native{part, NcclLibrary::kSum, 2};
}

// Of bytes 0 and 1: sum and max are "or", prod and min are "and".
std::optional<Native> Boolean(Op op) {
  const bool any = op == Op::kSum || op == Op::kMax;
  return Native{NcclLibrary::kUint8, any ? NcclLibrary::kMax : NcclLibrary::kMin};
}

std::optional<Native> NativeOf(const Arithmetic& arithmetic) {
  const Op op = arithmetic.op;
  switch (arithmetic.dtype) {
    case DType::kBool:
      return Boolean(op);
    case DType::kInt8:
      return Number(NcclLibrary::kInt8, op);
    case DType::kUint8:
      return Number(NcclLibrary::kUint8, op);
    case DType::kInt32:
      return Number(NcclLibrary::kInt32, op);
    case DType::kUint32:
      return Number(NcclLibrary::kUint32, op);
    case DType::kInt64:
      return Number(NcclLibrary::kInt64, op);
    case DType::kUint64:
      return Number(NcclLibrary::kUint64, op);
    case DType::kFloat16:
      return Float(NcclLibrary::kHalf, op);
    case DType::kBfloat16:
      return Float(NcclLibrary::kBfloat16, op);
    case DType::kFloat32:
      return Float(NcclLibrary::kFloat, op);
    case DType::kFloat64:
      return Float(NcclLibrary::kDouble, op);
    case DType::kComplex64:
      return Complex(NcclLibrary::kFloat, op);
    case DType::kComplex128:
      return Complex(NcclLibrary::kDouble, op);
    default:
      return std::nullopt;
  }
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclLibrary& library, NcclLibrary::Comm comm, Owner owner,
                                   int64_t rank, std::vector<int> order)
    : Communicator(rank, static_cast<int64_t>(order.size())),
      library_(library),
      comm_(comm),
      owner_(owner),
      order_(std::move(order)) {
  for (size_t i = 0; i < order_.size(); ++i) in_order_ &= order_[i] == static_cast<int>(i);
  const int got_rank = library.RankIn(comm), got_size = library.SizeOf(comm);
  const int rank_there = order_[static_cast<size_t>(rank)];
  if (got_rank == rank_there && got_size == static_cast<int>(size())) return;
  throw std::runtime_error("NCCL: got a communicator in which this device is rank " +
                           std::to_string(got_rank) + " of " + std::to_string(got_size) +
                           ", expected rank " + std::to_string(rank_there) + " of " +
                           std::to_string(size()));
}

void NcclCommunicator::Exchange(const std::vector<Transfer>& sends,
                                const std::vector<Transfer>& receives, Stream stream) {
  library_.Grouped(comm_, [&] {
    for (const Transfer& t : sends) {
      if (t.nbytes == 0) continue;
      library_.Send(t.data, t.nbytes, order_[static_cast<size_t>(t.peer)], comm_, stream);
    }
    for (const Transfer& t : receives) {
      if (t.nbytes == 0) continue;
      library_.Receive(t.data, t.nbytes, order_[static_cast<size_t>(t.peer)], comm_, stream);
    }
  });
  for (const Transfer& t : receives) {
    if (t.arrived && t.nbytes > 0) t.arrived(0, t.nbytes, stream);
  }
}

// XLA watches over its own, and may have ended one that we still remember.
std::string NcclCommunicator::Trouble() const {
  return owner_ == Owner::kUs ? library_.Trouble(comm_) : "";
}

bool NcclCommunicator::Collects(Collective collective, const Arithmetic& arithmetic) const {
  // What is gathered or scattered comes in NCCL's order.
  if (collective != Collective::kAllReduce && !in_order_) return false;
  return collective == Collective::kAllGather || NativeOf(arithmetic).has_value();
}

void NcclCommunicator::Collect(Collective collective, const std::vector<Job>& jobs,
                               const Arithmetic& arithmetic, Stream stream) {
  library_.Grouped(comm_, [&] {
    for (const Job& job : jobs) {
      if (collective == Collective::kAllGather) {
        library_.AllGather(job.in, job.out, job.nbytes, NcclLibrary::kInt8, comm_, stream);
        continue;
      }
      const Native native = NativeOf(arithmetic).value();
      const size_t count = job.nbytes / ItemSize(arithmetic.dtype) * native.parts;
      if (collective == Collective::kReduceScatter) {
        library_.ReduceScatter(job.in, job.out, count, native.type, native.op, comm_, stream);
      } else {
        library_.AllReduce(job.in, job.out, count, native.type, native.op, comm_, stream);
      }
    }
  });
}

}  // namespace pccl::gpu
