// Chunks addressed as one string of bytes, whatever their layout in memory.
#ifndef PCCL_FFI_BYTE_STREAM_H_
#define PCCL_FFI_BYTE_STREAM_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ffi/geometry.h"

namespace pccl {

// A list of views in order. Streams over the same chunks, in whatever buffers, agree on where
// rows begin, so a run found in one of them is a run in all of them.
class ByteStream {
 public:
  // A piece that is contiguous in memory: bytes [begin, begin + nbytes) of one row of one view.
  struct Run {
    size_t view, row, begin, nbytes;
  };

  void Append(const View& view) {
    views_.push_back(view);
    nbytes_ += view.nbytes();
  }
  size_t nbytes() const { return nbytes_; }
  char* at(const Run& run) const { return views_[run.view].row(run.row) + run.begin; }

  // Calls f(run, offset) for the runs of bytes [begin, end), offset counted from `begin`.
  template <class F>
  void ForRuns(size_t begin, size_t end, F&& f) const {
    size_t start = 0;  // of the view
    for (size_t v = 0; v < views_.size() && start < end; start += views_[v].nbytes(), ++v) {
      const View& view = views_[v];
      if (start + view.nbytes() <= begin) continue;
      const size_t first = std::max(begin, start) - start;
      const size_t last = std::min(end, start + view.nbytes()) - start;
      for (size_t at = first; at < last;) {
        const size_t column = at % view.row_bytes;
        const size_t n = std::min(view.row_bytes - column, last - at);
        f(Run{v, at / view.row_bytes, column, n}, start + at - begin);
        at += n;
      }
    }
  }

  // The address of bytes [begin, end) where they are contiguous, else nullptr.
  char* Contiguous(size_t begin, size_t end) const {
    char* data = nullptr;
    char* next = nullptr;
    bool broken = false;
    ForRuns(begin, end, [&](const Run& run, size_t) {
      char* here = at(run);
      if (data == nullptr) data = here;
      broken |= next != nullptr && here != next;
      next = here + run.nbytes;
    });
    return broken ? nullptr : data;
  }

 private:
  std::vector<View> views_;
  size_t nbytes_ = 0;
};

}  // namespace pccl

#endif  // PCCL_FFI_BYTE_STREAM_H_
