// Reading the private memory of another process of the host, where the kernel lets us.
#ifndef PCCL_FFI_SHARED_DIRECT_H_
#define PCCL_FFI_SHARED_DIRECT_H_

#include <sys/uio.h>

#include <vector>

#include "ffi/shared/board.h"

namespace pccl {

// Notes in the own segment whether this process can read the memory of the owners of all the
// `segments`. It cannot where ptrace is restricted (Yama, seccomp), or from another PID namespace.
// PCCL_CMA=0 says no.
void ProbeDirectReads(char* own_segment, const std::vector<char*>& segments);

// Reads `from`, addresses in the memory of the board's owner, into `to`; as many bytes in all.
// Returns 0 or errno.
int ReadDirectly(const BoardRef& board, std::vector<iovec> to, std::vector<iovec> from);

}  // namespace pccl

#endif  // PCCL_FFI_SHARED_DIRECT_H_
