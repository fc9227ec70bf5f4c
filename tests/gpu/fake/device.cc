#include "tests/gpu/fake/device.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "ffi/gpu/runtime.h"
#include "kernels/gpu/kernels.h"
#include "kernels/reduce.h"
#include "tests/gpu/fake/deadlock.h"
#include "tests/gpu/fake/knobs.h"

namespace fake {
namespace {

std::mutex broken_mutex;
std::set<int> broken;

thread_local std::string failure;
thread_local bool is_capturing = false;
thread_local int device = 0;
thread_local bool only_looks = false;  // as the watchdog does: it runs no stream

// Threads that share a device run one another's work. What a stream waits for was enqueued before,
// so that ends.
struct FakeStream {
  std::mutex mutex;  // for `work`
  std::deque<std::function<void()>> work;
  std::atomic<size_t> done{0};
  std::atomic<std::thread::id> runner{};
  bool brings_out = false;  // of a communicator's side streams the first one does

  size_t Add(std::function<void()> what) {
    std::lock_guard<std::mutex> lock(mutex);
    if (what) work.push_back(std::move(what));
    return work.size();
  }

  void RunUntil(size_t end) {
    while (!only_looks && done < end && Failure().empty()) {
      std::thread::id nobody{};
      if (runner == std::this_thread::get_id()) return Fail("a stream waits for itself");
      if (!runner.compare_exchange_strong(nobody, std::this_thread::get_id())) {
        std::this_thread::yield();
        continue;
      }
      while (done < end && Failure().empty()) RunOne();
      runner = std::thread::id{};
    }
  }

  void RunOne() {
    std::function<void()> next;
    {
      std::lock_guard<std::mutex> lock(mutex);
      next = std::move(work[done]);
    }
    if (!next) return Fail("fake device: what was enqueued has failed for another thread");
    next();
    if (IsBroken()) Fail("fake device: launch failure");
    if (Failure().empty()) ++done;
  }
};

struct FakeEvent {
  FakeStream* stream = nullptr;
  size_t position = 0;
  int64_t asked = 0;
};

FakeStream* Cast(void* stream) { return static_cast<FakeStream*>(stream); }

}  // namespace

void* NewStream() { return new FakeStream; }
void Enqueue(void* stream, std::function<void()> work) { Cast(stream)->Add(std::move(work)); }
bool IsBroken() {
  std::lock_guard<std::mutex> lock(broken_mutex);
  return broken.count(device) > 0;
}
void Drain(void* stream) { Cast(stream)->RunUntil(Cast(stream)->Add(nullptr)); }
void Fail(const std::string& error) {
  if (failure.empty()) failure = error;
}
std::string Failure() { return failure; }
void Reset(int ordinal, bool capturing) {
  failure.clear();
  device = ordinal;
  is_capturing = capturing;
}

}  // namespace fake

namespace pccl::gpu {

void CopyAsync(void* dst, const void* src, size_t nbytes, Stream stream) {
  fake::Enqueue(stream, [=] {
    if (dst == nullptr || src == nullptr) return fake::Fail("a copy of what is not there");
    std::memmove(dst, src, nbytes);
  });
}

void Copy2DAsync(void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t row_bytes,
                 size_t rows, Stream stream) {
  if (dst_stride < row_bytes || src_stride < row_bytes) fake::Fail("rows overlap");
  fake::Enqueue(stream, [=] {
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<char*>(dst) + row * dst_stride,
                  static_cast<const char*>(src) + row * src_stride, row_bytes);
    }
  });
}

void ZeroAsync(void* dst, size_t nbytes, Stream stream) {
  fake::Enqueue(stream, [=] { std::memset(dst, 0, nbytes); });
}

void Synchronize(Stream stream) { fake::Drain(stream); }
int CurrentDevice() { return fake::device; }
void SetDevice(int ordinal) { fake::device = ordinal; }
bool IsCapturing(Stream) { return fake::is_capturing; }
void AllowWhileCapturing() { fake::only_looks = true; }

SideStream::SideStream() : stream_(fake::NewStream()) {
  static thread_local int num_made = 0;
  fake::Cast(stream_)->brings_out = num_made++ % 2 == 0;
}
SideStream::~SideStream() { delete fake::Cast(stream_); }

Event::Event() : event_(new fake::FakeEvent) {}
Event::~Event() { delete static_cast<fake::FakeEvent*>(event_); }
void Event::Record(Stream stream) {
  *static_cast<fake::FakeEvent*>(event_) = {fake::Cast(stream), fake::Cast(stream)->Add(nullptr),
                                            0};
}
bool Event::Passed() const {
  auto* event = static_cast<fake::FakeEvent*>(event_);
  if (event->stream == nullptr) return true;
  const bool slow = event->stream->brings_out && fake::device % 2 == 1;
  if (slow && event->asked++ < fake::Knob("slowness of what odd devices send")) return false;
  event->stream->RunUntil(event->position);
  return event->stream->done >= event->position;
}
void Event::HoldBack(Stream stream) const {
  const fake::FakeEvent event = *static_cast<const fake::FakeEvent*>(event_);
  fake::Enqueue(stream, [event] {
    if (event.stream != nullptr) event.stream->RunUntil(event.position);
  });
}

PinnedMemory::PinnedMemory(size_t nbytes) : data_(new char[nbytes]), nbytes_(nbytes) {}
PinnedMemory::~PinnedMemory() { delete[] data_; }

}  // namespace pccl::gpu

int pccl_gpu_reduce(int dtype, int op, void* dst, const void* const* srcs, int k, size_t count,
                    void* stream) {
  const auto reduce = pccl::FindReduce(static_cast<pccl::DType>(dtype), static_cast<pccl::Op>(op));
  if (reduce == nullptr || k < 2 || k > PCCL_GPU_MAX_SOURCES) return PCCL_GPU_UNSUPPORTED;
  const std::vector<const void*> sources(srcs, srcs + k);
  const auto nbytes = static_cast<int64_t>(count * pccl::ItemSize(static_cast<pccl::DType>(dtype)));
  std::atomic<int64_t>& largest = fake::Knob("largest reduction");
  if (nbytes > largest) largest = nbytes;
  ++fake::Knob("reductions");
  fake::Enqueue(stream, [=] { reduce(dst, sources.data(), k, count); });
  return PCCL_GPU_OK;
}

int pccl_gpu_permute(void* dst, const void* src, int64_t rows, int64_t cols, size_t block_nbytes,
                     void* stream) {
  if (rows < 0 || cols < 0) return PCCL_GPU_UNSUPPORTED;
  fake::Enqueue(stream, [=] {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        std::memcpy(
            static_cast<char*>(dst) + static_cast<size_t>(c * rows + r) * block_nbytes,
            static_cast<const char*>(src) + static_cast<size_t>(r * cols + c) * block_nbytes,
            block_nbytes);
      }
    }
  });
  return PCCL_GPU_OK;
}

// What waits on the device ends.
int pccl_gpu_trap(int now, void*) {
  if (now == 0) return PCCL_GPU_OK;
  {
    std::lock_guard<std::mutex> lock(fake::broken_mutex);
    fake::broken.insert(fake::device);
  }
  std::lock_guard<std::mutex> lock(fake::TheDeadlock().mutex);
  fake::TheDeadlock().Changed();
  return PCCL_GPU_OK;
}
