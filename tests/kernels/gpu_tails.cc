// Checks the ends of what the GPU kernel folds and moves, on the CPU: every count near a multiple
// of a vector, every alignment, several shapes of the grid. Answers 1 at the first wrong byte.
// The tests compile it once as it is, and once for each mutation of the kernel.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "buffer.h"
#include "kernels/gpu/fold_kernel.h"

using namespace pccl::kernels;

namespace {

template <class Wire, int kSources>
void Expected(unsigned char* dst, const Pointers<kSources>& from, Blocks blocks) {
  for (int64_t b = 0; b < blocks.rows * blocks.cols; ++b) {
    const int64_t row = b % blocks.rows, col = b / blocks.rows;
    for (size_t i = 0; i < blocks.count; ++i) {
      Wire total = 0;
      for (int j = 0; j < kSources; ++j) {
        const size_t source = static_cast<size_t>(row * blocks.cols + col) * blocks.count + i;
        total = static_cast<Wire>(total + Load<Wire>(from.src[j], source));
      }
      Store(dst, static_cast<size_t>(b) * blocks.count + i, total);
    }
  }
}

template <class Wire, int kSources>
bool Check(Blocks blocks, size_t shift, size_t differing, size_t apart) {
  const size_t nbytes =
      static_cast<size_t>(blocks.rows * blocks.cols) * blocks.count * sizeof(Wire);
  std::vector<Buffer> sources;
  Pointers<kSources> from;
  const void* srcs[kSources];
  for (int j = 0; j < kSources; ++j) {
    sources.emplace_back(nbytes, shift + (j == 0 ? differing : 0), static_cast<unsigned>(37 + j));
    from.src[j] = reinterpret_cast<const char*>(sources.back().data());
    srcs[j] = from.src[j];
  }
  std::vector<unsigned char> want(nbytes + 1);
  Expected<Wire>(want.data(), from, blocks);
  const auto same = [&](const Buffer& got) {
    return nbytes == 0 || std::memcmp(got.data(), want.data(), nbytes) == 0;
  };
  // Grids far smaller than the work: every loop goes round more than once.
  const auto run_small = [&](const Buffer& dst) {
    pccl::gpu::RunOnCpu(FoldKernel<Plain<Wire>, Sum, kSources>, dim3(2, 2), dim3(4, 1),
                        reinterpret_cast<char*>(dst.data()), from, blocks);
    return same(dst);
  };
  const Buffer chosen(nbytes, shift + apart, 1), small(nbytes, shift + apart, 1);
  const Launch launch{chosen.data(), srcs, blocks, nullptr};
  if (launch.Run<Plain<Wire>, Sum, kSources>() != PCCL_GPU_OK) return false;
  if (!same(chosen) || !run_small(small)) return false;
  // In place nothing may be done twice.
  return blocks.rows != 1 || run_small(sources[0]);
}

template <class Wire, int kSources>
bool CheckShifts(Blocks blocks, size_t shift, size_t differing) {
  return Check<Wire, kSources>(blocks, shift, differing, 0) &&
         Check<Wire, kSources>(blocks, shift, differing, 1);
}

template <class Wire, int kSources>
bool CheckAll() {
  constexpr size_t kPerVector = sizeof(Vector) / sizeof(Wire);
  for (const size_t shift : {size_t{0}, sizeof(Wire), size_t{1}, size_t{8}}) {
    for (const size_t differing : {size_t{0}, sizeof(Wire), size_t{3}}) {
      for (size_t count = 0; count < 4 * kPerVector + 2; ++count) {
        for (const Blocks blocks :
             {Blocks{1, 1, count}, Blocks{2, 3, count}, Blocks{1, 5, count}}) {
          if (!CheckShifts<Wire, kSources>(blocks, shift, differing)) return false;
        }
      }
      const size_t tile = kPerVector * kThreads * kBatch<kSources>;
      for (const size_t count : {10 * kPerVector, tile - 1, tile, 2 * tile + kPerVector + 1}) {
        if (!CheckShifts<Wire, kSources>(Blocks{1, 1, count}, shift, differing)) return false;
      }
    }
  }
  return true;
}

}  // namespace

int main() {
  const bool right = CheckAll<uint32_t, 2>() && CheckAll<uint8_t, 1>();
  std::puts(right ? "right" : "wrong");
  return right ? 0 : 1;
}
