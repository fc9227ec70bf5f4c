"""Which calls are served, and when: caches, threads, install and uninstall."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from meshes import assert_same, mesh_of

import pccl_jax

N = 4


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    pccl_jax.choices(clear=True)
    yield
    pccl_jax.uninstall()


def total(**options: Any) -> Callable[[Any], Any]:
    def body(x: Any) -> Any:
        return pccl_jax.psum(x, "x", **options) if options else lax.psum(x, "x")

    return jax.shard_map(body, mesh=mesh_of(N), in_specs=P("x"), out_specs=P())


def served() -> list[str]:
    """The algorithms of what has been lowered since the last call."""
    return [choice.algorithm for choice in pccl_jax.choices(clear=True)]


X = np.arange(float(N * 3))


def test_a_compiled_function_and_its_accelerated_self_do_not_mix() -> None:
    f = jax.jit(total())
    fast = pccl_jax.accelerate(f)
    expected = f(X)
    assert served() == []
    assert_same(fast(X), expected)
    assert len(served()) == 1
    for again in (f, fast, f):
        assert_same(again(X), expected)
    assert served() == [], "both are in jit's cache"
    assert "pccl_collective" not in f.lower(X).as_text()
    assert "pccl_collective" in fast.lower(X).as_text()


def test_a_jitted_function_inside_follows_its_caller() -> None:
    inner = jax.jit(total())

    def caller(x: Any) -> Any:
        return 2 * inner(x)

    program = jax.jit(lambda x: (caller(x), pccl_jax.accelerate(caller)(x)))
    text = program.lower(X).as_text()
    assert served() != []
    assert text.count("@pccl_collective") == 1
    assert text.count("stablehlo.all_reduce") == 1


def test_install_reaches_what_was_compiled_before_and_uninstall_leaves_it() -> None:
    f = jax.jit(jax.grad(lambda x: (total()(x) ** 2).sum()))
    expected = f(X)
    assert served() == []
    pccl_jax.install()
    pccl_jax.install()
    assert_same(f(X), expected)
    assert served() != []
    pccl_jax.uninstall()
    pccl_jax.uninstall()
    assert_same(f(X), expected)
    assert served() == [], "the program from before is found again"
    assert "pccl_collective" not in f.lower(X).as_text()


def test_install_holds_in_every_thread_and_accelerate_in_its_own() -> None:
    f = jax.jit(total())
    pccl_jax.install()
    assert in_thread(lambda: "pccl_collective" in f.lower(X).as_text())
    pccl_jax.uninstall()

    def both(x: Any) -> Any:
        elsewhere.append(in_thread(lambda: "pccl_collective" in f.lower(X).as_text()))
        return f(x)

    elsewhere: list[bool] = []
    assert "pccl_collective" in jax.jit(pccl_jax.accelerate(both)).lower(X).as_text()
    assert elsewhere == [False]


def in_thread(function: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(60)
    return results[0]


def test_threads_at_once() -> None:
    """Accelerated and plain calls of one function in several threads: each gets its own."""
    f = jax.jit(total())
    fast = pccl_jax.accelerate(f)
    barrier = threading.Barrier(4)
    found: dict[int, bool] = {}

    def work(number: int) -> None:
        barrier.wait(60)
        for _ in range(5):
            text = (fast if number % 2 else f).lower(X).as_text()
            found[number] = "pccl_collective" in text

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {0: False, 1: True, 2: False, 3: True}


def test_nested_and_raising() -> None:
    """The mark is gone after the call, however it ends."""
    plain = total()

    def fails(x: Any) -> Any:
        pccl_jax.accelerate(plain)(x)
        raise KeyError("as the function raises it")

    with pytest.raises(KeyError, match="as the function raises it"):
        pccl_jax.accelerate(fails)(X)
    assert "pccl_collective" not in jax.jit(plain).lower(X).as_text()


def test_what_a_call_leaves_to_xla_stays_there_under_install() -> None:
    pccl_jax.install()
    text = jax.jit(total(algorithm="xla")).lower(X).as_text()
    assert "pccl_collective" not in text
    assert served() == ["xla"]


def test_using_chooses_for_accelerated_calls() -> None:
    with pccl_jax.using(algorithm="ring"):
        jax.jit(pccl_jax.accelerate(total())).lower(X)
    assert served() == ["ring"]
    with pccl_jax.using(algorithm="xla"):
        text = jax.jit(pccl_jax.accelerate(total())).lower(X).as_text()
    assert served() == ["xla"]
    assert "stablehlo.all_reduce" in text


def test_methods_of_a_jitted_function() -> None:
    fast = pccl_jax.accelerate(jax.jit(total()))
    assert fast.eval_shape(X).shape == (3,)  # type: ignore[attr-defined]
    assert "pccl_collective" in fast.trace(X).lower().as_text()  # type: ignore[attr-defined]
    compiled = fast.lower(X).compile()  # type: ignore[attr-defined]
    assert_same(compiled(X), jax.jit(total())(X))


def test_what_is_made_of_a_jitted_function_does_not_have_its_methods() -> None:
    """Else jit would take them for those of the program that it is to compile."""

    def f(x: Any) -> Any:
        return (total()(x) ** 2).sum()

    fast = pccl_jax.accelerate(jax.jit(f))
    for change in (jax.grad, lambda f: jax.vmap(f, in_axes=1)):
        x = X if change is jax.grad else np.stack([X, X + 1], 1)
        right = jax.jit(change(f))(x)
        assert jax.make_jaxpr(change(fast))(x).out_avals == [jax.typeof(right)]
        compiled = jax.jit(change(fast)).lower(x).compile()
        assert_same(compiled(x), right)
        assert_same(pccl_jax.accelerate(change(fast))(x), right)


def test_keywords_names_and_methods_of_classes() -> None:
    class Model:
        weight = 2.0

        @pccl_jax.accelerate
        def step(self, x: Any, *, scale: float) -> Any:
            """Doc."""
            return scale * self.weight * total()(x)

    assert (Model.step.__name__, Model.step.__doc__) == ("step", "Doc.")
    assert_same(Model().step(jnp.asarray(X), scale=3.0), 6 * total()(X))
    assert served() != []


def test_what_is_no_function() -> None:
    with pytest.raises(
        TypeError, match="expects a function, got ArrayImpl: pass the function itself"
    ):
        pccl_jax.accelerate(jnp.ones(3))  # type: ignore[arg-type]
