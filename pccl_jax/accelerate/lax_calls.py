"""lax's collective primitives as ours: which of them we serve, and with which parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pccl_jax._jax_compat import lax_collectives
from pccl_jax.primitives import (
    Call,
    all_gather_call,
    all_gather_p,
    all_reduce_call,
    all_reduce_p,
    lower_all_gather,
    lower_all_reduce,
    lower_reduce_scatter,
    reduce_scatter_call,
    reduce_scatter_p,
)
from pccl_jax.types import Op

Params = dict[str, Any]


@dataclass(frozen=True)
class Served:
    """How we serve a primitive.

    Attributes:
        call: what parameters of ours ask for.
        lower: our lowering rule.
        defaults: parameters of ours that the primitive does not have.
        from_lax: whether the primitive is lax's.
    """

    call: Callable[..., Call]
    lower: Callable[..., Any]
    defaults: Params
    from_lax: bool = True

    def params(self, theirs: Params) -> Params | None:
        """The parameters of ours for those of the primitive; None where no axis has a name."""
        ours = self.defaults | theirs
        axes = ours.get("axes", ours.get("axis_name"))
        axes = axes if isinstance(axes, (tuple, list)) else (axes,)
        axes = tuple(axis for axis in axes if not isinstance(axis, int))
        if not axes:
            return None
        groups = ours["axis_index_groups"]
        ours["axes" if "axes" in ours else "axis_name"] = axes
        ours["axis_index_groups"] = None if groups is None else tuple(map(tuple, groups))
        return ours


def dimensions(theirs: Params) -> tuple[int, ...]:
    """Over which dimensions of the array a primitive of these parameters reduces as well.

    To lax they are axes that are numbers. vmap over one of a collective's axes makes them.
    """
    return tuple(axis for axis in theirs.get("axes", ()) if isinstance(axis, int))


def _all_reduce(op: Op) -> Served:
    # The types are settled by now, so `invariant`, which is about types, has no effect.
    defaults = {"op": op, "axis_index_groups": None, "algorithm": None, "invariant": False}
    return Served(all_reduce_call, lower_all_reduce, defaults)


_ALL_GATHER = Served(
    all_gather_call, lower_all_gather, {"axis_index_groups": None, "algorithm": None}
)
_REDUCE_SCATTER = Served(
    reduce_scatter_call,
    lower_reduce_scatter,
    {"op": Op.SUM, "axis_index_groups": None, "algorithm": None},
)

_BY_NAME = {
    "psum": _all_reduce(Op.SUM),
    "psum_invariant": _all_reduce(Op.SUM),
    "unreduced_psum": _all_reduce(Op.SUM),
    "pmax": _all_reduce(Op.MAX),
    "pmin": _all_reduce(Op.MIN),
    "unreduced_pmax": _all_reduce(Op.MAX),
    "unreduced_pmin": _all_reduce(Op.MIN),
    "all_gather": _ALL_GATHER,
    "all_gather_invariant": _ALL_GATHER,
    "all_gather_reduced": _ALL_GATHER,
    "reduce_scatter": _REDUCE_SCATTER,
    "unreduced_reduce_scatter": _REDUCE_SCATTER,
}

#: How we serve primitives of lax: those of the above that this version of JAX has.
FROM_LAX: dict[Any, Served] = {
    lax_collectives[name]: entry for name, entry in _BY_NAME.items() if name in lax_collectives
}

_SERVED: dict[Any, Served] = {
    all_reduce_p: Served(all_reduce_call, lower_all_reduce, {}, from_lax=False),
    all_gather_p: Served(all_gather_call, lower_all_gather, {}, from_lax=False),
    reduce_scatter_p: Served(reduce_scatter_call, lower_reduce_scatter, {}, from_lax=False),
} | FROM_LAX


def served(primitive: Any) -> Served | None:
    """How we serve ``primitive``, ours or lax's; None where we do not."""
    return _SERVED.get(primitive)
