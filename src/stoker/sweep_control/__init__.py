"""Sweeps in the queue: start, extend, stop, and the process that drives them."""
