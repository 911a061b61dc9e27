"""GPUs as the driver reports them."""
