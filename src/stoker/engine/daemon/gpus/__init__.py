"""The daemon's view of the GPUs."""
