"""The options of ``pccl-jax bench`` and what they mean together."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pccl_jax
from pccl_jax.cli._bench.contenders import Contender, find
from pccl_jax.cli._bench.settings import Settings, parse_size
from pccl_jax.errors import ConfigurationError
from pccl_jax.types import Collective

_COLLECTIVES = [collective.label for collective in Collective]
_DTYPES = ["float32", "bfloat16", "float16", "float64", "int8", "int32", "int64"]
_DEVICES = (2, 4, 8)
_SIZES = tuple((4 << 10) * 4**power for power in range(8))
_QUICK_SIZES = (4 << 10, 1 << 20)
_OWN_TIME_SIZES = (8, 64, 512, 4 << 10, 16 << 10, 64 << 10)
_OWN_TIME_QUICK_SIZES = (8, 4 << 10)
#: Least rounds, least and most seconds per case.
_THOROUGH, _QUICK = (10, 1.0, 10.0), (4, 0.05, 1.0)
#: Contenders that have nothing to do in one process.
_ACROSS_PROCESSES = ("mpi", "mpi-pre", "mpi4jax")


def add_sweep(parser: argparse.ArgumentParser, sizes: str) -> None:
    """Declares the options that say which cases are measured; ``sizes`` are those by default."""
    option = parser.add_argument
    option(
        "--devices",
        type=counts,
        metavar="N,...",
        help="default 2,4,8; under mpiexec or srun the number in each process, default 1",
    )
    option(
        "--collectives",
        type=_names("collective", _COLLECTIVES),
        default=tuple(_COLLECTIVES),
        metavar="NAME,...",
        help=f"default {','.join(_COLLECTIVES)}",
    )
    option(
        "--sizes",
        type=_sizes,
        metavar="SIZE,...",
        help="bytes of the larger array on each device (the operand of all_reduce and "
        f"reduce_scatter, the result of all_gather), like 4096, 4KiB or 1MiB; default {sizes}",
    )
    option(
        "--dtypes",
        type=_names("dtype", _DTYPES),
        default=("float32",),
        metavar="NAME,...",
        help=f"of {','.join(_DTYPES)}; default float32",
    )
    option(
        "--ranks",
        type=counts,
        metavar="N,...",
        help="sizes of groups; the devices are divided into such groups, which all work at the "
        "same time",
    )


def add_what(parser: argparse.ArgumentParser) -> None:
    """Declares the options that say what is measured."""
    add_sweep(parser, "4 KiB to 64 MiB in powers of 4")
    option = parser.add_argument
    option(
        "--algorithms",
        type=_algorithms,
        default=tuple(name for name in _algorithms("all") if name != "xla"),
        metavar="NAME,...",
        help="of pccl_jax; auto is what it would choose itself, all is every one; default all but "
        "xla, which is what lax does",
    )
    option(
        "--contenders",
        type=_contenders,
        metavar="NAME,...",
        help="default pccl, under mpiexec or srun mpi,mpi-pre,pccl and mpi4jax if it is there; "
        "or a module of your own that has contenders(algorithms)",
    )
    option(
        "--against",
        type=_opponent,
        default="lax",
        metavar="NAME",
        help="default lax, which across processes is Gloo; pccl:ring is one algorithm of ours",
    )


def add_time(parser: argparse.ArgumentParser, defaults: tuple[int, float, float]) -> None:
    """Declares the options that say for how long a case is measured.

    Args:
        parser: gets them.
        defaults: least rounds, least and most seconds, for the help.
    """
    repeats, least_s, most_s = defaults
    for name, kind, metavar, text in (
        ("--min-time", _seconds, "S", f"least seconds per case, default {least_s:g}"),
        ("--max-time", _seconds, "S", f"most seconds per case, about; default {most_s:g}"),
        ("--repeats", _count, "N", f"least rounds per case, default {repeats}"),
    ):
        parser.add_argument(name, type=kind, metavar=metavar, help=text)


def add_how(parser: argparse.ArgumentParser) -> None:
    """Declares the options that say how it is measured."""
    add_time(parser, _THOROUGH)
    option = parser.add_argument
    option("--quick", action="store_true", help="two sizes and few rounds, to see that it works")
    option(
        "--check",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare every result, that of the baseline too, with the exact one (default)",
    )
    option(
        "--lowering",
        action="store_true",
        help="measure the time to trace and lower a call instead of the time to run it",
    )
    option(
        "--own-time",
        action="store_true",
        help="measure a call without XLA's dispatch, in a loop, against raw MPI (under mpiexec)",
    )


def plans(args: argparse.Namespace, processes: int) -> list[Settings]:
    """What is to be measured, for each number of devices; alike in each of the processes.

    Raises:
        ConfigurationError: where the options do not fit the number of processes.
    """
    numbers = devices(args, processes, _DEVICES)
    names = args.contenders or _default_contenders(processes)
    alone = [name for name in (*names, args.against) if name in _ACROSS_PROCESSES]
    if processes == 1 and (alone or args.own_time):
        raise ConfigurationError(
            f"{alone[0] if alone else '--own-time'} needs several processes: mpiexec -n 2 python "
            "-m pccl_jax bench ..."
        )
    return [_settings(args, number, names, processes) for number in numbers]


def devices(args: argparse.Namespace, processes: int, alone: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of devices to measure, ``alone`` by default in one process.

    Raises:
        ConfigurationError: where several were asked for across processes.
    """
    numbers: tuple[int, ...] = args.devices or ((1,) if processes > 1 else alone)
    if processes > 1 and len(numbers) > 1:
        raise ConfigurationError(
            f"--devices {','.join(map(str, numbers))}: across processes give one number, that of "
            "the devices in each process, and start the command once for each number"
        )
    return numbers


