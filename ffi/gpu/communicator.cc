#include "ffi/gpu/communicator.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/gpu/kernels.h"

namespace pccl::gpu {
namespace {

// Pieces of an all-reduce begin at multiples of this, so that kernels use their widest accesses.
constexpr size_t kAlign = 16;

size_t PieceBytes(size_t nbytes, int64_t size) {
  const auto n = static_cast<size_t>(size);
  return ((nbytes + n - 1) / n + kAlign - 1) / kAlign * kAlign;
}

// The `i`-th piece of a vector, which may be short or empty at its end.
Transfer Piece(char* data, size_t nbytes, size_t piece, int64_t i) {
  const size_t begin = std::min(nbytes, static_cast<size_t>(i) * piece);
  Transfer transfer;
  transfer.peer = i;
  transfer.data = data + begin;
  transfer.nbytes = std::min(piece, nbytes - begin);
  return transfer;
}

// Everybody sends piece i to rank i, and reduces what has come for its own piece.
void ScatterPieces(Communicator* communicator, const Job& vector, size_t piece, char* out,
                   const Arithmetic& arithmetic, char* scratch, Stream stream) {
  const int64_t rank = communicator->rank();
  char* in = const_cast<char*>(vector.in);  // only read
  const Transfer mine = Piece(in, vector.nbytes, piece, rank);
  std::vector<Transfer> sends, receives;
  std::vector<const char*> sources;
  for (int64_t i = 0; i < communicator->size(); ++i) {
    if (i == rank) {
      sources.push_back(mine.data);
      continue;
    }
    sends.push_back(Piece(in, vector.nbytes, piece, i));
    receives.push_back(mine);
    receives.back().peer = i;
    receives.back().data = scratch + (receives.size() - 1) * piece;
    sources.push_back(receives.back().data);
  }
  if (receives.empty()) return Reduce(arithmetic, out, sources, mine.nbytes, scratch, stream);
  // What has come of the last one has come of all.
  receives.back().arrived = [&](size_t begin, size_t nbytes, Stream on) {
    std::vector<const char*> parts;
    for (const char* source : sources) parts.push_back(source + begin);
    Reduce(arithmetic, out + begin, parts, nbytes, scratch + begin, on);
  };
  communicator->Exchange(sends, receives, stream);
}

// Everybody sends its own piece to all.
void GatherPieces(Communicator* communicator, char* out, size_t nbytes, size_t piece,
                  Stream stream) {
  const int64_t rank = communicator->rank();
  Transfer mine = Piece(out, nbytes, piece, rank);
  std::vector<Transfer> sends, receives;
  for (int64_t i = 0; i < communicator->size(); ++i) {
    if (i == rank) continue;
    mine.peer = i;
    sends.push_back(mine);
    receives.push_back(Piece(out, nbytes, piece, i));
  }
  communicator->Exchange(sends, receives, stream);
}

}  // namespace

bool Communicator::Collects(Collective, const Arithmetic&) const { return false; }

void Communicator::Collect(Collective collective, const std::vector<Job>&, const Arithmetic&,
                           Stream) {
  throw std::logic_error(std::string("this communicator has no ") + Name(collective));
}

size_t MessageScratchBytes(Collective collective, int64_t size, size_t nbytes) {
  const auto others = static_cast<size_t>(size - 1);
  switch (collective) {
    case Collective::kAllGather:
      return 0;
    case Collective::kReduceScatter:
      return others * nbytes;
    case Collective::kAllReduce:
      return others * PieceBytes(nbytes, size);
  }
  return 0;
}

void CollectByMessages(Communicator* communicator, Collective collective, const Job& job,
                       const Arithmetic& arithmetic, char* scratch, Stream stream) {
  const auto rank = static_cast<size_t>(communicator->rank());
  const size_t all = job.nbytes * static_cast<size_t>(communicator->size());
  if (collective == Collective::kAllGather) {
    char* mine = job.out + rank * job.nbytes;
    if (mine != job.in) CopyAsync(mine, job.in, job.nbytes, stream);
    return GatherPieces(communicator, job.out, all, job.nbytes, stream);
  }
  if (collective == Collective::kReduceScatter) {
    return ScatterPieces(communicator, {job.in, job.out, all}, job.nbytes, job.out, arithmetic,
                         scratch, stream);
  }
  const size_t piece = PieceBytes(job.nbytes, communicator->size());
  char* mine = Piece(job.out, job.nbytes, piece, communicator->rank()).data;
  ScatterPieces(communicator, job, piece, mine, arithmetic, scratch, stream);
  GatherPieces(communicator, job.out, job.nbytes, piece, stream);
}

void Reduce(const Arithmetic& arithmetic, char* dst, const std::vector<const char*>& sources,
            size_t nbytes, char* partial, Stream stream) {
  const size_t count = nbytes / ItemSize(arithmetic.dtype);
  if (sources.size() == 1 && sources[0] != dst) CopyAsync(dst, sources[0], nbytes, stream);
  if (sources.size() == 1) return;
  for (size_t done = 0; count > 0 && done < sources.size();) {
    const void* batch[PCCL_GPU_MAX_SOURCES];
    int k = 0;
    if (done > 0) batch[k++] = partial;
    while (k < PCCL_GPU_MAX_SOURCES && done < sources.size()) batch[k++] = sources[done++];
    char* to = done == sources.size() ? dst : partial;
    const int code = pccl_gpu_reduce(static_cast<int>(arithmetic.dtype),
                                     static_cast<int>(arithmetic.op), to, batch, k, count, stream);
    if (code != PCCL_GPU_OK) {
      throw std::runtime_error("GPU kernel: reduction of " + std::to_string(k) + " vectors of " +
                               std::to_string(count) + " elements failed with code " +
                               std::to_string(code));
    }
  }
}

}  // namespace pccl::gpu
