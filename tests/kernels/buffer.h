// A buffer that ends where its allocation ends, so that a sanitizer sees the first byte beyond.

#ifndef PCCL_TESTS_KERNELS_BUFFER_H_
#define PCCL_TESTS_KERNELS_BUFFER_H_

#include <cstddef>
#include <cstdlib>

class Buffer {
 public:
  // Begins `shift` bytes after a multiple of 16; what it holds depends on `seed`.
  Buffer(size_t nbytes, size_t shift, unsigned seed)
      : base_(static_cast<unsigned char*>(std::malloc(nbytes + shift))), shift_(shift) {
    for (size_t i = 0; i < nbytes; ++i) data()[i] = static_cast<unsigned char>(seed * i + i / 7);
  }
  Buffer(Buffer&& other) noexcept : base_(other.base_), shift_(other.shift_) {
    other.base_ = nullptr;
  }
  ~Buffer() { std::free(base_); }
  unsigned char* data() const { return base_ + shift_; }

 private:
  unsigned char* base_;
  size_t shift_;
};

#endif  // PCCL_TESTS_KERNELS_BUFFER_H_
