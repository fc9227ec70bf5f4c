"""The parts of ``pccl-jax tune``, in the order in which they come into play.

sweep       what is measured, by the machinery of ``pccl-jax bench``
sources     samples: of that, of files, or of a simulated machine
machine     the cost model's figures, from the same samples
report      how good the model is, in words and tables
decisions   the picture of what it chooses
"""
