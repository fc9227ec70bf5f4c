"""Train a small character GPT with FSDP, and compare pccl_jax with jax.lax.

Every weight is split among the devices. Each layer all-gathers its weights in the forward pass
and again in the backward pass; the gradients are reduce-scattered; the loss and the norm of the
gradients are all-reduced. The text is the language reference that comes with Python.

    python examples/fsdp_transformer.py                   # 8 CPU devices in this process
    python examples/fsdp_transformer.py --collectives pccl --algorithm hier_ring

It trains twice and fails if the losses or the norms differ. It prints:

    465,048 characters, 469,152 weights, 8 devices
    step    1   loss  lax 5.16559  pccl 5.16559   norm  lax 10.14671  pccl 10.14671
    step    5   loss  lax 3.74116  pccl 3.74116   norm  lax 2.63100  pccl 2.63100   steps/s ...
    ...
    step   60   loss  lax 2.75973  pccl 2.75973   norm  lax 0.69419  pccl 0.69419   steps/s ...

    The algorithm each collective took, and how often it was compiled:
      collective      operand         bytes    ranks on nodes  algorithm  reason ...
      all_gather      float32[1236]   39,552   8 on 1          hier_rec   all ranks share a node
      ...
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pydoc_data.topics import topics
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _common import Run, libraries, parser, place, print_choices, say, start, train, using
from jax.sharding import Mesh, PartitionSpec

import pccl_jax

Shapes = dict[str, tuple[int, ...]]
Weights = dict[str, Any]
Metrics = dict[str, jax.Array]

BETA1, BETA2, EPSILON = 0.9, 0.99, 1e-6
WARMUP_STEPS = 10
MAX_GRADIENT_NORM = 1.0


class Config(NamedTuple):
    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int
    learning_rate: float

    def outer_shapes(self) -> Shapes:
        return {
            "token": (self.vocabulary, self.width),
            "position": (self.context, self.width),
            "norm": (self.width,),
            "head": (self.width, self.vocabulary),
        }

    def layer_shapes(self) -> Shapes:
        width = self.width
        return {
            "attention_norm": (width,),
            "query_key_value": (width, 3 * width),
            "attention_out": (width, width),
            "mlp_norm": (width,),
            "mlp_in": (width, 4 * width),
            "mlp_out": (4 * width, width),
        }


# Weights: each is kept flat, padded to a multiple of the devices, and split among them.


def initial_shards(config: Config, mesh: Mesh, seed: int) -> Weights:
    rng = np.random.default_rng(seed)

    def draw(name: str, shape: tuple[int, ...], stack: tuple[int, ...]) -> jax.Array:
        if name.endswith("norm"):
            full = np.ones((*stack, *shape), np.float32)
        else:
            scale = 0.02 if name in ("token", "position") else shape[0] ** -0.5
            full = rng.normal(0, scale, (*stack, *shape)).astype(np.float32)
        flat = full.reshape(*stack, -1)
        padding = [(0, 0)] * len(stack) + [(0, -flat.shape[-1] % mesh.size)]
        return place(np.pad(flat, padding), mesh, PartitionSpec(*[None] * len(stack), "data"))

    return {
        "outer": {k: draw(k, shape, ()) for k, shape in config.outer_shapes().items()},
        "layers": {
            k: draw(k, shape, (config.layers,)) for k, shape in config.layer_shapes().items()
        },
    }


def gather(collectives: ModuleType, shards: Weights, shapes: Shapes) -> Weights:
    """Whole weights from everyone's shards. Its transpose reduce-scatters the gradients."""
    flat = collectives.all_gather(shards, "data", tiled=True)
    return {k: flat[k][: math.prod(shape)].reshape(shape) for k, shape in shapes.items()}


# The model


