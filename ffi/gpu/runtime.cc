#include "ffi/gpu/runtime.h"

#include <stdexcept>

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime_api.h>
#define PCCL_RT(name) hip##name
#else
#include <cuda_runtime_api.h>
#define PCCL_RT(name) cuda##name
#endif

namespace pccl::gpu {
namespace {

// Rows further apart than this are beyond what a 2D copy takes.
constexpr size_t kMaxStride = (size_t{1} << 31) - 1;

using Result = PCCL_RT(Error_t);

// The runtime remembers what it has reported, also that an event has not passed, until somebody
// asks for it; whoever launches a kernel next would take it for the kernel's.
void Forget() { static_cast<void>(PCCL_RT(GetLastError)()); }

void Check(Result result, const char* what) {
  if (result == PCCL_RT(Success)) return;
  Forget();
  throw std::runtime_error(std::string("GPU runtime: ") + what + ": " +
                           PCCL_RT(GetErrorString)(result));
}

PCCL_RT(Stream_t) Raw(Stream stream) { return static_cast<PCCL_RT(Stream_t)>(stream); }
PCCL_RT(Event_t) RawEvent(void* event) { return static_cast<PCCL_RT(Event_t)>(event); }

#if defined(__HIP_PLATFORM_AMD__)
Result HostAlloc(void** data, size_t nbytes) { return hipHostMalloc(data, nbytes, 0); }
void HostFree(void* data) { static_cast<void>(hipHostFree(data)); }
#else
Result HostAlloc(void** data, size_t nbytes) { return cudaHostAlloc(data, nbytes, 0); }
void HostFree(void* data) { static_cast<void>(cudaFreeHost(data)); }
#endif

}  // namespace

void CopyAsync(void* dst, const void* src, size_t nbytes, Stream stream) {
  if (nbytes == 0) return;
  Check(PCCL_RT(MemcpyAsync)(dst, src, nbytes, PCCL_RT(MemcpyDefault), Raw(stream)), "copy");
}

void Copy2DAsync(void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t row_bytes,
                 size_t rows, Stream stream) {
  if (row_bytes == 0 || rows == 0) return;
  if (dst_stride <= kMaxStride && src_stride <= kMaxStride) {
    return Check(PCCL_RT(Memcpy2DAsync)(dst, dst_stride, src, src_stride, row_bytes, rows,
                                        PCCL_RT(MemcpyDefault), Raw(stream)),
                 "copy of rows");
  }
  for (size_t row = 0; row < rows; ++row) {
    CopyAsync(static_cast<char*>(dst) + row * dst_stride,
              static_cast<const char*>(src) + row * src_stride, row_bytes, stream);
  }
}

void ZeroAsync(void* dst, size_t nbytes, Stream stream) {
  if (nbytes == 0) return;
  Check(PCCL_RT(MemsetAsync)(dst, 0, nbytes, Raw(stream)), "memset");
}

void Synchronize(Stream stream) {
  Check(PCCL_RT(StreamSynchronize)(Raw(stream)), "work in a stream");
}

int CurrentDevice() {
  int ordinal = 0;
  Check(PCCL_RT(GetDevice)(&ordinal), "current device");
  return ordinal;
}

void SetDevice(int ordinal) { Check(PCCL_RT(SetDevice)(ordinal), "choice of the device"); }

bool IsCapturing(Stream stream) {
  PCCL_RT(StreamCaptureStatus) status = PCCL_RT(StreamCaptureStatusNone);
  Check(PCCL_RT(StreamIsCapturing)(Raw(stream), &status), "state of the stream");
  return status != PCCL_RT(StreamCaptureStatusNone);
}

void AllowWhileCapturing() {
  PCCL_RT(StreamCaptureMode) mode = PCCL_RT(StreamCaptureModeRelaxed);
  static_cast<void>(PCCL_RT(ThreadExchangeStreamCaptureMode)(&mode));
}

SideStream::SideStream() {
  PCCL_RT(Stream_t) stream = nullptr;
  Check(PCCL_RT(StreamCreateWithFlags)(&stream, PCCL_RT(StreamNonBlocking)), "stream");
  stream_ = stream;
}

SideStream::~SideStream() { static_cast<void>(PCCL_RT(StreamDestroy)(Raw(stream_))); }

Event::Event() {
  PCCL_RT(Event_t) event = nullptr;
  Check(PCCL_RT(EventCreateWithFlags)(&event, PCCL_RT(EventDisableTiming)), "creation of an event");
  event_ = event;
}

Event::~Event() { static_cast<void>(PCCL_RT(EventDestroy)(RawEvent(event_))); }

void Event::Record(Stream stream) {
  Check(PCCL_RT(EventRecord)(RawEvent(event_), Raw(stream)), "record of an event");
}

bool Event::Passed() const {
  const Result result = PCCL_RT(EventQuery)(RawEvent(event_));
  if (result == PCCL_RT(ErrorNotReady)) {
    Forget();
    return false;
  }
  Check(result, "work before an event");
  return true;
}

void Event::HoldBack(Stream stream) const {
  Check(PCCL_RT(StreamWaitEvent)(Raw(stream), RawEvent(event_), 0), "wait for an event");
}

PinnedMemory::PinnedMemory(size_t nbytes) : nbytes_(nbytes) {
  void* data = nullptr;
  Check(HostAlloc(&data, nbytes), "pinned memory");
  data_ = static_cast<char*>(data);
}

PinnedMemory::~PinnedMemory() { HostFree(data_); }

}  // namespace pccl::gpu
