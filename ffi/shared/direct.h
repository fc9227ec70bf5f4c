// Reading the private memory of another process of the host, where the kernel lets us.
#ifndef PCCL_FFI_SHARED_DIRECT_H_
#define PCCL_FFI_SHARED_DIRECT_H_

#include <cstddef>
#include <vector>

#include "ffi/byte_stream.h"
#include "ffi/shared/board.h"

namespace pccl {

// From this many bytes a rank on an all-gather reads its peers' memory: one copy, through the
// kernel, in place of two that stay in the cache. PCCL_CMA_MIB; 0 says never.
size_t DirectBytes();

// Notes in the own segment whether this process can read the memory of the owners of all the
// `segments`. It cannot where ptrace is restricted (Yama, seccomp), or from another PID namespace.
void ProbeDirectReads(char* own_segment, const std::vector<char*>& segments);

// Tells on the own board, for its readers, where the streams' bytes are. They may be kRuns runs.
void TellRuns(const BoardRef& own, const std::vector<ByteStream>& streams);

// Reads bytes [begin, end) of what the board's owner has told of, its streams one after the other,
// into bytes [to_begin, ...) of `to`. Returns 0 or errno.
int ReadRuns(const BoardRef& board, size_t begin, size_t end, const ByteStream& to,
             size_t to_begin);

}  // namespace pccl

#endif  // PCCL_FFI_SHARED_DIRECT_H_
