"""How long a collective takes on a machine: a closed form, and a simulation message by message.

Both read the same checked schedules that the executor runs; neither needs JAX.
"""

from pccl_jax.simulate.calibrate import calibrate as calibrate
from pccl_jax.simulate.cost import estimate as estimate
from pccl_jax.simulate.engine import Simulation as Simulation
from pccl_jax.simulate.engine import simulate as simulate
from pccl_jax.simulate.machine import Machine as Machine
from pccl_jax.simulate.machine import Network as Network
from pccl_jax.simulate.machine import Node as Node
from pccl_jax.simulate.machine import Protocol as Protocol
from pccl_jax.simulate.machine_file import dump_machine as dump_machine
from pccl_jax.simulate.machine_file import load_machine as load_machine
from pccl_jax.simulate.machine_file import machine_names as machine_names
from pccl_jax.simulate.machine_file import parse_machine as parse_machine
from pccl_jax.simulate.sweep import Timing as Timing
from pccl_jax.simulate.sweep import groups as groups
from pccl_jax.simulate.sweep import sweep as sweep
from pccl_jax.simulate.vendor import VENDORS as VENDORS
