"""The host-wide right to use a GPU, held by kernel locks."""
