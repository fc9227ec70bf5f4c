#include "ffi/shared/direct.h"

#include <errno.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ffi/environment.h"

namespace pccl {
namespace {

// Measured on two cores, where what one core copies in the cache is as fast; more cores share the
// memory's bandwidth, and may gain earlier.
constexpr size_t kDirectBytes = size_t{32} << 20;
constexpr size_t kNever = SIZE_MAX;

bool CanRead(char* segment) {
  const SegmentHeader* header = reinterpret_cast<SegmentHeader*>(segment);
  uint64_t secret = 0;
  const iovec to{&secret, sizeof secret};
  const iovec from{reinterpret_cast<void*>(header->secret_address), sizeof secret};
  const ssize_t n = process_vm_readv(static_cast<pid_t>(header->pid), &to, 1, &from, 1, 0);
  // A process of the same number in another PID namespace does not know the secret.
  return n == sizeof secret && secret == header->secret;
}

// Drops the first `n` bytes.
void Advance(std::vector<iovec>* list, size_t n) {
  auto it = list->begin();
  for (; it != list->end() && n >= it->iov_len; ++it) n -= it->iov_len;
  list->erase(list->begin(), it);
  if (list->empty() || n == 0) return;
  list->front().iov_base = static_cast<char*>(list->front().iov_base) + n;
  list->front().iov_len -= n;
}

// Reads `from`, addresses in the memory of `pid`, into `to`; as many bytes in all.
int Read(pid_t pid, std::vector<iovec> to, std::vector<iovec> from) {
  while (!to.empty()) {
    const ssize_t n = process_vm_readv(pid, to.data(), to.size(), from.data(), from.size(), 0);
    if (n <= 0) return n < 0 ? errno : EFAULT;
    Advance(&to, static_cast<size_t>(n));
    Advance(&from, static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

size_t DirectBytes() {
  static const size_t nbytes = MibFrom("PCCL_CMA_MIB", kDirectBytes);
  return nbytes == 0 ? kNever : nbytes;
}

void ProbeDirectReads(char* own_segment, const std::vector<char*>& segments) {
  const bool can =
      DirectBytes() != kNever && std::all_of(segments.begin(), segments.end(), CanRead);
  reinterpret_cast<SegmentHeader*>(own_segment)->reads_peers.store(can, std::memory_order_release);
}

void TellRuns(const BoardRef& own, const std::vector<ByteStream>& streams) {
  size_t n = 0;
  for (const ByteStream& stream : streams) {
    stream.ForRuns(0, stream.nbytes(), [&](const ByteStream::Run& run, size_t) {
      own->runs[n++] = {reinterpret_cast<uint64_t>(stream.at(run)), run.nbytes};
    });
  }
}

int ReadRuns(const BoardRef& board, size_t begin, size_t end, const ByteStream& to,
             size_t to_begin) {
  std::vector<iovec> targets, sources;
  to.ForRuns(to_begin, to_begin + (end - begin), [&](const ByteStream::Run& run, size_t) {
    targets.push_back({to.at(run), run.nbytes});
  });
  size_t start = 0;  // of the run
  for (size_t r = 0; r < kRuns && start < end; start += board->runs[r++].nbytes) {
    const size_t first = std::max(begin, start);
    const size_t last = std::min<size_t>(end, start + board->runs[r].nbytes);
    if (first >= last) continue;
    const uint64_t address = board->runs[r].address + (first - start);
    sources.push_back({reinterpret_cast<void*>(address), last - first});
  }
  return Read(static_cast<pid_t>(board.owner_pid()), std::move(targets), std::move(sources));
}

}  // namespace pccl
