"""Code written with jax.lax alone, run by pccl_jax without an edit, and compared.

An Equinox model and an Optax optimiser whose state is divided among the devices (ZeRO): gradients
are reduce-scattered, each device updates its share of the weights, and the shares are gathered.
`pip install 'pccl_jax[examples]'` brings Equinox and Optax.

    python examples/replace_lax.py        # 8 CPU devices in this process

The whole change is `pccl_jax.accelerate(train_step)`. It prints:

    step    1   loss  lax 1.38989  accelerated 1.38989
    step   10   loss  lax 1.10418  accelerated 1.10418
    ...
    equal    True

    train_step: 4 collectives, 144 us predicted
      collective          axis    ranks  nodes  operand         bytes  algorithm ...
      reduce_scatter sum  'data'      8      1  float32[5512]  22,048  hier_rec  ...
      ...
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from _common import METRIC_RTOL, place, say, start
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

import pccl_jax

try:
    import equinox as eqx
    import optax
except ImportError as missing:
    raise SystemExit(f"{missing}: pip install 'pccl_jax[examples]'") from missing

FEATURES, CLASSES, EVERY = 16, 4, 10
OPTIMISER = optax.adam(3e-3)


def make_step(unravel, static, mesh: Mesh, state):
    """A training step in jax.lax: `step(weights, state, inputs, labels)`, weights a vector."""

    def train_step(weights, state, inputs, labels):
        def local_loss(weights):
            model = eqx.combine(unravel(weights), static)
            logits = jax.vmap(model)(inputs)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        local = jax.lax.pcast(weights, "data", to="varying")
        loss, gradient = jax.value_and_grad(local_loss)(local)
        ranks = jax.lax.psum(1, "data")
        gradient = jax.lax.psum_scatter(gradient, "data", tiled=True) / ranks
        norm = jnp.sqrt(jax.lax.psum((gradient**2).sum(), "data"))
        share = jax.lax.dynamic_slice_in_dim(
            local, jax.lax.axis_index("data") * gradient.size, gradient.size
        )
        updates, state = OPTIMISER.update(gradient / jnp.maximum(1, norm), state, share)
        share = optax.apply_updates(share, updates)
        weights = jax.lax.all_gather(share, "data", tiled=True, to="invarying")
        return weights, state, jax.lax.pmean(loss, "data")

    whole, divided = PartitionSpec(), PartitionSpec("data")
    states = jax.tree.map(lambda leaf: divided if np.ndim(leaf) else whole, state)
    return jax.shard_map(
        train_step,
        mesh=mesh,
        in_specs=(whole, states, divided, divided),
        out_specs=(whole, states, whole),
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--devices", type=int, help="CPU devices in each process")
    options.add_argument("--batch", type=int, default=96, help="examples in the batch")
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--seed", type=int, default=0)
    args = options.parse_args()
    mesh = start(args)
    model = eqx.nn.MLP(FEATURES, CLASSES, 64, 2, key=jax.random.key(args.seed))
    arrays, static = eqx.partition(model, eqx.is_array)
    flat, unravel = ravel_pytree(jax.tree.map(np.asarray, arrays))
    padded = np.pad(flat, (0, -flat.size % mesh.size))
    state = jax.tree.map(np.asarray, OPTIMISER.init(padded))

    step = make_step(lambda vector: unravel(vector[: flat.size]), static, mesh, state)
    steps = {"lax": jax.jit(step), "accelerated": jax.jit(pccl_jax.accelerate(step))}

    rng = np.random.default_rng(args.seed)
    inputs = rng.normal(size=(args.batch, FEATURES)).astype(np.float32)
    labels = (inputs @ rng.normal(size=(FEATURES, CLASSES))).argmax(-1)
    batch = [place(part, mesh, PartitionSpec("data")) for part in (inputs, labels)]
    weights = place(padded, mesh, PartitionSpec())
    state = jax.tree.map(
        lambda leaf: place(leaf, mesh, PartitionSpec(*["data"] * leaf.ndim)), state
    )
    first = dict.fromkeys(steps, (weights, state))
    equal = train(steps, first, batch, args.steps)
    say("equal   ", equal)
    say(f"\n{pccl_jax.explain(steps['accelerated'], weights, state, *batch)}")
    if not equal:
        raise SystemExit(f"the losses differ by more than {METRIC_RTOL:g}")


def train(steps, states, batch, count: int) -> bool:
    """Train with every step function, printing losses; returns whether they agree."""
    equal = True
    for number in range(1, count + 1):
        losses = {}
        for name, step in steps.items():
            *states[name], loss = step(*states[name], *batch)
            losses[name] = float(loss)
        equal &= np.allclose(*losses.values(), rtol=METRIC_RTOL, atol=0)
        if number == 1 or number % EVERY == 0:
            text = "  ".join(f"{name} {loss:.5f}" for name, loss in losses.items())
            say(f"step {number:4d}   loss  {text}")
    return equal


if __name__ == "__main__":
    main()
