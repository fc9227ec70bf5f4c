"""Schedules: what every rank does, as data, checked before anything can run it.

An algorithm is a module of its own (``ring``, ``recursive``, ``hierarchical``, ``latency``)
that registers itself; import order is the order of :func:`names`.
"""

from pccl_jax.schedule import ring as ring  # isort: skip
from pccl_jax.schedule import recursive as recursive  # isort: skip
from pccl_jax.schedule import hierarchical as hierarchical  # isort: skip
from pccl_jax.schedule import latency as latency  # isort: skip
from pccl_jax.schedule.checker import check as check
from pccl_jax.schedule.draw import render as render
from pccl_jax.schedule.encode import PROGRAM_VERSION as PROGRAM_VERSION
from pccl_jax.schedule.encode import decode as decode
from pccl_jax.schedule.encode import encode as encode
from pccl_jax.schedule.ir import Action as Action
from pccl_jax.schedule.ir import Index as Index
from pccl_jax.schedule.ir import Inter as Inter
from pccl_jax.schedule.ir import Intra as Intra
from pccl_jax.schedule.ir import Schedule as Schedule
from pccl_jax.schedule.ir import Step as Step
from pccl_jax.schedule.ir import Vendor as Vendor
from pccl_jax.schedule.registry import build as build
from pccl_jax.schedule.registry import draft as draft
from pccl_jax.schedule.registry import from_all_gather as from_all_gather
from pccl_jax.schedule.registry import is_hierarchical as is_hierarchical
from pccl_jax.schedule.registry import names as names
from pccl_jax.schedule.registry import register as register
from pccl_jax.schedule.registry import supports as supports
from pccl_jax.schedule.scratch import gpu_scratch_bytes as gpu_scratch_bytes
from pccl_jax.schedule.transpose import transpose as transpose
