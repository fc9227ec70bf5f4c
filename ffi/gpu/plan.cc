#include "ffi/gpu/plan.h"

#include <algorithm>
#include <stdexcept>

#include "ffi/gpu/communicator.h"
#include "kernels/gpu/kernels.h"

namespace pccl::gpu {
namespace {

constexpr size_t kAlign = 256;  // of regions
constexpr size_t kLine = 16;    // of the chunks of an all-reduce, for the widest accesses

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::string CheckSizes(const Schedule& schedule, const Shape& shape) {
  const auto n = static_cast<size_t>(schedule.ranks());
  const bool gathers = shape.collective == Collective::kAllGather;
  const bool whole_both = shape.collective == Collective::kAllReduce;
  const size_t own = gathers ? shape.in_bytes : shape.out_bytes;
  const size_t whole = gathers ? shape.out_bytes : shape.in_bytes;
  const auto rows = static_cast<size_t>(shape.rows);
  if (shape.rows >= 1 && shape.item_bytes >= 1 && whole == (whole_both ? own : own * n) &&
      own % (rows * shape.item_bytes) == 0) {
    return "";
  }
  return std::string(Name(shape.collective)) + ": buffers of " + std::to_string(shape.in_bytes) +
         " and " + std::to_string(shape.out_bytes) + " bytes do not fit " + std::to_string(n) +
         " ranks and " + std::to_string(shape.rows) + " rows";
}

bool InOrder(const Schedule& schedule, const Shape& shape) {
  for (int64_t rank = 0; rank < schedule.ranks(); ++rank) {
    if (shape.places[rank] != rank) return false;
  }
  return true;
}

size_t ChunkBytes(const Schedule& schedule, const Shape& shape) {
  if (shape.collective != Collective::kAllReduce) return std::min(shape.in_bytes, shape.out_bytes);
  if (!schedule.split) return shape.in_bytes;
  const auto n = static_cast<size_t>(schedule.ranks());
  return RoundUp((shape.in_bytes + n - 1) / n, kLine);
}

bool IsRegular(const Schedule& schedule, const Shape& shape, size_t chunk_bytes) {
  if (shape.collective != Collective::kAllReduce) {
    return shape.rows == 1 && InOrder(schedule, shape);
  }
  return !schedule.split || chunk_bytes * static_cast<size_t>(schedule.ranks()) == shape.in_bytes;
}

// Bytes of scratch that the collectives of the schedule need where they are made of messages.
size_t ExchangeBytes(const Schedule& schedule, size_t chunk_bytes) {
  size_t most = 0;
  for (const Phase& phase : schedule.phases) {
    if (!phase.intra && !phase.inter) continue;
    const int64_t size = phase.intra ? schedule.local : schedule.nodes;
    // What a rank puts in or gets: between nodes one chunk, within a node one for every node.
    int64_t chunks = phase.inter ? 1 : schedule.chunks();
    if (phase.collective == Collective::kAllReduce && schedule.split) chunks *= size;
    const size_t nbytes = static_cast<size_t>(chunks) * chunk_bytes;
    most = std::max(most, MessageScratchBytes(phase.collective, size, nbytes));
  }
  return most;
}

void Place(Region* region, size_t nbytes, size_t* end) {
  *region = {*end, nbytes};
  *end += RoundUp(nbytes, kAlign);
}

}  // namespace

std::string Plan::Make(const Schedule& schedule, const Shape& shape, Plan* plan) {
  const std::string fault = CheckSizes(schedule, shape);
  if (!fault.empty()) return fault;
  const size_t chunk = ChunkBytes(schedule, shape);
  const size_t whole = chunk * static_cast<size_t>(schedule.ranks());
  const size_t own = chunk * static_cast<size_t>(schedule.nodes);
  plan->chunk_bytes = chunk;
  plan->regular = IsRegular(schedule, shape, chunk);
  int64_t most = 0;  // chunks in a message
  bool reduces = false;
  for (const Phase& phase : schedule.phases) {
    most = std::max(most, phase.count);
    reduces |= phase.count > 0 && phase.action != Action::kCopy;
  }
  const size_t message = static_cast<size_t>(most) * chunk;
  const bool inner = schedule.local > 1, outer = schedule.nodes > 1;
  const bool scatters = shape.collective == Collective::kReduceScatter;
  size_t end = 0;
  Place(&plan->scratch.packed, plan->regular ? 0 : whole, &end);
  Place(&plan->scratch.own, schedule.split && outer && (inner || scatters) ? own : 0, &end);
  Place(&plan->scratch.outgoing, most > 1 ? message : 0, &end);
  Place(&plan->scratch.incoming, reduces || most > 1 ? message : 0, &end);
  Place(&plan->scratch.node, schedule.split && outer && inner ? whole : 0, &end);
  Place(&plan->scratch.exchange, ExchangeBytes(schedule, chunk), &end);
  return "";
}

namespace {

// Between the rows of all chunks side by side, as in the caller's array, and chunk after chunk.
// Where the axis is in the order of the schedule that is the transposition of a matrix of rows.
void MoveRows(const Schedule& schedule, const Shape& shape, const Plan& plan, const char* src,
              char* dst, bool packs, Stream stream) {
  const auto ranks = static_cast<size_t>(schedule.ranks()), rows = static_cast<size_t>(shape.rows);
  const size_t row_bytes = plan.chunk_bytes / rows;
  if (InOrder(schedule, shape)) {
    const int64_t from = packs ? shape.rows : schedule.ranks();
    const int64_t to = packs ? schedule.ranks() : shape.rows;
    const int code = pccl_gpu_permute(dst, src, from, to, row_bytes, stream);
    if (code == PCCL_GPU_OK) return;
    throw std::runtime_error("GPU kernel: permutation failed with code " + std::to_string(code));
  }
  for (size_t chunk = 0; chunk < ranks; ++chunk) {
    const size_t regular = chunk * plan.chunk_bytes;
    const size_t whole = static_cast<size_t>(shape.places[chunk]) * row_bytes;
    const size_t stride = ranks * row_bytes;
    if (packs) {
      Copy2DAsync(dst + regular, row_bytes, src + whole, stride, row_bytes, rows, stream);
    } else {
      Copy2DAsync(dst + whole, stride, src + regular, row_bytes, row_bytes, rows, stream);
    }
  }
}

}  // namespace

void Pack(const Schedule& schedule, const Shape& shape, const Plan& plan, const char* whole,
          char* regular, Stream stream) {
  if (shape.collective != Collective::kAllReduce) {
    return MoveRows(schedule, shape, plan, whole, regular, /*packs=*/true, stream);
  }
  const size_t padded = plan.chunk_bytes * static_cast<size_t>(schedule.ranks());
  CopyAsync(regular, whole, shape.in_bytes, stream);
  ZeroAsync(regular + shape.in_bytes, padded - shape.in_bytes, stream);
}

void Unpack(const Schedule& schedule, const Shape& shape, const Plan& plan, const char* regular,
            char* whole, Stream stream) {
  if (shape.collective != Collective::kAllReduce) {
    return MoveRows(schedule, shape, plan, regular, whole, /*packs=*/false, stream);
  }
  CopyAsync(whole, regular, shape.out_bytes, stream);
}

}  // namespace pccl::gpu
