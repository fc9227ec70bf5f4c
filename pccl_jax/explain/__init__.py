"""Which collectives a program has, what serves each, and why."""

from pccl_jax.explain.explanation import Explanation, explain
from pccl_jax.explain.line import Line
from pccl_jax.explain.watch import watching

__all__ = ["Explanation", "Line", "explain", "watching"]
