"""GPUs of the host (real or simulated) and the leases on them."""
