#include <cstdint>
#include <limits>

#include "kernels/gpu/codecs.h"
#include "kernels/gpu/dispatch.h"
#include "kernels/gpu/fold_kernel.h"
#include "kernels/gpu/kernels.h"
#include "kernels/types.h"

namespace pccl::kernels {
namespace {

struct Reducer {
  Launch launch;
  int k;

  template <class Codec, class Operator>
  int Visit() const {
    using Fast = typename Native<Codec>::type;
    switch (k) {
      case 2:
        return launch.Run<Fast, Operator, 2>();
      case 3:
        return launch.Run<Fast, Operator, 3>();
      case 4:
        return launch.Run<Fast, Operator, 4>();
      case 5:
        return launch.Run<Fast, Operator, 5>();
      case 6:
        return launch.Run<Fast, Operator, 6>();
      case 7:
        return launch.Run<Fast, Operator, 7>();
      case 8:
        return launch.Run<Fast, Operator, 8>();
      default:
        return PCCL_GPU_UNSUPPORTED;
    }
  }
};

// Whether the matrix and its bytes can be counted.
bool Fits(int64_t rows, int64_t cols, size_t block_nbytes) {
  if (rows < 0 || cols < 0) return false;
  if (rows == 0 || cols == 0 || block_nbytes == 0) return true;
  const uint64_t limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const uint64_t num_rows = static_cast<uint64_t>(rows), num_cols = static_cast<uint64_t>(cols);
  return num_rows <= limit / num_cols && block_nbytes <= limit / (num_rows * num_cols);
}

// A matrix of one row or one column is one block.
Blocks Merged(int64_t rows, int64_t cols, size_t count) {
  if (rows != 1 && cols != 1) return Blocks{rows, cols, count};
  return Blocks{1, 1, static_cast<size_t>(rows * cols) * count};
}

template <class Unit>
int Copy(Launch bytes) {
  bytes.blocks.count /= sizeof(Unit);
  return bytes.Run<Plain<Unit>, Sum, 1>();
}

}  // namespace
}  // namespace pccl::kernels

int pccl_gpu_permute_reduce(int dtype, int op, void* dst, const void* const* srcs, int k,
                            int64_t rows, int64_t cols, size_t block_count, void* stream) {
  using namespace pccl::kernels;
  const pccl::DType type = static_cast<pccl::DType>(dtype);
  const size_t item_size = pccl::ItemSize(type);
  if (item_size == 0 || block_count > std::numeric_limits<size_t>::max() / item_size ||
      !Fits(rows, cols, block_count * item_size)) {
    return PCCL_GPU_UNSUPPORTED;
  }
  const Reducer reducer{Launch{dst, srcs, Merged(rows, cols, block_count), stream}, k};
  return DispatchGpu(type, static_cast<pccl::Op>(op), reducer, PCCL_GPU_UNSUPPORTED);
}

int pccl_gpu_reduce(int dtype, int op, void* dst, const void* const* srcs, int k, size_t count,
                    void* stream) {
  return pccl_gpu_permute_reduce(dtype, op, dst, srcs, k, 1, 1, count, stream);
}

int pccl_gpu_permute(void* dst, const void* src, int64_t rows, int64_t cols, size_t block_nbytes,
                     void* stream) {
  using namespace pccl::kernels;
  if (!Fits(rows, cols, block_nbytes)) return PCCL_GPU_UNSUPPORTED;
  const Launch launch{dst, &src, Merged(rows, cols, block_nbytes), stream};
  // Blocks that lie differently relative to 16 bytes are moved by the largest unit all lie alike
  // to.
  const uintptr_t all =
      reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src) | launch.blocks.count;
  if (all % 8 == 0) return Copy<uint64_t>(launch);
  if (all % 4 == 0) return Copy<uint32_t>(launch);
  if (all % 2 == 0) return Copy<uint16_t>(launch);
  return Copy<uint8_t>(launch);
}

#if defined(PCCL_GPU_CUDA)

static __global__ void TrapKernel(int now) {
  if (now != 0) __trap();
}

int pccl_gpu_trap(int now, void* stream) {
  PCCL_GPU_LAUNCH(TrapKernel, 1, 1, stream, now);
  return PCCL_GPU_LAST_ERROR();
}

#else

int pccl_gpu_trap(int, void*) { return PCCL_GPU_UNSUPPORTED; }

#endif
