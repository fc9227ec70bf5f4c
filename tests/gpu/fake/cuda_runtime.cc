// A main program for ffi/gpu/runtime.cc with as much of a CUDA runtime as it needs, which remembers
// errors as the real one does: until somebody asks.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>

#include "ffi/gpu/runtime.h"

namespace {
cudaError_t last = cudaSuccess;
cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}
}  // namespace

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last;
  last = cudaSuccess;
  return error;
}
const char* cudaGetErrorString(cudaError_t) { return "the error"; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return Report(cudaErrorNotReady); }
cudaError_t cudaSetDevice(int) { return Report(cudaErrorInvalidDevice); }

}  // extern "C"

int main() {
  const pccl::gpu::Event event;
  if (event.Passed() || cudaGetLastError() != cudaSuccess) return 1;
  try {
    pccl::gpu::SetDevice(7);
    return 2;
  } catch (const std::exception& e) {
    std::puts(e.what());
  }
  return cudaGetLastError() == cudaSuccess ? 0 : 3;
}
