# pccl_jax._pccl_cuda: kernels by nvcc, everything else by the C++ compiler. The CUDA runtime is linked
# statically and finds the driver at run time, so the module loads where there is none.
set(CMAKE_CUDA_ARCHITECTURES "${PCCL_CUDA_ARCHITECTURES}")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)

file(GLOB pccl_gpu_sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" ffi/gpu/*.cc)
list(REMOVE_ITEM pccl_gpu_sources ffi/gpu/module.cc)
list(APPEND pccl_gpu_sources ffi/schedule.cc ffi/transport/mpi_library.cc)
add_library(pccl_cuda_core OBJECT ${pccl_gpu_sources})
target_link_libraries(pccl_cuda_core PUBLIC pccl_options CUDA::cudart_static)

# Two rounding steps must stay two, so that results are those of the CPU.
add_library(pccl_cuda_kernels OBJECT kernels/gpu/kernels.cu)
target_include_directories(pccl_cuda_kernels PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_compile_options(pccl_cuda_kernels PRIVATE -O3 -fmad=false --expt-relaxed-constexpr
                                                 --threads=2)

nanobind_add_module(_pccl_cuda ${pccl_module_options} ffi/gpu/module.cc)
target_link_libraries(_pccl_cuda PRIVATE pccl_cuda_core pccl_cuda_kernels)
install(TARGETS _pccl_cuda LIBRARY DESTINATION pccl_jax)
message(STATUS "GPU: pccl_jax._pccl_cuda for ${CMAKE_CUDA_ARCHITECTURES}")
