/* Reductions and permutations of GPU buffers: what the rest of the project calls. Plain C.
 *
 * Every function enqueues on `stream` (a cudaStream_t or hipStream_t as void*; null is the default
 * stream) of the current device and returns at once: buffers belong to the caller and stay valid
 * until the stream has passed. Nothing is allocated or waited for, so calls can be captured in a
 * graph. Buffers of any alignment and any count are served; those that lie alike relative to
 * multiples of 16 bytes are read and written 16 bytes at a time.
 *
 * The answer is PCCL_GPU_OK, PCCL_GPU_UNSUPPORTED where there is no such kernel or an argument is
 * out of range (nothing was enqueued), or the positive error code of the CUDA or HIP runtime.
 */

#ifndef PCCL_KERNELS_GPU_KERNELS_H_
#define PCCL_KERNELS_GPU_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

#define PCCL_GPU_OK 0
#define PCCL_GPU_UNSUPPORTED (-1)
#define PCCL_GPU_MAX_SOURCES 8

#ifdef __cplusplus
extern "C" {
#endif

/* dst[i] = (..(srcs[0][i] op srcs[1][i]) op ..) op srcs[k-1][i] for i < count, 2 <= k <= 8.
 *
 * `dtype` and `op` are the codes of kernels/types.h. `srcs` is read before the function returns.
 * dst may be equal to any of srcs; otherwise it overlaps none of them. 8-bit and 16-bit floats are
 * accumulated in float32 and rounded once, to nearest even; float8_e4m3fn, which has no infinity,
 * overflows to NaN. Integers wrap. Max and min are NaN if any source is NaN, and -0 < +0. Booleans
 * are bytes of value 0 or 1: sum and max are "or", product and min are "and". */
int pccl_gpu_reduce(int dtype, int op, void* dst, const void* const* srcs, int k, size_t count,
                    void* stream);

/* The blocks of a rows x cols matrix, transposed: block c * rows + r of dst is block r * cols + c
 * of src; a block is `block_nbytes` long. dst and src do not overlap.
 *
 * With ranks numbered node by node, N nodes of L ranks, rows = N and cols = L bring a vector into
 * the order of a reduce-scatter within the node (chunks for local rank 0 first), and rows = L and
 * cols = N bring what was gathered between nodes and then within them into the order of ranks. */
int pccl_gpu_permute(void* dst, const void* src, int64_t rows, int64_t cols, size_t block_nbytes,
                     void* stream);

/* pccl_gpu_reduce of rows * cols blocks of `block_count` elements, the result transposed as by
 * pccl_gpu_permute, in one pass over the memory. dst overlaps no source unless rows or cols is 1,
 * which is pccl_gpu_reduce. */
int pccl_gpu_permute_reduce(int dtype, int op, void* dst, const void* const* srcs, int k,
                            int64_t rows, int64_t cols, size_t block_count, void* stream);

/* With `now`, a kernel that stops the device: all that this process has enqueued there, and
 * enqueues later, fails with a launch failure, for good. Without, the same kernel does nothing;
 * that loads it, for which a device that hangs would have no time. PCCL_GPU_UNSUPPORTED but with
 * CUDA: a trap on an AMD card ends the process. */
int pccl_gpu_trap(int now, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* PCCL_KERNELS_GPU_KERNELS_H_ */
