"""A schedule as text, one line for each round, for people to read."""

from __future__ import annotations

from collections.abc import Iterator

from pccl_jax.schedule.ir import Action, Index, Inter, Intra, Schedule, Step, Vendor

_SIGNS = {Action.COPY: "copy", Action.REDUCE: "reduce", Action.COMBINE: "combine"}


def render(schedule: Schedule, *, max_nodes: int = 8) -> str:
    """A picture of ``schedule``.

    Args:
        schedule: what to draw.
        max_nodes: up to so many nodes every message is shown, beyond it only the rule.

    For example ``render(build("rec", Collective.ALL_GATHER, 4, 1))``::

        all_gather by rec, 4 ranks
        round 1  copy  r -> r^1  0->1 [0]  1->0 [1]  2->3 [2]  3->2 [3]
        round 2  copy  r -> r^2  0->2 [0-1]  1->3 [0-1]  2->0 [2-3]  3->1 [2-3]
    """
    lines = [_title(schedule)]
    number = 0
    for phase in schedule.phases:
        if isinstance(phase, Intra):
            lines.append(f"within each node: {phase.collective.label} among {schedule.local} ranks")
        elif isinstance(phase, Inter):
            lines.append(f"between nodes: {phase.collective.label} among {schedule.nodes} ranks")
        elif isinstance(phase, Vendor):
            lines.append("as the MPI library does it")
        elif schedule.nodes <= max_nodes:
            lines += _messages(phase, schedule, number)
            number += phase.times
        else:
            lines.append(_rule(phase, schedule, number))
            number += phase.times
    return "\n".join(lines)


def _title(schedule: Schedule) -> str:
    s = schedule
    title = f"{s.collective.label} by {s.algorithm}, {s.ranks} ranks"
    if s.local == 1:
        return title
    title += f" on {s.nodes} nodes of {s.local}"
    if s.nodes > 1:
        title += f"; between nodes, r is the node, in {s.local} groups at once"
        if s.split:
            title += f", and c stands for chunk {s.local} c + index"
    return title


def _messages(step: Step, schedule: Schedule, number: int) -> Iterator[str]:
    """One line for each round, with every message of it."""
    nodes, chunks = schedule.nodes, schedule.chunks
    for i in range(step.times):
        messages = []
        for rank in range(*step.senders):
            first = step.first.at(rank, chunks) + i * step.stride
            sent = [(first + k) % chunks for k in range(step.count)]
            what = f" [{_ranges(sent)}]" if schedule.split else ""
            messages.append(f"{rank}->{step.to.at(rank, nodes)}{what}")
        yield f"{_label(step, number + 1 + i)}  " + "  ".join(messages)


def _rule(step: Step, schedule: Schedule, number: int) -> str:
    """One line for all rounds of a step, in terms of the rank r and the round i."""
    nodes = schedule.nodes
    line = _label(step, number + 1)
    if step.times > 1:
        line = line.replace(f"round {number + 1}", f"rounds {number + 1}-{number + step.times}")
    if schedule.split:
        first = _formula(step.first, schedule.chunks)
        if step.times > 1 and step.stride:
            first += f"{step.stride:+d}i".replace("1i", "i")
        line += f"  [{first}]" if step.count == 1 else f"  [{step.count} from {first}]"
    if step.senders != (0, nodes):
        line += f"  for {step.senders[0]} <= r < {step.senders[1]}"
    return f"{line}  mod {nodes}"


def _label(step: Step, number: int) -> str:
    return f"round {number}  {_SIGNS[step.action]}  r -> {_formula(step.to, 0)}"


def _formula(index: Index, modulus: int) -> str:
    """``index`` as an expression in r; with a modulus, ``add`` is shown as the nearest to 0."""
    text = "r" if index.keep == -1 else "0" if index.keep == 0 else f"(r&{index.keep})"
    if index.flip:
        text += f"^{index.flip}"
    add = index.add
    if modulus:
        add %= modulus
        add -= modulus if add > modulus // 2 else 0
    return f"{text}{add:+d}" if add else text


def _ranges(chunks: list[int]) -> str:
    """Consecutive numbers joined, e.g. ``6-7,0-1``."""
    runs: list[list[int]] = []
    for chunk in chunks:
        if runs and chunk == runs[-1][-1] + 1:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs)
