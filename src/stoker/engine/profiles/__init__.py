"""Command profiles and the estimates of duration and GPU memory taken from them."""
