"""Programs compiled for GPUs that are not there: what XLA makes of our calls."""
