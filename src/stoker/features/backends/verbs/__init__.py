"""The command `stoker backend`."""
