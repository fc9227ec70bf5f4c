"""Turns lax's collectives over to us: for one function, or for the whole process.

JAX lowers a primitive by a rule, after AD, batching and every other transformation. We put a rule
of our own before lax's, on CPU and GPU. It serves the equations that say so; the rest go to lax's.

``accelerate`` has the equations say so: JAX keeps what ``set_xla_metadata`` says with each, and
passes it on to those that differentiation makes of it. ``install`` says it for all, by a value
that is part of jit's cache key, as metadata is: what was compiled before is compiled anew.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from pccl_jax._jax_compat import lower_on, lowering_rule, metadata, mlir
from pccl_jax.accelerate.lax_calls import FROM_LAX, Served, dimensions
from pccl_jax.primitives import left_to_lax, lower_python, reduce_axis
from pccl_jax.runtime import MODULES

P = ParamSpec("P")
R = TypeVar("R")

#: The mark on equations; it shows in HLO as a frontend attribute.
_MARK = {"pccl_jax": "accelerate"}

_INSTALLED = jax.make_user_context(False)
_lock = threading.Lock()
_rules_in_place = False

#: What a jitted function offers besides the call.
_METHODS = ("lower", "trace", "eval_shape")


def accelerate(fn: Callable[P, R]) -> Callable[P, R]:
    """``fn`` with every collective of jax.lax inside it run by pccl_jax.

    Those that ``fn`` calls under any transformation (jit, shard_map, pmap, scan, while, cond,
    remat, custom_vjp), and those that JAX adds, in the gradient too. Values, shapes, dtypes, types
    and gradients are those of ``fn``; a floating-point sum may be added up in another order. What
    we do not serve (docs/limits.md) stays lax's; ``pccl_jax.explain`` says why.

    Transformations go outside or inside: ``jit(grad(accelerate(f)))`` or
    ``accelerate(jit(grad(f)))``. ``fn`` itself is unchanged. A jitted function is compiled once for
    calls in ``accelerate`` and once for others; each finds its own in the cache. Of a jitted
    ``fn``, ``lower``, ``trace`` and ``eval_shape`` are there too. A thread that ``fn`` starts
    itself is not covered.

    Args:
        fn: a function. Usable as a decorator.

    Returns:
        A function with the arguments and results of ``fn``.

    Raises:
        TypeError: where ``fn`` is not callable.

    Example:
        >>> import jax, jax.numpy as jnp, pccl_jax
        >>> mesh = jax.sharding.Mesh(jax.devices(), ("x",))
        >>> f = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh,
        ...                   in_specs=jax.P("x"), out_specs=jax.P())
        >>> n = len(jax.devices())
        >>> bool(jax.jit(pccl_jax.accelerate(f))(jnp.arange(n))[0] == n * (n - 1) // 2)
        True
    """
    if not callable(fn):
        raise TypeError(
            f"accelerate expects a function, got {type(fn).__name__}: pass the function itself, "
            "not its result."
        )
    _put_rules_in_place()
    return _Jitted(fn) if any(hasattr(fn, name) for name in _METHODS) else _marked(fn)


def install() -> None:
    """Has pccl_jax run every collective of jax.lax in this process, as by :func:`accelerate`.

    Until :func:`uninstall`, in all threads. It holds for what is lowered from now on; a function
    that jit has compiled before is compiled anew at its next call, and the old program is found
    again after ``uninstall``. Compiled objects in hand (``lower().compile()``) stay as they are. To
    install twice is to install once. With several processes, all of them have to.

    Example:
        >>> import pccl_jax
        >>> pccl_jax.install()
        >>> pccl_jax.uninstall()
    """
    _put_rules_in_place()
    _INSTALLED.set_global(True)


def uninstall() -> None:
    """Undoes :func:`install`; without it does nothing. :func:`accelerate` is not affected."""
    _INSTALLED.set_global(False)


def accelerated(said: dict[str, Any] | None = None) -> bool:
    """Whether we serve lax's collectives: what is lowered now, or an equation.

    Args:
        said: the metadata of the equation; None for that of what is lowered now.
    """
    said = metadata() if said is None else said
    return bool(_INSTALLED.value) or _MARK.items() <= said.items()


def _marked(fn: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(fn)
    def marked(*args: P.args, **kwargs: P.kwargs) -> R:
        with set_xla_metadata(**_MARK):
            return fn(*args, **kwargs)

    return marked


def _method(name: str) -> property:
    return property(lambda self: _marked(getattr(self.__wrapped__, name)))


class _Jitted:
    """A jitted function accelerated, with its methods.

    These must not be in ``__dict__``, from where ``functools.wraps`` would give them to whatever
    transformation of it, ``jax.jit`` included, as its own. They must be found in the class, where
    ``jax.export`` looks for them (``isinstance`` of a protocol, from Python 3.12 on).
    """

    lower, trace, eval_shape = map(_method, _METHODS)

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.__wrapped__ = fn
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with set_xla_metadata(**_MARK):
            return self.__wrapped__(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def _put_rules_in_place() -> None:
    """Once a process, never undone: a rule without the mark does what lax's did."""
    global _rules_in_place
    with _lock:
        if _rules_in_place:
            return
        for primitive, entry in FROM_LAX.items():
            rules = {
                platform: _rule(primitive, entry, platform, lowering_rule(primitive, platform))
                for platform in MODULES
            }
            lower_on(primitive, rules)
        _rules_in_place = True


def _rule(
    primitive: Any, entry: Served, platform: str, lax_rule: Callable[..., Any]
) -> Callable[..., Any]:
    def rule(ctx: mlir.LoweringRuleContext, x: Any, **theirs: Any) -> Any:
        params = entry.params(theirs) if accelerated() and not left_to_lax() else None
        if params is None:
            return lax_rule(ctx, x, **theirs)
        if reduced := dimensions(theirs):
            named = theirs | {"axes": params["axes"]}

            def dimensions_first(x: Any) -> Any:
                return primitive.bind(reduce_axis(entry.defaults["op"], x, reduced), **named)

            return lower_python(dimensions_first, ctx, x)

        def as_lax(ctx: mlir.LoweringRuleContext, x: Any, **_: Any) -> Any:
            return lax_rule(ctx, x, **theirs)

        return entry.lower(ctx, x, platform=platform, fallback=as_lax, **params)

    return rule
