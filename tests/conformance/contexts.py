"""Where a collective can stand: each context runs a body and returns what comes of it.

A body takes the operand of one rank and the name of an axis, and returns a tree of arrays. Operands
are small whole numbers, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import checkify
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import mesh_of

from .calls import RANKS

Body = Callable[..., Any]

X = (np.arange(RANKS * 4 * 2) % 7 - 3.0).reshape(RANKS * 4, 2)


def shard(body: Body, mesh: Any = None, **options: Any) -> Callable[..., Any]:
    """``body`` on every rank's rows, results stacked."""
    mesh = mesh_of(RANKS) if mesh is None else mesh
    return jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), **options)


def weighted(tree: Any) -> Any:
    """A number that depends on every element, on each in another way."""
    return sum((leaf * (1 + jnp.arange(leaf.size)).reshape(leaf.shape)).sum()
               for leaf in jax.tree.leaves(tree))  # fmt: skip


def _objective(body: Body) -> Body:
    return lambda x: weighted(body(x))[None]


def jitted(body: Body) -> Any:
    return jax.jit(shard(body))(X)


def untyped(body: Body) -> Any:
    return jax.jit(shard(body, check_vma=False))(X)


def eager(body: Body) -> Any:
    return shard(body)(X)


def jit_disabled(body: Body) -> Any:
    with jax.disable_jit():
        return shard(body)(X)


def jaxprs_checked(body: Body) -> Any:
    with jax.enable_checks(True):
        return jax.jit(shard(body))(X)


def strict_promotion(body: Body) -> Any:
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        return jax.jit(shard(body))(X.astype(np.float16))


def no_transfers(body: Body) -> Any:
    f, x = jax.jit(shard(body)), jax.device_put(X, NamedSharding(mesh_of(RANKS), P("x")))
    f(x)
    with jax.transfer_guard("disallow"):
        return f(x)


def nans_looked_for(body: Body) -> Any:
    with jax.debug_nans(True):
        return jax.jit(shard(body))(X)


def checkified(body: Body) -> Any:
    error, result = jax.jit(checkify.checkify(shard(body), errors=checkify.float_checks))(X)
    return error.get(), result


def vmapped_condition(body: Body) -> Any:
    def choose(x: Any) -> Any:
        return lax.cond(x.sum() > 0, body, lambda x: body(2 * x), x)

    return jax.jit(shard(jax.vmap(choose, 2, 1)))(np.stack([X, 1 - X, X + 3], axis=2))


def vmapped_loop(body: Body) -> Any:
    """The vmapped operands take different numbers of turns, those of all ranks the same."""

    def turn(state: Any) -> Any:
        i, total = state
        return i - 1, total + weighted(body(i * jnp.ones((4, 2))))

    def loop(turns: Any) -> Any:
        return lax.while_loop(lambda state: state[0] > 0, turn, (turns, turns * 0.0))[1]

    return jax.jit(shard(lambda x: jax.vmap(loop)(jnp.arange(3)) + 0 * x[0, 0], check_vma=False))(X)


def mapped_one_by_one(body: Body) -> Any:
    return jax.jit(shard(lambda x: lax.map(body, jnp.stack([x, 2 * x]))))(X)


def reference(body: Body) -> Any:
    def through(x: Any) -> Any:
        ref = jax.new_ref(x)
        ref[...] = ref[...] + 1
        return body(ref[...])

    return jax.jit(shard(through, check_vma=False))(X)


def jit_inside(body: Body) -> Any:
    inner = jax.jit(lambda x, n: jax.tree.map(lambda leaf: n * leaf, body(x)), static_argnums=1)
    return jax.jit(shard(lambda x: (inner(x, 2), inner(x + 1, 2), inner(x, 3))))(X)


def vmap_of_own_axis(body: Body) -> Any:
    f = jax.vmap(lambda x: body(x, "v"), in_axes=1, out_axes=1, axis_name="v")
    return jax.jit(f)(X.reshape(4, RANKS, 2))


