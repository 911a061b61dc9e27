"""The pure core: no I/O, milliseconds."""
