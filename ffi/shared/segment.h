// Shared memory between the processes of a host.
#ifndef PCCL_FFI_SHARED_SEGMENT_H_
#define PCCL_FFI_SHARED_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace pccl {

// A mapped POSIX shared memory object, unmapped on destruction.
class Segment {
 public:
  Segment() = default;
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;

  // Both throw std::runtime_error with a text that says what to do. The memory is reserved when
  // the segment is created, so running out of it is an error here and not a signal later.
  static Segment Create(const std::string& name, size_t nbytes);
  static Segment Attach(const std::string& name);
  // Removes the name; mappings stay. No error where it is gone already.
  static void Unlink(const std::string& name);

  char* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }

 private:
  char* data_ = nullptr;
  size_t nbytes_ = 0;
};

// The segments of the processes on this host, this one's included, by process.
struct SharedMemory {
  std::map<int64_t, Segment> segments;
  bool Has(int64_t process) const { return segments.count(process) != 0; }
  char* Of(int64_t process) const { return segments.at(process).data(); }
};

}  // namespace pccl

#endif  // PCCL_FFI_SHARED_SEGMENT_H_