def pmap(body: Body) -> Any:
    return jax.pmap(lambda x: body(x, "i"), axis_name="i")(X.reshape(RANKS, 4, 2))


def vmap_of_pmap(body: Body) -> Any:
    x = X.reshape(RANKS, 4, 2)
    return jax.vmap(jax.pmap(lambda x: body(x, "i"), axis_name="i"))(np.stack([x, x + 1]))


def partial_manual(body: Body) -> Any:
    return jax.jit(shard(body, mesh_of(RANKS, 2), axis_names={"x"}))(X)


def partial_manual_eager(body: Body) -> Any:
    return shard(body, mesh_of(RANKS, 2), axis_names={"x"})(X)


def partial_manual_vmap(body: Body) -> Any:
    f = shard(body, mesh_of(RANKS, 2), axis_names={"x"}, check_vma=False)
    return jax.jit(jax.vmap(f))(np.stack([X, X + 1]))


def nested(body: Body) -> Any:
    """Each shard_map is manual over one axis; in the inner one all are."""

    def outer(x: Any) -> Any:
        inner = jax.shard_map(
            lambda x: body(x, "y"), in_specs=P(None, "y"), out_specs=P("y"), axis_names={"y"},
            check_vma=False,
        )  # fmt: skip
        return inner(x)

    f = shard(outer, mesh_of(2, RANKS), axis_names={"x"}, check_vma=False)
    return jax.jit(f)(np.tile(X[:8], (1, RANKS)))


def abstract_mesh(body: Body) -> Any:
    mesh = mesh_of(RANKS)
    return jax.jit(shard(body, mesh.abstract_mesh))(jax.device_put(X, NamedSharding(mesh, P("x"))))


def _explicit(*shape: int) -> Any:
    mesh = mesh_of(*shape)
    return jax.sharding.Mesh(
        mesh.devices, mesh.axis_names, axis_types=(AxisType.Explicit,) * len(shape)
    )


def explicit_mesh(body: Body) -> Any:
    with jax.set_mesh(_explicit(RANKS)):
        f = jax.shard_map(body, in_specs=P("x"), out_specs=P("x"))
        result = jax.jit(f)(jax.device_put(X, P("x")))
        return result, jax.tree.map(lambda leaf: str(jax.typeof(leaf)), result)


