"""The choice as programs get it: read from the lowered program, under a model fixed by the test."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from meshes import mesh_of, per_rank
from processes import run_program
from synthetic import model, threshold

import pccl_jax
from pccl_jax.dispatch.machine import model_file
from pccl_jax.dispatch.model import Svm

KIB = 1 << 10
#: Names that no other policy would give: ring below 64 KiB for an all-reduce, and so on.
MODEL = model(
    all_reduce=threshold("ring", "rec", 16.0),
    all_gather=threshold("hier_ring", "ring", 14.0),
    reduce_scatter=threshold("rec", "hier_ring", 12.0),
)


@pytest.fixture(autouse=True)
def fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fixed.json").write_text(MODEL.to_json())
    monkeypatch.setenv("PCCL_MODEL", str(tmp_path / "fixed.json"))


def lowered(function: Callable[..., Any], x: Any, *shape: int) -> list[str]:
    """The algorithms in the program, in its order; "xla" stands for a collective of XLA's."""
    text = per_rank(function, mesh_of(*shape)).lower(x).as_text()
    found = re.findall(r'algorithm = "(\w+)"|stablehlo\.(all_\w+|reduce_scatter)"', text)
    return [ours or "xla" for ours, _ in found]


def floats(ranks: int, nbytes: int) -> np.ndarray:
    return np.zeros((ranks, nbytes // 4), np.float32)


@pytest.mark.parametrize(
    ("nbytes", "expected"), [(KIB, "ring"), (60 * KIB, "ring"), (68 * KIB, "rec"), (KIB**2, "rec")]
)
def test_size(nbytes: int, expected: str) -> None:
    assert lowered(lambda x: pccl_jax.psum(x, "x"), floats(4, nbytes), 4) == [expected]


def test_several_collectives_of_one_program() -> None:
    def program(x: Any) -> Any:
        small, large = x[: 2 * KIB], jnp.tile(x, 4)
        gathered = pccl_jax.all_gather(small, "x", tiled=True)  # 4 x 8 KiB = 32 KiB
        part = pccl_jax.psum_scatter(large, "x", tiled=True)  # of 64 KiB
        return gathered.sum() + part.sum() + pccl_jax.psum(x[0], "x") + pccl_jax.psum(large, "x")[0]

    assert lowered(program, floats(4, 16 * KIB), 4) == ["ring", "hier_ring", "ring", "rec"]


def test_the_larger_array_counts() -> None:
    """4 KiB are gathered to 16 KiB on 4 ranks, and to 8 KiB on 2."""
    gather = lambda x: pccl_jax.all_gather(x, "x")  # noqa: E731
    assert lowered(gather, floats(4, 5 * KIB), 4) == ["ring"]
    assert lowered(gather, floats(2, 5 * KIB), 2) == ["hier_ring"]


def test_axes_and_groups() -> None:
    """The group along an axis counts, not the mesh."""
    for axes, ranks in (("x", 2), ("y", 4), (("x", "y"), 8)):
        (name,) = lowered(
            lambda x, axes=axes: pccl_jax.all_gather(x, axes), floats(8, 5 * KIB), 2, 4
        )
        assert name == ("ring" if ranks * 5 > 16 else "hier_ring")
    pairs = [[0, 2], [1, 3]]
    grouped = lambda x: pccl_jax.all_gather(x, "x", axis_index_groups=pairs)  # noqa: E731
    assert lowered(grouped, floats(4, 5 * KIB), 4) == ["hier_ring"]


@pytest.mark.parametrize(("per_node", "expected"), [("2", "rec"), ("4", "ring")])
def test_topology(
    per_node: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that looks at the nodes: two votes for rec, one for ring."""
    by_nodes = Svm(
        ("rec", "ring"), ("log2_nodes",), (0.0,), (3.0,), (0.5,), (1.0,), 0.001,
        ((0.5,), (-0.5,)), (1, 1), ((1.0, -1.0),), (0.0,),
    )  # fmt: skip
    (tmp_path / "nodes.json").write_text(model(all_reduce=by_nodes).to_json())
    monkeypatch.setenv("PCCL_MODEL", str(tmp_path / "nodes.json"))
    monkeypatch.setenv("PCCL_RANKS_PER_NODE", per_node)
    assert lowered(lambda x: pccl_jax.psum(x, "x"), floats(4, KIB), 4) == [expected]


def test_vmap_is_judged_by_the_whole_batch() -> None:
    """One collective of 16 x 8 KiB."""
    summed = lambda x: jax.vmap(lambda v: pccl_jax.psum(v, "x"))(x.reshape(16, -1))  # noqa: E731
    assert lowered(summed, floats(4, 128 * KIB), 4) == ["rec"]
    alone = lambda x: pccl_jax.psum(x[: 2 * KIB], "x")  # noqa: E731
    assert lowered(alone, floats(4, 128 * KIB), 4) == ["ring"]


def test_a_transposed_collective_is_judged_by_its_own_kind() -> None:
    """The cotangent of an all_gather of 4 x 2 KiB is a reduce_scatter of 8 KiB."""

    def loss(x: Any) -> Any:
        return (pccl_jax.all_gather(x, "x", tiled=True) ** 2).sum()

    forward = lowered(lambda x: pccl_jax.all_gather(x, "x"), floats(4, 2 * KIB), 4)
    assert forward == ["hier_ring"]  # below 16 KiB
    pccl_jax.choices(clear=True)
    names = lowered(jax.grad(loss), floats(4, 512), 4)  # 4 x 512 B = 2 KiB, below 4 KiB
    kinds = [(c.collective, c.nbytes, c.algorithm) for c in pccl_jax.choices()]
    assert kinds == [
        ("all_gather", 2 * KIB, "hier_ring"),
        ("reduce_scatter", 2 * KIB, "rec"),
    ]
    assert names == ["hier_ring", "rec"]
    assert lowered(jax.grad(loss), floats(4, 2 * KIB), 4) == ["hier_ring", "hier_ring"]


def test_vmapped_gradients_are_judged_by_both() -> None:
    """Eight of the small ones above are one reduce_scatter of 16 KiB."""

    def loss(x: Any) -> Any:
        return (pccl_jax.all_gather(x, "x", tiled=True) ** 2).sum()

    batched = lambda x: jax.vmap(jax.grad(loss))(x.reshape(8, -1))  # noqa: E731
    assert lowered(batched, floats(4, 4 * KIB), 4)[-1] == "hier_ring"


def test_results_are_right_whatever_is_chosen() -> None:
    x = np.arange(4 * 300, dtype=np.float32).reshape(4, 300)
    for nbytes in (KIB, 70 * KIB):
        y = np.resize(x, (4, nbytes // 4))
        np.testing.assert_array_equal(
            per_rank(lambda v: pccl_jax.psum(v, "x"), mesh_of(4))(y), np.tile(y.sum(0), (4, 1))
        )


def test_a_training_program_needs_no_scikit_learn(tmp_path: Path) -> None:
    """With a model in use, and with a broken one, which warns and is left alone."""
    code = """
        import sys
        x = np.ones((4, 64), np.float32)
        f = per_rank(lambda v: pccl_jax.psum(v, "x"), mesh_of(4))
        assert (np.asarray(f(x)) == 4).all()
        (choice,) = pccl_jax.choices()
        print(choice.reason)
        for name in ("sklearn", "joblib", "matplotlib"):
            assert name not in sys.modules, name
    """
    file = tmp_path / model_file().name
    file.write_text(MODEL.to_json())
    settings = {"PCCL_CONFIG_HOME": str(tmp_path), "PCCL_MODEL": ""}
    assert "learned: model-" in run_program(code, **settings).stdout
    file.write_text("{")
    done = run_program(code, **settings)
    assert "cost model of host" in done.stdout
    assert done.stderr.count("goes on without its learned model") == 1
