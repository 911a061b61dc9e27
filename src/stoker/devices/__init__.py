"""What the host has: GPUs, or simulated ones."""
