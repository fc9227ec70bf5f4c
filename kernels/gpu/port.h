// What differs between CUDA (nvcc), HIP (hipcc) and a CPU (any C++ compiler, for tests).

#ifndef PCCL_KERNELS_GPU_PORT_H_
#define PCCL_KERNELS_GPU_PORT_H_

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define PCCL_GPU_CUDA 1
#define PCCL_GPU_LAUNCH(kernel, grid, threads, stream, ...) \
  kernel<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)
#define PCCL_GPU_LAST_ERROR() static_cast<int>(cudaGetLastError())

#elif defined(__HIPCC__)

#include <hip/hip_runtime.h>

#define PCCL_GPU_LAUNCH(kernel, grid, threads, stream, ...) \
  kernel<<<grid, threads, 0, static_cast<hipStream_t>(stream)>>>(__VA_ARGS__)
#define PCCL_GPU_LAST_ERROR() static_cast<int>(hipGetLastError())

#else
#include "kernels/gpu/cpu_shim.h"
#endif

#define PCCL_GPU_INLINE __device__ __forceinline__

#endif  // PCCL_KERNELS_GPU_PORT_H_
