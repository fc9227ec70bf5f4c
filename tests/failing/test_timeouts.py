"""A rank that never comes: a warning, then an error that names everything, then life goes on."""

from __future__ import annotations

import pytest
from processes import run_program

IMPATIENT = {"PCCL_TIMEOUT_S": "2", "PCCL_WARN_S": "0.5"}

ONE_SKIPS = """
    import time

    def program(x):
        return lax.cond(lax.axis_index("x") == {missing},
                        lambda x: x, lambda x: pccl_jax.psum(x, "x", algorithm={algorithm!r}), x)

    f = per_rank(program, mesh_of(4))
    x = np.ones((4, 1000), np.float32)
    since = time.monotonic()
    try:
        jax.block_until_ready(f(x))
    except jax.errors.JaxRuntimeError as error:
        print("ERROR", error)
    print("SECONDS", time.monotonic() - since)

    total = per_rank(lambda x: pccl_jax.psum(x, "x"), mesh_of(4))(x)
    assert (np.asarray(total) == 4).all()
    print("ALIVE")
"""


def seconds(output: str) -> float:
    return float(output.split("SECONDS")[1].split()[0])


@pytest.mark.parametrize("algorithm", ["ring", "hier_rec", "latency"])
@pytest.mark.parametrize("missing", [0, 2])
def test_a_rank_that_never_comes(algorithm: str, missing: int) -> None:
    done = run_program(ONE_SKIPS.format(missing=missing, algorithm=algorithm), **IMPATIENT)
    here = ", ".join(str(rank) for rank in range(4) if rank != missing)
    assert 1.5 < seconds(done.stdout) < 10
    for words in (
        "all_reduce", "'x'", "4000 bytes", f"algorithm {algorithm}", f"ranks {here} have waited",
        f"Not come: ranks {missing}.", "PCCL_TIMEOUT_S", "lax.cond",
    ):  # fmt: skip
        assert words in done.stdout
    assert "ALIVE" in done.stdout
    assert done.stderr.count("pccl_jax: all_reduce") == 1
    assert f"Not come: ranks {missing}. Still waiting" in done.stderr


def test_the_ranks_are_places_on_the_axis() -> None:
    """On a permuted mesh, and for one of two axes."""
    done = run_program(
        """
        def program(x):
            skip = (lax.axis_index("x") == 1) & (lax.axis_index("y") == 0)
            return lax.cond(skip, lambda x: x, lambda x: pccl_jax.pmax(x, "x"), x)

        f = per_rank(program, mesh_of(2, 2, order=[3, 1, 0, 2]))
        try:
            jax.block_until_ready(f(np.ones((4, 3), np.float32)))
        except jax.errors.JaxRuntimeError as error:
            print("ERROR", error)
        """,
        **IMPATIENT,
    )
    assert "Not come: ranks 1 (device 2 of the mesh)." in done.stdout


def test_a_late_rank_gets_the_error_too_and_the_next_run_works() -> None:
    done = run_program(
        """
        import time
        slow = {"on": True}

        def wait(x):
            if slow["on"]:
                time.sleep(4)
            return np.asarray(x)

        def program(x):
            late = lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
            x = lax.cond(lax.axis_index("x") == 3, late, lambda x: x, x)
            return pccl_jax.all_gather(x, "x", tiled=True)

        f = per_rank(program, mesh_of(4))
        x = np.arange(8.0, dtype=np.float32).reshape(4, 2)
        try:
            jax.block_until_ready(f(x))
        except jax.errors.JaxRuntimeError as error:
            print("ERROR", error)
        slow["on"] = False
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(f(x)), np.tile(np.arange(8.0), (4, 1)))
        print("ALIVE")
        """,
        **IMPATIENT,
    )
    assert "Not come: ranks 3." in done.stdout
    assert "ALIVE" in done.stdout


def test_a_slow_rank_is_waited_for() -> None:
    done = run_program(
        """
        import time

        def wait(x):
            time.sleep(2)
            return np.asarray(x)

        def program(x):
            late = lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
            x = lax.cond(lax.axis_index("x") == 0, late, lambda x: x, x)
            return pccl_jax.psum(x, "x")

        print(np.asarray(per_rank(program, mesh_of(4))(np.ones((4, 2), np.float32))).sum())
        """,
        PCCL_WARN_S="0.5",
    )
    assert done.stdout.split() == ["32.0"]
    assert "Not come: ranks 0. Still waiting" in done.stderr
