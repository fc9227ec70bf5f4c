"""The examples, as a user runs them: each in a process of its own, compared with jax.lax."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120
LOSS_RTOL = 1e-4
FEW_STEPS = ["--steps", "10", "--layers", "2", "--width", "32"]


def run_example(name: str, *options: str, **settings: str) -> str:
    """What the example prints; fails if it exits with an error."""
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", *options],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **settings},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def printed_losses(output: str) -> list[tuple[float, float]]:
    """The losses (with jax.lax, with pccl_jax) of every printed step."""
    found = re.findall(r"^step +\d+ +loss +lax ([\d.]+) +pccl ([\d.]+)", output, re.MULTILINE)
    return [(float(lax), float(pccl)) for lax, pccl in found]


def assert_losses_agree_and_fall(output: str, *, by: float) -> None:
    losses = printed_losses(output)
    assert len(losses) >= 3, output
    for lax, pccl in losses:
        assert pccl == pytest.approx(lax, rel=LOSS_RTOL), output
    assert losses[-1][1] < losses[0][1] - by, output


def table_column(output: str, name: str) -> set[str]:
    """The values of a column of the table of choices."""
    lines = output[output.index("The algorithm each collective took") :].splitlines()
    header, *rows = (re.split(r" {2,}", line.strip()) for line in lines[1:])
    return {row[header.index(name)] for row in rows}


@pytest.mark.parametrize("devices", [8, 3])
def test_fsdp_transformer_trains_as_with_lax(devices: int) -> None:
    output = run_example("fsdp_transformer", *FEW_STEPS, "--devices", str(devices))
    assert_losses_agree_and_fall(output, by=0.5)
    assert {"all_gather", "reduce_scatter", "all_reduce"} <= table_column(output, "collective")


def test_fsdp_transformer_without_check_vma() -> None:
    output = run_example("fsdp_transformer", *FEW_STEPS, "--devices", "2", "--no-check-vma")
    assert_losses_agree_and_fall(output, by=0.5)


def test_fsdp_transformer_takes_the_algorithm_asked_for() -> None:
    output = run_example(
        "fsdp_transformer", *FEW_STEPS, "--algorithm", "hier_ring", PCCL_RANKS_PER_NODE="4"
    )
    assert_losses_agree_and_fall(output, by=0.5)
    assert table_column(output, "algorithm") == {"hier_ring"}


@pytest.mark.parametrize("devices", [8, 3])
def test_ddp_digits_reaches_its_accuracy(devices: int) -> None:
    output = run_example("ddp_digits", "--devices", str(devices))
    assert_losses_agree_and_fall(output, by=1.0)
    assert re.search(r"^test accuracy +lax 9[5-9]\.\d+% +pccl 9[5-9]\.\d+%$", output, re.MULTILINE)


def test_ddp_digits_fails_below_its_accuracy() -> None:
    with pytest.raises(AssertionError, match="the test accuracy is below 95%"):
        run_example("ddp_digits", "--collectives", "pccl", "--devices", "2", "--steps", "1")


def test_one_library_alone() -> None:
    output = run_example("ddp_digits", "--collectives", "lax")
    assert "pccl" not in output


@pytest.mark.parametrize("devices", [8, 3])
def test_replace_lax_trains_the_same(devices: int) -> None:
    pytest.importorskip("equinox")
    pytest.importorskip("optax")
    output = run_example("replace_lax", "--steps", "20", "--devices", str(devices))
    found = re.findall(
        r"^step +\d+ +loss +lax ([\d.]+) +accelerated ([\d.]+)", output, re.MULTILINE
    )
    losses = [(float(lax), float(fast)) for lax, fast in found]
    assert len(losses) == 3, output
    for lax, fast in losses:
        assert fast == pytest.approx(lax, rel=LOSS_RTOL), output
    assert losses[-1][1] < losses[0][1] - 0.3, output
    assert re.search(r"^equal +True$", output, re.MULTILINE)
    table = output[output.index("train_step: 4 collectives") :]
    assert " xla " not in table


def test_a_batch_that_does_not_divide_says_what_to_pass() -> None:
    with pytest.raises(AssertionError, match="pass a multiple of 7"):
        run_example("ddp_digits", "--devices", "7")
