"""The parts of ``pccl-jax simulate``."""
