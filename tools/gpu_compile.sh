#!/usr/bin/env bash
# Compiles what runs on GPUs with every GPU compiler there is: the whole module with nvcc, kernels and
# runtime with hipcc. None is needed to build the package.
#
#   tools/gpu_compile.sh [FOLDER]          builds go to FOLDER, by default build/gpu
#   CUDA_ARCH=100 HIP_ARCH=gfx942          other cards
#   NVCC=... HIPCC=...                     other compilers; options of hipcc may follow the name
#   PYTHON=... XLA_INCLUDE_DIR=...         the interpreter to build for (it needs nanobind), and the
#                                          FFI headers, where its jaxlib is not 0.10.2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build/gpu}
mkdir -p "$out"
status=0

attempt() {  # attempt NAME COMPILER FUNCTION
  local begin=$SECONDS
  if ! command -v "$2" > /dev/null; then
    echo "NOT COMPILED for $1: there is no $2 on the PATH." >&2
  elif "$3"; then
    echo "compiled for $1 in $((SECONDS - begin)) s"
  else
    echo "FAILED for $1" >&2
    status=1
  fi
}

# The module must load, and say so, on a machine without a driver.
cuda() {
  local python=${PYTHON:-python3}
  local options=(-DPython_EXECUTABLE="$python" -DPCCL_CUDA=ON
    -DPCCL_CUDA_ARCHITECTURES="${CUDA_ARCH:-90}-real" -DCMAKE_CUDA_COMPILER="$(command -v "$nvcc")")
  if [ -n "${XLA_INCLUDE_DIR:-}" ]; then options+=(-DPCCL_XLA_INCLUDE_DIR="$XLA_INCLUDE_DIR"); fi
  { cmake -S . -B "$out/cuda" "${options[@]}" &&
    cmake --build "$out/cuda" --target _pccl_cuda --parallel 2; } > "$out/cuda.log" 2>&1 ||
    { cat "$out/cuda.log" >&2; return 1; }
  (cd "$out/cuda" && "$python" -c "import _pccl_cuda as m; print('NCCL:', m.nccl_version()[1])")
}

# Two rounding steps must stay two on every device, so that results are those of the CPU.
hip() {
  export HIP_PLATFORM=amd
  local options=(-std=c++17 -I. -Wall -Wextra)
  "${hipcc[@]}" -x hip -O1 --offload-arch="${HIP_ARCH:-gfx90a}" -ffp-contract=off "${options[@]}" \
    -c kernels/gpu/kernels.cu -o "$out/hip.o" &&
    "${hipcc[@]}" -x c++ -O1 -D__HIP_PLATFORM_AMD__ "${options[@]}" \
      -c ffi/gpu/runtime.cc -o "$out/hip_runtime.o"
}

nvcc=${NVCC:-nvcc}
read -ra hipcc <<< "${HIPCC:-hipcc}"
attempt "CUDA sm_${CUDA_ARCH:-90}" "$nvcc" cuda
attempt "HIP ${HIP_ARCH:-gfx90a}" "${hipcc[0]}" hip
exit "$status"