def normalise(x: jax.Array, scale: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * scale


def block(config: Config, w: Weights, x: jax.Array) -> jax.Array:
    batch, context, width = x.shape
    qkv = normalise(x, w["attention_norm"]) @ w["query_key_value"]
    qkv = qkv.reshape(batch, context, 3, config.heads, width // config.heads)
    mixed = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
    x = x + mixed.reshape(batch, context, width) @ w["attention_out"]
    return x + jax.nn.gelu(normalise(x, w["mlp_norm"]) @ w["mlp_in"]) @ w["mlp_out"]


def local_loss(
    shards: Weights, tokens: jax.Array, *, collectives: ModuleType, config: Config
) -> jax.Array:
    """Mean cross-entropy of this device's share of the batch."""
    outer = gather(collectives, shards["outer"], config.outer_shapes())

    # Under checkpoint a layer's whole weights live only while it runs: the backward pass
    # gathers them again. In a scan nothing can merge the two, hence prevent_cse=False.
    @partial(jax.checkpoint, prevent_cse=False)
    def layer(x: jax.Array, layer_shards: Weights) -> tuple[jax.Array, None]:
        w = gather(collectives, layer_shards, config.layer_shapes())
        return block(config, w, x), None

    x = outer["token"][tokens[:, :-1]] + outer["position"]
    x, _ = jax.lax.scan(layer, x, shards["layers"])
    log_probabilities = jax.nn.log_softmax(normalise(x, outer["norm"]) @ outer["head"])
    return -jnp.take_along_axis(log_probabilities, tokens[:, 1:, None], axis=-1).mean()


# Training


def adam(config: Config, state: Weights, gradients: Weights) -> Weights:
    count = state["count"] + 1
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state["mean"], gradients)
    square = jax.tree.map(lambda s, g: BETA2 * s + (1 - BETA2) * g * g, state["square"], gradients)
    rate = config.learning_rate * jnp.minimum(1.0, count / WARMUP_STEPS)
    rate *= jnp.sqrt(1 - BETA2**count) / (1 - BETA1**count)
    shards = jax.tree.map(
        lambda w, m, s: w - rate * m / (jnp.sqrt(s) + EPSILON), state["shards"], mean, square
    )
    return {"count": count, "shards": shards, "mean": mean, "square": square}


def make_step(
    collectives: ModuleType, config: Config, mesh: Mesh, specs: Weights, *, check_vma: bool
) -> Callable[[Weights, jax.Array], tuple[Weights, Metrics]]:
    def step(state: Weights, tokens: jax.Array) -> tuple[Weights, Metrics]:
        loss, gradients = jax.value_and_grad(local_loss)(
            state["shards"], tokens, collectives=collectives, config=config
        )
        # The reduce-scatter has summed over the devices; the batch wants the mean.
        gradients = jax.tree.map(lambda g: g / mesh.size, gradients)
        squares = sum(jnp.square(g).sum() for g in jax.tree.leaves(gradients))
        norm = jnp.sqrt(collectives.psum(squares, "data"))
        clip = jnp.minimum(1.0, MAX_GRADIENT_NORM / norm)
        gradients = jax.tree.map(lambda g: g * clip, gradients)
        metrics = {"loss": collectives.pmean(loss, "data"), "norm": norm}
        return adam(config, state, gradients), metrics

    return jax.jit(
        jax.shard_map(
            step,
            mesh=mesh,
            in_specs=(specs, PartitionSpec("data")),
            out_specs=(specs, PartitionSpec()),
            check_vma=check_vma,
        ),
        donate_argnums=0,
    )


def initial_state(config: Config, mesh: Mesh, seed: int) -> Weights:
    shards = initial_shards(config, mesh, seed)
    zeros = jax.tree.map(jnp.zeros_like, shards)
    return {
        "count": place(np.zeros((), np.int32), mesh, PartitionSpec()),
        "shards": shards,
        "mean": zeros,
        "square": jax.tree.map(jnp.copy, zeros),
    }


def batches(
    text: str, config: Config, mesh: Mesh, *, batch: int, steps: int, seed: int
) -> Iterator[tuple[jax.Array]]:
    """Every process draws the same global batch, and places its devices' rows of it."""
    _, codes = np.unique(list(text), return_inverse=True)
    codes = codes.astype(np.int32)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        starts = rng.integers(0, len(codes) - config.context, batch)
        tokens = codes[starts[:, None] + np.arange(config.context + 1)]
        yield (place(tokens, mesh, PartitionSpec("data")),)


def main() -> None:
    options = parser("FSDP training of a character GPT.", steps=60, batch=24)
    options.add_argument("--layers", type=int, default=4)
    options.add_argument("--width", type=int, default=96, help="a multiple of the 4 heads")
    args = options.parse_args()
    mesh = start(args)

    text = "\n".join(topics.values())
    config = Config(args.layers, args.width, 4, 64, len(set(text)), 3e-3)
    runs = {}
    for name in libraries(args):
        collectives = pccl_jax if name == "pccl" else jax.lax
        state = initial_state(config, mesh, args.seed)
        specs = jax.tree.map(lambda leaf: leaf.sharding.spec, state)
        step = make_step(collectives, config, mesh, specs, check_vma=args.check_vma)
        runs[name] = Run(step, state)

    size = sum(leaf.size for leaf in jax.tree.leaves(state["shards"]))
    say(f"{len(text):,} characters, {size:,} weights, {mesh.size} devices")
    with using(args):
        data = batches(text, config, mesh, batch=args.batch, steps=args.steps, seed=args.seed)
        train(runs, data, every=5)
    print_choices()


if __name__ == "__main__":
    main()
