#include "ffi/geometry.h"

#include "kernels/copy.h"

namespace pccl {

void Copy(const View& dst, const View& src, bool stream) {
  if (dst.rows == 1) {
    Copy(dst.data, src.data, dst.row_bytes, stream);
  } else {
    Copy2D(dst.data, dst.stride, src.data, src.stride, dst.rows, dst.row_bytes, stream);
  }
}

std::string Geometry::Make(Collective collective, int64_t ranks, int64_t rows, size_t in_bytes,
                           size_t out_bytes, size_t item_bytes, Geometry* geometry) {
  const auto n = static_cast<size_t>(ranks);
  const bool gathers = collective == Collective::kAllGather;
  const bool reduces_all = collective == Collective::kAllReduce;
  const size_t own = gathers ? in_bytes : out_bytes;
  const size_t whole = gathers ? out_bytes : in_bytes;
  const auto row_count = static_cast<size_t>(rows);
  if (rows < 1 || item_bytes < 1 || whole != (reduces_all ? own : own * n) ||
      own % (row_count * item_bytes) != 0) {
    return std::string(Name(collective)) + ": buffers of " + std::to_string(in_bytes) + " and " +
           std::to_string(out_bytes) + " bytes do not fit " + std::to_string(ranks) +
           " ranks and " + std::to_string(rows) + " rows";
  }
  geometry->even_ = !reduces_all;
  geometry->ranks_ = ranks;
  geometry->rows_ = row_count;
  geometry->row_bytes_ = own / row_count;
  geometry->whole_bytes_ = whole;
  geometry->item_bytes_ = item_bytes;
  return "";
}

size_t Geometry::Boundary(int64_t place) const {
  if (place == ranks_) return whole_bytes_;
  constexpr size_t kLine = 64;  // a multiple of every item size
  const size_t lines = whole_bytes_ / kLine;
  const auto n = static_cast<size_t>(ranks_), p = static_cast<size_t>(place);
  return (lines / n * p + lines % n * p / n) * kLine;
}

View Geometry::Chunk(char* whole, int64_t place) const {
  if (even_) {
    const size_t stride = row_bytes_ * static_cast<size_t>(ranks_);
    return {whole + static_cast<size_t>(place) * row_bytes_, rows_, row_bytes_, stride};
  }
  const size_t begin = Boundary(place);
  return {whole + begin, 1, Boundary(place + 1) - begin, 0};
}

View Geometry::Own(char* own) const { return {own, rows_, row_bytes_, row_bytes_}; }

}  // namespace pccl
