"""Many devices, many collectives, many launches, several threads: nothing starves."""

from __future__ import annotations

import pytest
from processes import run_program

EVERYTHING_ONCE = """
    n = len(jax.devices())
    mesh = mesh_of(n)
    x = np.arange(n * n, dtype=np.int32).reshape(n, n) % 101
    for algorithm in algorithms():
        def program(x, algorithm=algorithm):
            out = [pccl_jax.psum(x, "x", algorithm=algorithm)]
            if algorithm in algorithms("all_gather"):
                out.append(pccl_jax.all_gather(x[:3], "x", algorithm=algorithm))
                out.append(pccl_jax.psum_scatter(x, "x", algorithm=algorithm))
            return out

        total, *rest = per_rank(program, mesh)(x)
        np.testing.assert_array_equal(total, np.tile(x.sum(0, dtype=np.int32), (n, 1)))
        if rest:
            np.testing.assert_array_equal(rest[0], np.tile(x[:, :3], (n, 1, 1)))
            np.testing.assert_array_equal(rest[1], x.sum(0, dtype=np.int32))
    print("DONE")
"""


@pytest.mark.parametrize("per_node", ["", "8"])
@pytest.mark.parametrize("devices", [64, 256])
@pytest.mark.timeout(200)
def test_many_devices(devices: int, per_node: str) -> None:
    done = run_program(
        EVERYTHING_ONCE, devices=devices, timeout_s=180, PCCL_RANKS_PER_NODE=per_node
    )
    assert "DONE" in done.stdout
    assert "has waited" not in done.stderr


@pytest.mark.parametrize("devices", [2, 8, 16])
def test_many_independent_collectives(devices: int) -> None:
    """More than XLA has threads: ranks must not wait for each other in different calls."""
    done = run_program(
        """
        n = len(jax.devices())
        weights = [np.full((n, 8, 64), i, np.float32) for i in range(64)]

        def program(weights):
            gathered = [pccl_jax.all_gather(w * 2, "x", tiled=True) for w in weights]
            return [w.sum(0) for w in gathered]

        f = per_rank(program, mesh_of(n))
        for _ in range(5):
            for i, total in enumerate(f(weights)):
                assert (np.asarray(total) == 16 * n * i).all()
        print("DONE")
        """,
        devices=devices,
        PCCL_TIMEOUT_S="20",
        PCCL_WARN_S="10",
    )
    assert "DONE" in done.stdout


def test_many_launches() -> None:
    """Before jax 0.12 XLA itself fails, with its own collectives too, if nobody ever waits."""
    run_program(
        """
        f = per_rank(lambda x: pccl_jax.psum(x, "x") / 4 + 1, mesh_of(4))
        x = np.zeros((4, 1000), np.float32)
        for i in range(100):
            x = f(x)
            if i % 10 == 9 and jax.__version_info__ < (0, 12):
                jax.block_until_ready(x)
        np.testing.assert_array_equal(np.asarray(x), 100)
        """,
        PCCL_TIMEOUT_S="20",
    )


def test_two_threads_dispatch_at_once() -> None:
    run_program(
        """
        import threading

        x = np.ones((4, 1000), np.float32)
        programs = [
            per_rank(lambda x: pccl_jax.psum(x, "x") * 2, mesh_of(4)),
            per_rank(lambda x: pccl_jax.all_gather(x, "x").sum(0) * 3, mesh_of(4)),
        ]
        wrong = []

        def work(f, expected):
            for _ in range(50):
                if not (np.asarray(f(x)) == expected).all():
                    wrong.append(expected)

        threads = [threading.Thread(target=work, args=a) for a in zip(programs, (8, 12))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        """,
        PCCL_TIMEOUT_S="20",
    )


def test_one_function_from_two_threads_at_once() -> None:
    """Both threads run the same call sites: the run tells their meetings apart."""
    run_program(
        """
        import threading

        f = per_rank(lambda x: pccl_jax.psum(x, "x"), mesh_of(4))
        f(np.ones((4, 1000), np.float32))
        wrong = []

        def work(value):
            x = np.full((4, 1000), value, np.float32)
            for _ in range(50):
                if not (np.asarray(f(x)) == 4 * value).all():
                    wrong.append(value)

        threads = [threading.Thread(target=work, args=(v,)) for v in (1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        """,
        PCCL_TIMEOUT_S="20",
    )


@pytest.mark.parametrize("devices", [4, 12])
def test_mixed_with_collectives_of_lax(devices: int) -> None:
    """XLA's own block a thread each: every rank that goes on after one of ours needs its own."""
    run_program(
        """
        n = len(jax.devices())

        def body(x, i):
            x = lax.pmax(pccl_jax.psum(x, "x") / n, "x") * i
            x = lax.ppermute(pccl_jax.pmax(x, "x"), "x", [(k, (k + 1) % n) for k in range(n)])
            return x / i, None

        f = per_rank(lambda x: lax.scan(body, x, jnp.arange(2.0, 12.0))[0], mesh_of(n))
        for _ in range(30):
            assert (np.asarray(f(np.ones((n, 64), np.float32))) == 1).all()
        """,
        devices=devices,
        PCCL_TIMEOUT_S="20",
    )
