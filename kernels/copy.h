// Copies that choose their cache behaviour, and memory made ready to be copied into.
//
// Every function here is thread-safe, keeps no state and returns when done. Source and destination
// do not overlap. `stream` asks for non-temporal stores: right where the destination is large and
// not read soon, wrong where the next step reads it from the cache. Streamed bytes are visible to
// other threads when the call returns, except where a function says otherwise.

#ifndef PCCL_KERNELS_COPY_H_
#define PCCL_KERNELS_COPY_H_

#include <cstddef>

namespace pccl {

void Copy(void* dst, const void* src, size_t nbytes, bool stream);

// Copies `rows` rows of `row_bytes`; row r starts r strides (in bytes) after the base.
void Copy2D(void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t rows,
            size_t row_bytes, bool stream);

// Copies src to each of dsts[0..n), reading it from memory once. dsts[j] may be equal to src.
void CopyToMany(void* const* dsts, int n, const void* src, size_t nbytes, bool stream);

// Asks for huge pages under a region about to be written for the first time, so that a page fault
// is taken per 2 MiB rather than per 4 KiB. A hint: it changes no content, and does nothing for
// small regions or where the system has no such thing.
void PrepareOutput(void* p, size_t nbytes);

// Copy in pieces: CopyUnfenced for each piece, then one StreamFence before another thread is told.
void CopyUnfenced(void* dst, const void* src, size_t nbytes, bool stream);
void StreamFence();

}  // namespace pccl

#endif  // PCCL_KERNELS_COPY_H_
