#!/usr/bin/env bash
# Compiles the modules for GPUs, each with its own compiler where that is installed, and imports them.
# Neither is needed to build the package.
#
#   tools/gpu_compile.sh [FOLDER]          builds go to FOLDER, by default build/gpu
#   CUDA_ARCH=100 HIP_ARCH=gfx942          other cards
#   NVCC=... HIPCC=...                     other compilers
#   PYTHON=... XLA_INCLUDE_DIR=...         the interpreter to build for (it needs nanobind), and the
#                                          FFI headers, where its jaxlib is not 0.10.2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build/gpu}
python=${PYTHON:-python3}
nvcc=${NVCC:-nvcc}
hipcc=${HIPCC:-hipcc}
mkdir -p "$out"
status=0

# The module must load, and say so, on a machine without a driver.
build() {  # build MODULE CMAKE_OPTION...
  local module=$1 options=(-DPython_EXECUTABLE="$python" -DPCCL_CUDA=OFF -DPCCL_ROCM=OFF)
  shift
  if [ -n "${XLA_INCLUDE_DIR:-}" ]; then options+=(-DPCCL_XLA_INCLUDE_DIR="$XLA_INCLUDE_DIR"); fi
  { cmake -S . -B "$out/$module" "${options[@]}" "$@" &&
    cmake --build "$out/$module" --target "$module" --parallel 2; } > "$out/$module.log" 2>&1 ||
    { cat "$out/$module.log" >&2; return 1; }
  (cd "$out/$module" && "$python" -c "import $module as m; print('$module loads:', m.nccl_version()[1])")
}

attempt() {  # attempt NAME COMPILER MODULE CMAKE_OPTION...
  local name=$1 compiler=$2 begin=$SECONDS
  shift 2
  if ! command -v "$compiler" > /dev/null; then
    echo "NOT COMPILED for $name: there is no $compiler on the PATH." >&2
  elif build "$@"; then
    echo "compiled for $name in $((SECONDS - begin)) s"
  else
    echo "FAILED for $name" >&2
    status=1
  fi
}

attempt "CUDA sm_${CUDA_ARCH:-90}" "$nvcc" _pccl_cuda -DPCCL_CUDA=ON \
  -DCMAKE_CUDA_COMPILER="$(command -v "$nvcc")" -DPCCL_CUDA_ARCHITECTURES="${CUDA_ARCH:-90}-real"
attempt "HIP ${HIP_ARCH:-gfx90a}" "$hipcc" _pccl_rocm -DPCCL_ROCM=ON \
  -DPCCL_HIPCC="$(command -v "$hipcc")" -DPCCL_ROCM_ARCHITECTURES="${HIP_ARCH:-gfx90a}"
exit "$status"
