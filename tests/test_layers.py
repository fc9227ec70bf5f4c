"""The import rules that keep the layers apart, in Python and in C++."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pccl_jax"

#: From the bottom up: a module imports from its own row and the rows above it here, never below.
LAYERS = [
    {"errors", "types", "topology"},
    {"schedule"},
    {"simulate"},
    {"dispatch"},
    {"_native", "_jax_compat"},
    {"runtime"},
    {"primitives"},
    {"api"},
    {"accelerate"},
    {"explain"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
WITHOUT_JAX = {"errors", "types", "topology", "schedule", "simulate", "dispatch"}

PYTHON_FILES = sorted(PACKAGE.rglob("*.py"))
CPP_FILES = sorted(
    path
    for folder in ("ffi", "kernels")
    for suffix in ("*.h", "*.cc", "*.cu")
    for path in (ROOT / folder).rglob(suffix)
)


def name_of(path: Path) -> str:
    """The path relative to the repository, as test id and in messages."""
    return path.relative_to(ROOT).as_posix()


def component_of(path: Path) -> str:
    """The name in LAYERS that a Python file of the package belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    """Every name a Python file of the package imports, in functions too, absolute and dotted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return imports_in(tree, ["pccl_jax", *path.relative_to(PACKAGE).parent.parts])


def imports_in(tree: ast.AST, package: list[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr == "_src":
            yield "jax._src"


def external_imports(path: Path, package: str) -> list[str]:
    return [name for name in imports_of(path) if f"{name}.".startswith(f"{package}.")]


def internal_components(path: Path) -> Iterator[str]:
    """The components of the package that a file imports from."""
    for name in imports_of(path):
        first, *rest = name.split(".")
        if first == "pccl_jax":
            yield rest[0] if rest and rest[0] in LEVEL else "__init__"


def includes_of(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, flags=re.MULTILINE)


def code_of(path: Path) -> str:
    """The C++ text without comments."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize("path", PYTHON_FILES, ids=name_of)
def test_python_imports_go_down(path: Path) -> None:
    component = component_of(path)
    assert component in LEVEL, f"{name_of(path)} has no layer: give it one in LAYERS"
    upwards = {other for other in internal_components(path) if LEVEL[other] > LEVEL[component]} - {
        component
    }
    assert not upwards, f"{name_of(path)} ({component}) imports from above: {sorted(upwards)}"


@pytest.mark.parametrize("path", PYTHON_FILES, ids=name_of)
def test_python_outside_packages_stay_in_their_place(path: Path) -> None:
    where = path.relative_to(PACKAGE).as_posix()
    if component_of(path) != "_jax_compat":
        assert not external_imports(path, "jax._src"), "private JAX belongs in _jax_compat"
    if component_of(path) in WITHOUT_JAX:
        assert not external_imports(path, "jax") + external_imports(path, "jaxlib")
    if not where.startswith("dispatch/training"):
        assert not external_imports(path, "sklearn"), "scikit-learn belongs in dispatch/training"
    if component_of(path) != "runtime":
        assert not external_imports(path, "mpi4py"), "mpi4py belongs in the runtime"


def test_cli_loads_a_subcommand_only_when_asked() -> None:
    allowed = {*sys.stdlib_module_names, "pccl_jax.errors.ConfigurationError"}
    tree = ast.parse((PACKAGE / "cli" / "__init__.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    outside = {
        name
        for name in imports_in(tree, ["pccl_jax", "cli"])
        if name not in allowed and name.split(".")[0] not in allowed
    }
    assert not outside


@pytest.mark.parametrize("path", CPP_FILES, ids=name_of)
def test_cpp_includes_stay_in_their_place(path: Path) -> None:
    where, includes = name_of(path), includes_of(path)
    if where not in ("ffi/module.cc", "ffi/gpu/module.cc"):
        assert not [name for name in includes if name.startswith("nanobind")]
        assert not [name for name in includes if name == "Python.h"]
    if not re.fullmatch(r"ffi/(gpu/)?handlers\w*\.(h|cc)", where):
        assert not [name for name in includes if name.startswith("xla/")]
    if where.startswith("kernels/"):
        assert not [name for name in includes if name.startswith(("ffi/", "xla/"))]
    if not (where.startswith("kernels/gpu/") or where == "ffi/gpu/runtime.cc"):
        assert not [name for name in includes if name.startswith(("cuda", "hip/"))]
    if not where.startswith("ffi/gpu/"):
        assert not [name for name in includes if name.startswith("ffi/gpu/")]
    if where.startswith("ffi/transport/"):
        assert not [name for name in includes if name.startswith("ffi/handlers")]


@pytest.mark.parametrize("path", CPP_FILES, ids=name_of)
def test_cpp_libraries_stay_in_their_place(path: Path) -> None:
    where, code = name_of(path), code_of(path)
    if not where.startswith("ffi/transport/mpi"):
        assert not re.findall(r"\bP?MPIX?_[A-Z]\w*|<mpi\w*\.h>", code)
    if not where.startswith("ffi/gpu/nccl_library"):
        assert not re.findall(r"\bnccl[A-Z]\w*|<r?nccl\.h>", code)
    if where not in [f"ffi/gpu/{name}.cc" for name in ("module", "nccl_library", "runtime")]:
        assert "__HIP_PLATFORM_" not in code, "one source serves NVIDIA's GPUs and AMD's"


@pytest.mark.parametrize("path", PYTHON_FILES + CPP_FILES, ids=name_of)
def test_files_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 400, f"{name_of(path)} has {lines} lines: is there a second file in it?"


def test_import_touches_no_device_and_no_mpi() -> None:
    code = (
        "import sys, pccl_jax\n"
        "pccl_jax.psum\n"
        "from jax._src import xla_bridge\n"
        "print('mpi4py' in sys.modules, xla_bridge.backends_are_initialized())"
    )
    assert run_python(code) == "False False"
