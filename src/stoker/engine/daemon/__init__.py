"""Observe, decide, act: the loop, and the background process that hosts it."""
