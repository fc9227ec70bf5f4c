#include "ffi/scratch.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "kernels/copy.h"

namespace pccl {
namespace {

constexpr size_t kAlignment = 4096;

struct Pool {
  std::mutex mutex;
  std::multimap<size_t, char*> free;
  size_t kept = 0;
};

// Never destroyed: XLA's threads may outlive static destruction.
Pool& ThePool() {
  static Pool* pool = new Pool;
  return *pool;
}

char* TakeKept(size_t nbytes, size_t* size) {
  Pool& pool = ThePool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  const auto it = pool.free.lower_bound(nbytes);
  if (it == pool.free.end() || it->first > 4 * nbytes) return nullptr;
  char* data = it->second;
  *size = it->first;
  pool.kept -= it->first;
  pool.free.erase(it);
  return data;
}

bool Keep(char* data, size_t size) {
  Pool& pool = ThePool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  if (pool.kept + size > Scratch::kKeptBytes) return false;
  pool.free.emplace(size, data);
  pool.kept += size;
  return true;
}

}  // namespace

Scratch::Scratch(size_t nbytes) {
  if (nbytes == 0) return;
  const size_t rounded = (nbytes + kAlignment - 1) / kAlignment * kAlignment;
  data_ = TakeKept(rounded, &size_);
  if (data_ != nullptr) return;
  data_ = static_cast<char*>(std::aligned_alloc(kAlignment, rounded));
  if (data_ == nullptr) throw std::bad_alloc();
  size_ = rounded;
  PrepareOutput(data_, size_);
}

Scratch::~Scratch() {
  if (data_ != nullptr && !Keep(data_, size_)) std::free(data_);
}

Scratch::Scratch(Scratch&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace pccl
