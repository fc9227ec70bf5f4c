#include "ffi/shared/direct.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <cstdlib>

namespace pccl {
namespace {

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

}  // namespace

void ProbeDirectReads(char* own_segment, const std::vector<char*>& segments) {
  const char* setting = std::getenv("PCCL_CMA");
  const bool wanted = setting == nullptr || strcmp(setting, "0") != 0;
  const bool can = wanted && std::all_of(segments.begin(), segments.end(), CanRead);
  reinterpret_cast<SegmentHeader*>(own_segment)->reads_peers.store(can, std::memory_order_release);
}

int ReadDirectly(const BoardRef& board, std::vector<iovec> to, std::vector<iovec> from) {
  while (!to.empty()) {
    const ssize_t n = process_vm_readv(static_cast<pid_t>(board.owner_pid()), to.data(), to.size(),
                                       from.data(), from.size(), 0);
    if (n <= 0) return n < 0 ? errno : EFAULT;
    Advance(&to, static_cast<size_t>(n));
    Advance(&from, static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace pccl
