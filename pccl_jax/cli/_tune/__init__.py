"""The parts of ``pccl-jax tune``, in the order in which they come into play.

sweep       what is measured, by the machinery of ``pccl-jax bench``
sources     samples: of that, or of files
report      how good the model is, in words and tables
decisions   the picture of what it chooses
"""
