"""What this process decides by, so that it can be compared with the others."""

from __future__ import annotations

from pccl_jax.dispatch import cost, learned


def describe() -> str:
    """The learned model and the machine of the cost model, by hash.

    Processes with equal texts choose alike.

    Raises:
        ConfigurationError: where ``PCCL_MODEL`` or ``PCCL_MACHINE`` names what does not exist or
            is wrong.

    Example:
        >>> describe()  # doctest: +SKIP
        'no model, machine host 3c9a0d3fb1f0a8c2'
    """
    return f"{learned.describe()}, {cost.describe()}"
