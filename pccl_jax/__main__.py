"""``python -m pccl_jax``: the same as the ``pccl-jax`` command."""

import sys

from pccl_jax.cli import main

sys.exit(main())
