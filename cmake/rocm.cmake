# pccl_jax._pccl_rocm, for AMD's GPUs. HIP's runtime has to be installed where the module is loaded.
set(PCCL_ROCM AUTO CACHE STRING
    "Build the module for AMD's GPUs: ON, OFF, or AUTO, where hipcc of ROCm 7 is found")
set(PCCL_ROCM_ARCHITECTURES "gfx90a;gfx942;gfx950" CACHE STRING
    "What its kernels are compiled for, as hipcc's --offload-arch")
pccl_check_option(PCCL_ROCM)
if(PCCL_ROCM STREQUAL "OFF")
  return()
endif()

# hipcc itself, as CMake's language HIP refuses it, and finds neither compiler nor runtime of Debian.
# hipcc compiles for NVIDIA's cards where it sees nvcc and is not told otherwise.
find_program(PCCL_HIPCC hipcc HINTS ENV ROCM_PATH PATH_SUFFIXES bin)
set(pccl_hipcc "${CMAKE_COMMAND}" -E env HIP_PLATFORM=amd "${PCCL_HIPCC}")
set(pccl_hip_version "")
if(PCCL_HIPCC)
  file(REAL_PATH "${PCCL_HIPCC}" pccl_hip_root)
  cmake_path(GET pccl_hip_root PARENT_PATH pccl_hip_root)
  cmake_path(GET pccl_hip_root PARENT_PATH pccl_hip_root)
  find_path(PCCL_HIP_INCLUDE_DIR hip/hip_runtime_api.h HINTS "${pccl_hip_root}/include")
  find_library(PCCL_HIP_LIBRARY amdhip64 HINTS "${pccl_hip_root}/lib")
  execute_process(COMMAND ${pccl_hipcc} --version OUTPUT_VARIABLE pccl_hip_text ERROR_QUIET)
  if(pccl_hip_text MATCHES "HIP version: ([0-9]+[.][0-9]+)" AND PCCL_HIP_INCLUDE_DIR
     AND PCCL_HIP_LIBRARY)
    set(pccl_hip_version "${CMAKE_MATCH_1}")
  endif()
endif()
# JAX's plugins of our oldest version are for ROCm 7. One process should not have two versions of HIP's
# runtime, which is what a module built with an older one would bring.
pccl_builds_gpu_module(pccl_build PCCL_ROCM _pccl_rocm hipcc "${pccl_hip_version}" 7.0
                       "Install ROCm with HIP's headers and libamdhip64 and put hipcc on PATH")
if(NOT pccl_build)
  return()
endif()

list(TRANSFORM PCCL_ROCM_ARCHITECTURES PREPEND "--offload-arch=" OUTPUT_VARIABLE pccl_hip_targets)
set(pccl_hip_kernels "${CMAKE_CURRENT_BINARY_DIR}/kernels_hip.o")
# Two rounding steps must stay two, so that results are those of the CPU.
add_custom_command(
  OUTPUT "${pccl_hip_kernels}"
  COMMAND ${pccl_hipcc} -x hip ${pccl_hip_targets} -std=c++17 -O3 -fPIC -fvisibility=hidden
          -ffp-contract=off -Wall -Wextra "-I${CMAKE_CURRENT_SOURCE_DIR}"
          -MD -MT "${pccl_hip_kernels}" -MF "${pccl_hip_kernels}.d"
          -c "${CMAKE_CURRENT_SOURCE_DIR}/kernels/gpu/kernels.cu" -o "${pccl_hip_kernels}"
  DEPENDS kernels/gpu/kernels.cu
  DEPFILE "${pccl_hip_kernels}.d"
  COMMENT "Building HIP object ${pccl_hip_kernels}"
  VERBATIM)

add_library(pccl_hip_runtime INTERFACE)
target_compile_definitions(pccl_hip_runtime INTERFACE __HIP_PLATFORM_AMD__)
target_include_directories(pccl_hip_runtime SYSTEM INTERFACE "${PCCL_HIP_INCLUDE_DIR}")
target_link_libraries(pccl_hip_runtime INTERFACE "${PCCL_HIP_LIBRARY}")

pccl_add_gpu_module(_pccl_rocm pccl_hip_runtime "${pccl_hip_kernels}")
set_target_properties(_pccl_rocm PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
message(STATUS "GPU: pccl_jax._pccl_rocm for ${PCCL_ROCM_ARCHITECTURES}, HIP ${pccl_hip_version}")
