// What the executor needs of the CUDA or HIP runtime: a few functions, so that one source serves
// both, and tests can put a device of their own in their place.
#ifndef PCCL_FFI_GPU_RUNTIME_H_
#define PCCL_FFI_GPU_RUNTIME_H_

#include <cstddef>
#include <string>

namespace pccl::gpu {

// A cudaStream_t or hipStream_t.
using Stream = void*;

// All functions concern the current device of the calling thread, and throw std::runtime_error with
// the runtime's own text where it reports an error. Those that take a stream enqueue and return;
// their buffers must stay valid until the stream has passed.

// Between buffers of the device and pinned host memory, in any direction.
void CopyAsync(void* dst, const void* src, size_t nbytes, Stream stream);
// `rows` rows of `row_bytes` bytes, whose beginnings are `dst_stride` and `src_stride` apart.
void Copy2DAsync(void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t row_bytes,
                 size_t rows, Stream stream);
void ZeroAsync(void* dst, size_t nbytes, Stream stream);

// Waits for what is in the stream.
void Synchronize(Stream stream);

int CurrentDevice();
void SetDevice(int ordinal);

// Whether what is enqueued is recorded in a graph, and so runs later than it seems.
bool IsCapturing(Stream stream);

// Lets the calling thread look at events while other threads record graphs.
void AllowWhileCapturing();

// A stream of our own.
class SideStream {
 public:
  SideStream();
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  Stream get() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

// A point in a stream.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // After everything that is in the stream now.
  void Record(Stream stream);
  // Whether the stream has passed; true if never recorded.
  bool Passed() const;
  // What is enqueued in `stream` from now on comes after.
  void HoldBack(Stream stream) const;

 private:
  void* event_ = nullptr;
};

// Host memory that the device copies from and to by itself.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t nbytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  char* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }

 private:
  char* data_ = nullptr;
  size_t nbytes_ = 0;
};

}  // namespace pccl::gpu

#endif  // PCCL_FFI_GPU_RUNTIME_H_
