"""Reads what JAX lowers to and what XLA schedules: our calls, and what runs while they do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from pccl_jax.runtime import TARGET

_LAX = {"all-gather": "all_gather", "reduce-scatter": "reduce_scatter", "all-reduce": "all_reduce"}
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%(\S+) = .*? ([a-z\-]+)\((.*)")
_CALLEE = re.compile(r"(?:to_apply|calls)=%([\w.\-]+)")


def calls(text: str) -> list[dict[str, Any]]:
    """The attributes of our calls, in StableHLO or HLO, in order; arrays as lists."""
    lines = [line for line in text.splitlines() if re.search(rf'[@"]{TARGET}\b', line)]
    return [_attributes(line) for line in lines]


def lax_collectives(text: str) -> list[str]:
    """Names of the collectives of lax in StableHLO, sorted."""
    return sorted(re.findall(r"stablehlo\.(all_gather|reduce_scatter|all_reduce)\b", text))


def _attributes(line: str) -> dict[str, Any]:
    found: dict[str, Any] = dict(re.findall(r'(\w+) = "([^"]*)"', line))
    for name, value in re.findall(r"(\w+) = (-?\d+) : i64", line):
        found[name] = int(value)
    for name, values, size in re.findall(
        r"(\w+) = dense<\[?([^>\]]*)\]?> : tensor<(\d+)xi64>", line
    ):
        numbers = [int(value) for value in values.split(",")]
        found[name] = numbers * (int(size) // len(numbers))  # equal ones are written once
    return found


class Event(NamedTuple):
    """What a computation does next: ``start``, ``done`` or ``wait`` (both at once), or ``gemm``."""

    kind: str
    collective: str = ""


def schedules(text: str) -> dict[str, list[Event]]:
    """The order of events in each computation of a scheduled module."""
    bodies = {}
    for part in re.split(r"\n\n+", text):
        header, *lines = part.strip().splitlines() or [""]
        if match := re.match(r"(?:ENTRY )?%(\S+) \(", header):
            bodies[match[1]] = lines
    return {name: list(_events(lines, bodies)) for name, lines in bodies.items()}


def _events(lines: list[str], bodies: dict[str, list[str]]) -> Iterator[Event]:
    started: dict[str, str] = {}
    for line in lines:
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        name, opcode, rest = match.groups()
        kind = opcode.rpartition("-")[2]
        if kind == "done":
            begun = re.match(r"%([\w.\-]+)", rest)
            if begun is not None and begun[1] in started:
                yield Event("done", started[begun[1]])
        elif collective := _collective(line, opcode, bodies):
            started[name] = collective
            yield Event("start" if kind == "start" else "wait", collective)
        elif "gemm_fusion" in name or "__cublas" in line:
            yield Event("gemm")


def _collective(line: str, opcode: str, bodies: dict[str, list[str]]) -> str | None:
    """The collective of an instruction, lax's or ours, or of a computation that it calls."""
    lax = opcode.removesuffix("-start")
    if lax in _LAX:
        return _LAX[lax]
    if TARGET in line:
        label: str = _attributes(line)["label"]
        return label.split()[0]
    callee = _CALLEE.search(line)
    for inner in bodies.get(callee[1], []) if callee and opcode != "while" else []:
        match = _INSTRUCTION.match(inner)
        if match and (found := _collective(inner, match[2], bodies)):
            return found
    return None


def hidden(events: list[Event]) -> Counter[str]:
    """How many of each collective have a matrix product between their start and their end."""
    count: Counter[str] = Counter()
    for position, event in enumerate(events):
        if event.kind == "start":
            end = events.index(Event("done", event.collective), position)
            count[event.collective] += Event("gemm") in events[position:end]
    return +count
