// Runs GPU kernels on a CPU, every thread of the grid in turn, for tests under sanitizers.
//
// Enough for kernels whose threads are independent: there are no barriers, no shared memory and no
// warps. It shows what each thread reads, computes and writes; not races, limits of a launch,
// speed.

#ifndef PCCL_KERNELS_GPU_CPU_SHIM_H_
#define PCCL_KERNELS_GPU_CPU_SHIM_H_

#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace pccl::gpu {

// What a device says to a launch of nothing, or of more than it has.
inline thread_local int last_error = 0;
constexpr int kInvalidConfiguration = 9;

template <class Kernel, class... Args>
void RunOnCpu(Kernel kernel, dim3 grid, dim3 block, Args... args) {
  const bool some = grid.x > 0 && grid.y > 0 && block.x > 0 && block.y > 0;
  if (!some || grid.y > 65535 || block.x * block.y > 1024) last_error = kInvalidConfiguration;
  gridDim = grid;
  blockDim = block;
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
      for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y) {
        for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel(args...);
      }
    }
  }
}

}  // namespace pccl::gpu

#define PCCL_GPU_LAUNCH(kernel, grid, threads, stream, ...) \
  (static_cast<void>(stream), pccl::gpu::RunOnCpu(kernel, grid, threads, __VA_ARGS__))
#define PCCL_GPU_LAST_ERROR() std::exchange(pccl::gpu::last_error, 0)

#endif  // PCCL_KERNELS_GPU_CPU_SHIM_H_
