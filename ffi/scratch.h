// Working memory that outlives the collective that used it, so that its pages stay mapped.
#ifndef PCCL_FFI_SCRATCH_H_
#define PCCL_FFI_SCRATCH_H_

#include <cstddef>

namespace pccl {

// A block of at least `nbytes`, aligned to a cache line, contents undefined. Thread safe. Blocks
// go back to a pool that keeps at most kKeptBytes of them.
class Scratch {
 public:
  static constexpr size_t kKeptBytes = size_t{256} << 20;

  Scratch() = default;
  explicit Scratch(size_t nbytes);  // throws std::bad_alloc
  ~Scratch();
  Scratch(Scratch&& other) noexcept;
  Scratch& operator=(Scratch&& other) noexcept;

  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pccl

#endif  // PCCL_FFI_SCRATCH_H_
