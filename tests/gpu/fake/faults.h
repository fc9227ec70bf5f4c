// How a test's ranks tell Python what went wrong.
#ifndef PCCL_TESTS_GPU_FAKE_FAULTS_H_
#define PCCL_TESTS_GPU_FAKE_FAULTS_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace fake {

// Writes the faults, of which "" is none, one a line into `errors`. Returns how many there are.
inline int Report(const std::vector<std::string>& faults, char* errors, size_t errors_size) {
  std::string text;
  int failed = 0;
  for (const std::string& fault : faults) {
    if (fault.empty()) continue;
    ++failed;
    text += fault + "\n";
  }
  const size_t nbytes = std::min(errors_size - 1, text.size());
  std::memcpy(errors, text.data(), nbytes);
  errors[nbytes] = '\0';
  return failed;
}

}  // namespace fake

#endif  // PCCL_TESTS_GPU_FAKE_FAULTS_H_
