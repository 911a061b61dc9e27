"""GPUs as the driver shows them."""
