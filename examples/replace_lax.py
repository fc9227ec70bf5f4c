"""The whole change to existing code: `jax.lax` becomes `pccl_jax`.

python examples/replace_lax.py    # prints what each device holds, and "equal    True"
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

import pccl_jax


def before(x: jax.Array) -> jax.Array:
    whole = jax.lax.all_gather(x, "data", tiled=True)
    share = jax.lax.psum_scatter(whole, "data", tiled=True)
    return share / jax.lax.psum(1, "data")


def after(x: jax.Array) -> jax.Array:
    whole = pccl_jax.all_gather(x, "data", tiled=True)
    share = pccl_jax.psum_scatter(whole, "data", tiled=True)
    return share / pccl_jax.psum(1, "data")


jax.config.update("jax_num_cpu_devices", 8)
pccl_jax.init()  # joins the other processes under mpiexec or Slurm
mesh = Mesh(jax.devices(), ("data",))
specs = {"in_specs": PartitionSpec("data"), "out_specs": PartitionSpec("data")}
x = jnp.arange(2.0 * mesh.size)
old, new = (jax.jit(jax.shard_map(f, mesh=mesh, **specs))(x) for f in (before, after))
equal = bool(jnp.array_equal(old, new))
if jax.process_index() == 0:
    for name, result in (("jax.lax", old), ("pccl_jax", new)):
        print(f"{name:8}", [shard.data.tolist() for shard in result.addressable_shards])
    print("equal   ", equal)
