#!/usr/bin/env bash
# Compiles all GPU kernels with every GPU compiler there is; none is needed to build the package.
#
#   tools/gpu_compile.sh [FOLDER]      objects go to FOLDER, by default build/gpu
#   CUDA_ARCH=sm_100 HIP_ARCH=gfx942   other cards
#   NVCC=... HIPCC=...                 other compilers; options may follow the name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build/gpu}
mkdir -p "$out"
source=kernels/gpu/kernels.cu
status=0

# Two rounding steps must stay two on every device, so that results are those of the CPU.
compile() {  # compile NAME COMMAND...
  local name=$1 begin=$SECONDS
  shift
  if ! command -v "$1" > /dev/null; then
    echo "NOT COMPILED for $name: there is no $1 on the PATH." >&2
    return
  fi
  if "$@"; then
    echo "compiled for $name in $((SECONDS - begin)) s"
  else
    echo "FAILED for $name: $*" >&2
    status=1
  fi
}

read -ra nvcc <<< "${NVCC:-nvcc}"
read -ra hipcc <<< "${HIPCC:-hipcc}"
compile "CUDA ${CUDA_ARCH:-sm_90}" "${nvcc[@]}" -std=c++17 -O3 -I. -arch="${CUDA_ARCH:-sm_90}" \
  -fmad=false --expt-relaxed-constexpr -Xcompiler -Wall,-Wextra -c "$source" -o "$out/cuda.o"
HIP_PLATFORM=amd compile "HIP ${HIP_ARCH:-gfx90a}" "${hipcc[@]}" -x hip -std=c++17 -O1 -I. \
  --offload-arch="${HIP_ARCH:-gfx90a}" -ffp-contract=off -Wall -Wextra -c "$source" -o "$out/hip.o"
exit "$status"
