// Runs the GPU kernels of every type and operator on buffers of exactly their size, on the CPU, for
// a build with sanitizers to watch. Two and eight sources have the largest and the smallest batch.

#include <cstdio>
#include <vector>

#include "buffer.h"
#include "kernels/gpu/dispatch.h"
#include "kernels/gpu/fold_kernel.h"
#include "kernels/types.h"

using namespace pccl::kernels;
using pccl::DType;
using pccl::Op;

namespace {

struct Visitor {
  Launch launch;
  int k;

  template <class Codec, class Operator>
  int Visit() const {
    if (k == 2) return launch.Run<Codec, Operator, 2>();
    return launch.Run<Codec, Operator, 8>();
  }
};

void RunReductions(DType dtype, Op op, int k, Blocks blocks, size_t shift, size_t differing) {
  const size_t nbytes =
      static_cast<size_t>(blocks.rows * blocks.cols) * blocks.count * pccl::ItemSize(dtype);
  const Buffer output(nbytes, shift, 3);
  std::vector<Buffer> sources;
  std::vector<const void*> srcs;
  for (int j = 0; j < k; ++j) {
    const size_t extra = j == 1 ? differing : 0;
    sources.emplace_back(nbytes, shift + extra, static_cast<unsigned>(37 + j));
    srcs.push_back(sources.back().data());
  }
  DispatchGpu(dtype, op, Visitor{Launch{output.data(), srcs.data(), blocks, nullptr}, k}, -1);
  if (blocks.rows > 1) return;
  DispatchGpu(dtype, op, Visitor{Launch{sources[1].data(), srcs.data(), blocks, nullptr}, k}, -1);
}

}  // namespace

int main() {
  for (int dtype = 0; dtype <= static_cast<int>(DType::kFloat8E5M2); ++dtype) {
    const DType type = static_cast<DType>(dtype);
    const size_t size = pccl::ItemSize(type);
    for (int op = 0; op <= static_cast<int>(Op::kMin); ++op) {
      for (const int k : {2, 8}) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, 16400 / size + 1}) {
          for (const size_t shift : {size_t{0}, size, size_t{1}}) {
            RunReductions(type, static_cast<Op>(op), k, Blocks{1, 1, count}, shift, 0);
            if (count > 100) continue;
            RunReductions(type, static_cast<Op>(op), k, Blocks{1, 1, count}, shift, size);
            RunReductions(type, static_cast<Op>(op), k, Blocks{3, 2, count}, shift, 0);
          }
        }
      }
    }
  }
  std::puts("clean");
  return 0;
}
