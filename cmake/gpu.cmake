# What the modules for GPUs have in common: whether they are built, and of what.

# Sets `result` to whether to build the module that `option` (ON, OFF or AUTO) is about. `found` is
# the version of the compiler that is there, or empty; from `oldest` on AUTO builds it, as what is not
# there, or too old, must not end a build that does not ask for it. `hint` says how to get the compiler.
function(pccl_builds_gpu_module result option module compiler found oldest hint)
  set(${result} OFF PARENT_SCOPE)
  if(found STREQUAL "")
    set(got "got no ${compiler} that works")
  else()
    set(got "got ${compiler} ${found}")
  endif()
  if(${option} STREQUAL "ON" AND found STREQUAL "")
    message(FATAL_ERROR "${option}=ON: ${got}, expected ${compiler} ${oldest} or later. ${hint}, or "
                        "build with ${option}=OFF.")
  elseif(${option} STREQUAL "ON" OR found VERSION_GREATER_EQUAL ${oldest})
    set(${result} ON PARENT_SCOPE)
  else()
    message(STATUS "GPU: ${got}, expected ${oldest} or later, so no pccl_jax.${module}; on its GPUs "
                   "jax.lax's collectives are used. ${hint}, and build again to have it.")
  endif()
endfunction()

function(pccl_check_option option)
  if(NOT ${option} MATCHES "^(ON|OFF|AUTO)$")
    message(FATAL_ERROR "${option}=${${option}}: use ON, OFF or AUTO.")
  endif()
endfunction()

# The Python module `module`: ffi/gpu/ by the C++ compiler, with the runtime library `runtime`, and
# `kernels`, the compiled kernels. NCCL or RCCL and MPI are found at run time.
function(pccl_add_gpu_module module runtime kernels)
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" ffi/gpu/*.cc)
  list(REMOVE_ITEM sources ffi/gpu/module.cc)
  list(APPEND sources ffi/schedule.cc ffi/transport/mpi_library.cc)
  add_library(${module}_core OBJECT ${sources})
  target_link_libraries(${module}_core PUBLIC pccl_options ${runtime})
  nanobind_add_module(${module} ${pccl_module_options} ffi/gpu/module.cc ${kernels})
  target_link_libraries(${module} PRIVATE ${module}_core)
  install(TARGETS ${module} LIBRARY DESTINATION pccl_jax)
endfunction()
