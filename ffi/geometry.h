// Where the chunks of a collective lie in memory.
#ifndef PCCL_FFI_GEOMETRY_H_
#define PCCL_FFI_GEOMETRY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "ffi/schedule.h"

namespace pccl {

// `rows` runs of `row_bytes` bytes, `stride` bytes apart.
struct View {
  char* data = nullptr;
  size_t rows = 1;
  size_t row_bytes = 0;
  size_t stride = 0;

  size_t nbytes() const { return rows * row_bytes; }
  char* row(size_t i) const { return data + i * stride; }
  // Rows [begin, end) only; or, of a view of one row, bytes [begin, end) only.
  View Rows(size_t begin, size_t end) const { return {row(begin), end - begin, row_bytes, stride}; }
  View Bytes(size_t begin, size_t end) const { return {data + begin, 1, end - begin, 0}; }
};

void Copy(const View& dst, const View& src, bool stream);

// The sizes of one execution. An array that holds every chunk is "whole", one that holds a
// single chunk is "own". Of an all-gather the input is own and the output whole; of a
// reduce-scatter the reverse; of an all-reduce both are whole. A chunk of an all-gather or a
// reduce-scatter along a later dimension has one row per index of the earlier dimensions.
class Geometry {
 public:
  // Returns an error text where the buffer sizes contradict each other, or "".
  static std::string Make(Collective collective, int64_t ranks, int64_t rows, size_t in_bytes,
                          size_t out_bytes, size_t item_bytes, Geometry* geometry);

  // The chunk at `place` of the array that starts at `whole`.
  View Chunk(char* whole, int64_t place) const;
  View Own(char* own) const;
  View Everything(char* whole) const { return {whole, 1, whole_bytes_, 0}; }
  size_t whole_bytes() const { return whole_bytes_; }
  size_t item_bytes() const { return item_bytes_; }
  size_t rows() const { return rows_; }  // of a chunk in a whole array

 private:
  // All-reduce: chunks begin at multiples of 64 bytes so that no two share a cache line.
  size_t Boundary(int64_t place) const;

  bool even_ = true;
  int64_t ranks_ = 1;
  size_t rows_ = 1, row_bytes_ = 0;
  size_t whole_bytes_ = 0;
  size_t item_bytes_ = 1;
};

}  // namespace pccl

#endif  // PCCL_FFI_GEOMETRY_H_
