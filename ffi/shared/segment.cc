#include "ffi/shared/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

namespace pccl {
namespace {

[[noreturn]] void Throw(const std::string& doing, int error) {
  throw std::runtime_error("pccl_jax: cannot " + doing + ": " + strerror(error) +
                           ". Is /dev/shm large enough? Lower PCCL_SHM_MIB, or give the "
                           "container more shared memory (docker run --shm-size).");
}

// Closes the descriptor on every path out of a function.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

char* Map(int fd, size_t nbytes, const std::string& name) {
  void* data = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) Throw("map " + name, errno);
  return static_cast<char*>(data);
}

}  // namespace

Segment Segment::Create(const std::string& name, size_t nbytes) {
  Descriptor file{shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600)};
  if (file.fd < 0) Throw("create shared memory " + name, errno);
  const int error = posix_fallocate(file.fd, 0, static_cast<off_t>(nbytes));
  if (error != 0) {
    shm_unlink(name.c_str());
    Throw("reserve " + std::to_string(nbytes) + " bytes of shared memory", error);
  }
  Segment segment;
  segment.data_ = Map(file.fd, nbytes, name);
  segment.nbytes_ = nbytes;
  return segment;
}

Segment Segment::Attach(const std::string& name) {
  Descriptor file{shm_open(name.c_str(), O_RDWR, 0600)};
  if (file.fd < 0) Throw("open shared memory " + name, errno);
  struct stat status;
  if (fstat(file.fd, &status) != 0) Throw("inspect shared memory " + name, errno);
  Segment segment;
  segment.nbytes_ = static_cast<size_t>(status.st_size);
  segment.data_ = Map(file.fd, segment.nbytes_, name);
  return segment;
}

void Segment::Unlink(const std::string& name) { shm_unlink(name.c_str()); }

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, nbytes_);
}

Segment::Segment(Segment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), nbytes_(std::exchange(other.nbytes_, 0)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(nbytes_, other.nbytes_);
  return *this;
}

}  // namespace pccl
