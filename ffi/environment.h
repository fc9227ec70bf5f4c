// Settings from environment variables.
#ifndef PCCL_FFI_ENVIRONMENT_H_
#define PCCL_FFI_ENVIRONMENT_H_

#include <cstddef>
#include <cstdlib>

namespace pccl {

// The value of an environment variable that holds a positive number of seconds, else `otherwise`.
inline double SecondsFrom(const char* variable, double otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return end != text && *end == '\0' && value > 0 ? value : otherwise;
}

// The value of an environment variable that holds a whole number of MiB, in bytes, else
// `otherwise`.
inline size_t MibFrom(const char* variable, size_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  return end != text && *end == '\0' ? static_cast<size_t>(value) << 20 : otherwise;
}

}  // namespace pccl

#endif  // PCCL_FFI_ENVIRONMENT_H_
