"""Which algorithm a call takes, decided from static facts while the program is lowered."""

from pccl_jax.dispatch.choice import Choice, Request, choices, record
from pccl_jax.dispatch.cost import predicted_s
from pccl_jax.dispatch.policy import describe
from pccl_jax.dispatch.select import VENDOR_ALGORITHMS, check_algorithm, select, serves
from pccl_jax.dispatch.vendor import mpi_obstacle

__all__ = [
    "VENDOR_ALGORITHMS",
    "Choice",
    "Request",
    "check_algorithm",
    "choices",
    "describe",
    "mpi_obstacle",
    "predicted_s",
    "record",
    "select",
    "serves",
]
