"""How good a model is, on points that its training had not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pccl_jax.cli._bench.grid import text_table
from pccl_jax.cli._bench.settings import format_size

if TYPE_CHECKING:
    from pccl_jax.dispatch.training import Trained, Verdict

_FIGURES = ["accuracy", "regret_mean", "regret_p95", "regret_worst"]


def render(trained: Mapping[str, Trained]) -> str:
    """A table of all collectives, then for each the confusion matrix and the worst choice."""
    parts = [_summary(trained)]
    parts += [_confusion(name, one) for name, one in trained.items() if one.verdicts]
    return "\n\n".join(parts)


def _summary(trained: Mapping[str, Trained]) -> str:
    header = ["collective", "points", "held out", "accuracy", "regret mean", "p95", "worst",
              "best single", "its regret", "vectors", "algorithms"]  # fmt: skip
    rows = []
    for name, one in trained.items():
        quality: Mapping[str, Any] = one.svm.quality
        rows.append(
            [
                name,
                str(quality["points"]),
                str(quality["held_out"]),
                *(_figure(quality.get(key), percent=key == "accuracy") for key in _FIGURES),
                str(quality["best_single"]),
                _figure(quality["best_single_regret_mean"]),
                str(len(one.svm.vectors)),
                ", ".join(one.svm.classes),
            ]
        )
    lines = ["Regret is the time of the choice over that of the best; 1 is perfect. Sizes held out",
             "together, 5-fold; ties within the noise are right.", "",
             text_table(header, rows)]  # fmt: skip
    few = [name for name, one in trained.items() if not one.verdicts]
    if few:
        lines += ["", f"Too few sizes to hold any out, nothing is known of the quality: "
                  f"{', '.join(few)}; measure more --sizes."]  # fmt: skip
    return "\n".join(lines)


def _figure(value: float | None, *, percent: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if percent else f"{value:.3f}"


def _confusion(name: str, one: Trained) -> str:
    """Rows are what was best, columns what was chosen."""
    names = list(one.confusion)
    rows = [
        [label, *(str(one.confusion[label][chosen] or "-") for chosen in names)] for label in names
    ]
    worst = max(one.verdicts, key=lambda verdict: verdict.regret)
    title = f"{name}: what was best (rows) and what was chosen (columns)"
    return f"{title}\n{text_table(['best', *names], rows)}\n{_worst(worst)}"


def _worst(verdict: Verdict) -> str:
    if verdict.regret <= 1:
        return "every choice was the best"
    p = verdict.point
    noise = ", which is within the noise" if verdict.right else ""
    return (
        f"worst: {verdict.chosen} instead of {verdict.fastest}, {verdict.regret:.2f}x its time"
        f"{noise}, for {format_size(p.nbytes)} {p.dtype} on {p.ranks} ranks, {p.nodes} node(s)"
    )
