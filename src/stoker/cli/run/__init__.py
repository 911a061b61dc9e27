"""The parts of `stoker run`."""
