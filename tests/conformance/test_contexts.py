"""Every public function in every context: values, shapes, dtypes, weak types are those of lax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest
from jax import lax
from meshes import assert_same

import pccl_jax

from .calls import every, every_linear, three, without_scatter
from .contexts import DERIVED, EAGER, PLAIN, SHARDED, Body

Context = Callable[[Body], Any]

CONTEXTS = (
    [(context, every) for context in PLAIN]
    + [(context, three) for context in EAGER]
    + [(context, every_linear) for context in DERIVED]
    + [(context, without_scatter) for context in SHARDED]
)


def weak_types(tree: Any) -> list[bool]:
    return [leaf.weak_type for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


def is_served(context: Context) -> bool:
    """Whether our own lowering serves it: all axes of a mesh are manual."""
    return not any(part in context.__name__ for part in ("partial", "spmd", "own_axis"))


@pytest.mark.filterwarnings("ignore:.*pmap:DeprecationWarning")
@pytest.mark.parametrize(
    ("context", "calls"), CONTEXTS, ids=[context.__name__ for context, _ in CONTEXTS]
)
def test_values_are_those_of_lax(context: Context, calls: Callable[..., Any]) -> None:
    def run(lib: Any) -> Any:
        return context(lambda x, *axis: calls(lib, x, *axis))

    theirs = run(lax)
    pccl_jax.choices(clear=True)
    for ours in (run(pccl_jax), pccl_jax.accelerate(run)(lax)):
        assert weak_types(ours) == weak_types(theirs)
        assert_same(ours, theirs)
    served = {choice.algorithm for choice in pccl_jax.choices(clear=True)} - {"xla"}
    assert bool(served) == is_served(context)
