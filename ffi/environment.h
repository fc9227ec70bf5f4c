// Settings from environment variables.
#ifndef PCCL_FFI_ENVIRONMENT_H_
#define PCCL_FFI_ENVIRONMENT_H_

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

}  // namespace pccl

#endif  // PCCL_FFI_ENVIRONMENT_H_
