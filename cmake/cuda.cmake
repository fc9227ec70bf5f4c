# pccl_jax._pccl_cuda, for NVIDIA's GPUs. The CUDA runtime is linked statically and finds the driver at
# run time, so the module loads where there is none.
set(PCCL_CUDA AUTO CACHE STRING
    "Build the module for NVIDIA's GPUs: ON, OFF, or AUTO, where nvcc is found")
set(PCCL_CUDA_ARCHITECTURES "80-real;90-real;100-real;90-virtual" CACHE STRING
    "What its kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES")
pccl_check_option(PCCL_CUDA)
if(PCCL_CUDA STREQUAL "OFF")
  return()
endif()

# A failure is not remembered: the compiler may have come since.
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)
endif()
if(PCCL_CUDA STREQUAL "ON")
  # Where it does not work, CMake says why when the language is enabled.
  find_program(CMAKE_CUDA_COMPILER NAMES $ENV{CUDACXX} nvcc HINTS ENV CUDA_PATH PATH_SUFFIXES bin)
else()
  include(CheckLanguage)
  check_language(CUDA)
endif()
set(pccl_nvcc_version "")
if(CMAKE_CUDA_COMPILER)
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version
                  OUTPUT_VARIABLE pccl_nvcc_version ERROR_QUIET)
  string(REGEX REPLACE ".*release ([0-9]+[.][0-9]+).*" "\\1" pccl_nvcc_version
         "${pccl_nvcc_version}")
endif()
# 12.8 is the first that knows sm_100.
pccl_builds_gpu_module(pccl_build PCCL_CUDA _pccl_cuda nvcc "${pccl_nvcc_version}" 12.8
                       "Install the CUDA toolkit and put nvcc on PATH")
if(NOT pccl_build)
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES "${PCCL_CUDA_ARCHITECTURES}")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)

# Two rounding steps must stay two, so that results are those of the CPU.
add_library(pccl_cuda_kernels OBJECT kernels/gpu/kernels.cu)
target_include_directories(pccl_cuda_kernels PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_compile_options(pccl_cuda_kernels PRIVATE -O3 -fmad=false --expt-relaxed-constexpr
                                                 --threads=2)

pccl_add_gpu_module(_pccl_cuda CUDA::cudart_static "$<TARGET_OBJECTS:pccl_cuda_kernels>")
message(STATUS "GPU: pccl_jax._pccl_cuda for ${CMAKE_CUDA_ARCHITECTURES}")