def times(args: argparse.Namespace, defaults: tuple[int, float, float]) -> dict[str, Any]:
    """What :func:`add_time` declares, as arguments of :class:`Settings`."""
    given = {"repeats": args.repeats, "min_time_s": args.min_time, "max_time_s": args.max_time}
    return {
        name: default if value is None else value
        for (name, value), default in zip(given.items(), defaults, strict=True)
    }


def _default_contenders(processes: int) -> tuple[str, ...]:
    if processes == 1:
        return ("pccl",)
    installed = importlib.util.find_spec("mpi4jax") is not None
    return ("mpi", "mpi-pre", *(["mpi4jax"] if installed else []), "pccl")


def _settings(
    args: argparse.Namespace, devices: int, contenders: tuple[str, ...], processes: int
) -> Settings:
    sizes = _QUICK_SIZES if args.quick else _SIZES
    if args.own_time:
        sizes = _OWN_TIME_QUICK_SIZES if args.quick else _OWN_TIME_SIZES
    groups = tuple(args.ranks or ())
    for ranks in groups:
        if devices * processes % ranks:
            raise ConfigurationError(
                f"--ranks {ranks}: {devices * processes} devices cannot be divided into groups of "
                f"{ranks}; give divisors of the number of devices"
            )
    return Settings(
        devices=devices,
        processes=processes,
        groups=groups,
        collectives=args.collectives,
        sizes=args.sizes or sizes,
        dtypes=args.dtypes,
        contenders=contenders,
        algorithms=args.algorithms,
        against=args.against,
        check=args.check,
        lowering=args.lowering,
        own_time=args.own_time,
        **times(args, _QUICK if args.quick else _THOROUGH),
    )


def output_file(text: str) -> Path:
    """A path that can be written when all is measured."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in a folder that exists")
    return path


def _names(kind: str, known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = _split(text)
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"unknown {kind} {name!r}; known are {', '.join(known)}"
                )
        return names

    return parse


def _algorithms(text: str) -> tuple[str, ...]:
    known = ("auto", *pccl_jax.algorithms())
    return known if text == "all" else _names("algorithm", [*known, "all"])(text)


def _contenders(text: str) -> tuple[str, ...]:
    names = _split(text)
    for name in names:
        _find(name)
    return names


def _opponent(text: str) -> str:
    if len(_find(text)) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not one contender but several, or none")
    return text


def _find(name: str) -> list[Contender]:
    try:
        return find(name, ["auto"])
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def counts(text: str) -> tuple[int, ...]:
    """The type of an option that lists whole numbers from 1 up."""
    return tuple(_count(part) for part in _split(text))


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(parse_size(part) for part in _split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _split(text: str) -> tuple[str, ...]:
    """The parts of a list, each once."""
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise argparse.ArgumentTypeError("the list is empty")
    return parts