def explicit_partial_manual(body: Body) -> Any:
    with jax.set_mesh(_explicit(RANKS, 2)):
        f = jax.shard_map(body, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
        return jax.jit(f)(jax.device_put(X, P("x")))


def explicit_spmd_axis(body: Body) -> Any:
    with jax.set_mesh(_explicit(RANKS, 2)):
        f = jax.shard_map(
            lambda x: jax.tree.map(lambda leaf: leaf[None], body(x)),
            in_specs=P("x"), out_specs=P("x"),
        )  # fmt: skip
        x = jax.device_put(np.stack([X, X + 1]), P("y", "x"))
        return jax.jit(jax.vmap(f, spmd_axis_name="y"))(x)


#: For bodies whose results need no derivative.
PLAIN = [
    jitted, untyped, jaxprs_checked, strict_promotion, no_transfers, nans_looked_for, checkified,
    vmapped_condition, vmapped_loop, mapped_one_by_one, reference, jit_inside, vmap_of_own_axis,
    pmap, vmap_of_pmap, partial_manual, partial_manual_vmap, nested, abstract_mesh, explicit_mesh,
]  # fmt: skip
#: The same; JAX compiles each operation by itself there, so these take longer.
EAGER = [eager, jit_disabled, partial_manual_eager]


def gradient(body: Body) -> Any:
    return jax.jit(jax.grad(lambda x: shard(_objective(body))(x).sum()))(X)


def gradient_of_vmap_own_axis(body: Body) -> Any:
    def objective(x: Any) -> Any:
        return jax.vmap(lambda x: weighted(body(x**2, "v")), axis_name="v")(x).sum()

    return jax.jit(jax.grad(objective))(X.reshape(RANKS, 4, 2))


def vmap_own_axis_of_gradient(body: Body) -> Any:
    gradient = jax.grad(lambda x: weighted(body(x**2, "v")))
    return jax.jit(jax.vmap(gradient, axis_name="v"))(X.reshape(RANKS, 4, 2))


def jacobians(body: Body) -> Any:
    def both(x: Any) -> Any:
        flat = jax.jit(lambda x: jnp.stack([leaf.sum() for leaf in jax.tree.leaves(body(x))]))
        return jax.jacrev(flat)(x), jax.jacfwd(flat)(x)

    return jax.jit(shard(both))(X)


def hessian(body: Body) -> Any:
    squares = shard(lambda x: weighted(body(x**2))[None])
    return jax.jit(jax.hessian(lambda x: squares(x).sum()))(X[:, :1])


def transposed(body: Body) -> Any:
    def pulled(x: Any) -> Any:
        (result,) = jax.linear_transpose(body, x)(jax.tree.map(jnp.ones_like, body(x)))
        return result * x

    return jax.jit(shard(pulled, check_vma=False))(X)


def custom_vjp(body: Body) -> Any:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        return body(x)

    def backward(x: Any, ct: Any) -> Any:
        return (2 * jax.vjp(body, x)[1](ct)[0],)

    f.defvjp(lambda x: (f(x), x), backward)
    return jax.jit(jax.grad(lambda x: shard(_objective(f))(x).sum()))(X)


def custom_jvp(body: Body) -> Any:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return body(x)

    f.defjvp(lambda primals, tangents: (f(*primals), body(3 * tangents[0])))
    return jax.jit(jax.grad(lambda x: shard(_objective(f))(x).sum()))(X)


def custom_vmap(body: Body) -> Any:
    @jax.custom_batching.custom_vmap
    def f(x: Any) -> Any:
        return body(x)["psum"]

    f.def_vmap(lambda _size, _batched, x: (jax.vmap(lambda x: body(2 * x)["psum"])(x), True))
    return jax.jit(shard(lambda x: jax.vmap(f)(jnp.stack([x, x + 1]))[0] * x))(X)


def gradient_of_pmap(body: Body) -> Any:
    f = jax.pmap(lambda x: weighted(body(x**2, "i")), axis_name="i")
    return jax.jit(jax.grad(lambda x: f(x).sum()))(X.reshape(RANKS, 4, 2))


def gradient_in_pmap(body: Body) -> Any:
    f = jax.grad(lambda x: weighted(body(x**2, "i")))
    return jax.pmap(f, axis_name="i")(X.reshape(RANKS, 4, 2))


def gradient_partial_manual(body: Body) -> Any:
    f = shard(_objective(body), mesh_of(RANKS, 2), axis_names={"x"})
    return jax.jit(jax.grad(lambda x: f(x**2).sum()))(X)


def gradient_explicit(body: Body) -> Any:
    with jax.set_mesh(_explicit(RANKS)):
        f = jax.shard_map(_objective(body), in_specs=P("x"), out_specs=P("x"))
        return jax.jit(jax.grad(lambda x: f(x**2).sum()))(jax.device_put(X, P("x")))


def offloaded_remat(body: Body) -> Any:
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["result"],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip

    def named(x: Any) -> Any:
        results = checkpoint_name(body(x**2), "result")
        return jax.tree.map(lambda leaf: leaf**2, results)

    f = shard(_objective(jax.checkpoint(named, policy=policy)))
    return jax.jit(jax.grad(lambda x: f(x).sum()))(X)


#: For bodies that are linear.
DERIVED = [
    gradient, gradient_of_vmap_own_axis, vmap_own_axis_of_gradient, jacobians, hessian, transposed,
    custom_vjp, custom_jvp, custom_vmap, gradient_of_pmap, gradient_in_pmap,
    gradient_partial_manual, gradient_explicit, offloaded_remat,
]  # fmt: skip
#: For those without a scatter: axes that are not manual are in the types.
SHARDED = [explicit_partial_manual, explicit_spmd_axis]
