// Runs every kernel on buffers of exactly its size, for a build with sanitizers to watch.

#include <cstdint>
#include <cstdio>
#include <vector>

#include "buffer.h"
#include "kernels/types.h"

extern "C" {
size_t item_size(int dtype);
int best_isa();
int reduce(int dtype, int op, int isa, void* dst, const void* const* srcs, int k, size_t count);
void reduce_broadcast(int dtype, int op, void* const* dsts, int num_dst, const void* const* srcs,
                      int k, size_t count, int stream);
void copy(void* dst, const void* src, size_t nbytes, int stream);
void copy_2d(void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t rows,
             size_t row_bytes, int stream);
void copy_to_many(void* const* dsts, int n, const void* src, size_t nbytes, int stream);
void prepare_output(void* p, size_t nbytes);
}

namespace {

std::vector<Buffer> MakeBuffers(int n, size_t nbytes, size_t shift) {
  std::vector<Buffer> buffers;
  for (int j = 0; j < n; ++j) buffers.emplace_back(nbytes, shift, static_cast<unsigned>(37 + j));
  return buffers;
}

template <class Pointer>
std::vector<Pointer> Pointers(const std::vector<Buffer>& buffers) {
  std::vector<Pointer> pointers;
  for (const Buffer& buffer : buffers) pointers.push_back(buffer.data());
  return pointers;
}

void RunReductions(int dtype, int op, int k, size_t count, size_t shift) {
  const size_t nbytes = count * item_size(dtype);
  const std::vector<Buffer> sources = MakeBuffers(k, nbytes, shift);
  const std::vector<Buffer> outputs = MakeBuffers(2, nbytes, shift);
  const auto srcs = Pointers<const void*>(sources);
  const auto dsts = Pointers<void*>(outputs);
  for (int isa = 0; isa <= best_isa(); ++isa) {
    if (reduce(dtype, op, isa, dsts[0], srcs.data(), k, count) == 0) return;
  }
  for (int stream = 0; stream <= 1; ++stream) {
    reduce_broadcast(dtype, op, dsts.data(), 2, srcs.data(), k, count, stream);
  }
  reduce(dtype, op, best_isa(), sources.back().data(), srcs.data(), k, count);
}

void RunCopies(size_t nbytes, size_t shift, int stream) {
  const Buffer source(nbytes, shift, 3);
  const std::vector<Buffer> outputs = MakeBuffers(3, nbytes, shift);
  const auto dsts = Pointers<void*>(outputs);
  prepare_output(dsts[0], nbytes);
  copy(dsts[0], source.data(), nbytes, stream);
  copy_to_many(dsts.data(), 3, source.data(), nbytes, stream);
  for (const size_t row : {size_t{1}, size_t{4}, size_t{16}, size_t{24}, size_t{300}}) {
    const size_t rows = nbytes / (2 * row);
    if (rows > 0) copy_2d(dsts[0], 2 * row, source.data(), row, rows, row, stream);
  }
}

}  // namespace

int main() {
  for (int dtype = 0; dtype <= static_cast<int>(pccl::DType::kComplex128); ++dtype) {
    for (int op = 0; op <= static_cast<int>(pccl::Op::kMin); ++op) {
      for (const int k : {1, 2, 3, 4, 5, 8, 17}) {
        for (const size_t count : {0, 1, 7, 64, 4097}) {
          for (const size_t shift : {size_t{0}, item_size(dtype), size_t{1}}) {
            RunReductions(dtype, op, k, count, shift);
          }
        }
      }
    }
  }
  for (const size_t nbytes : {0, 1, 63, 256, 1000, 8192, 100003, 5 << 20}) {
    for (const size_t shift : {0, 1, 16}) {
      RunCopies(nbytes, shift, 0);
      RunCopies(nbytes, shift, 1);
    }
  }
  std::puts("clean");
  return 0;
}
