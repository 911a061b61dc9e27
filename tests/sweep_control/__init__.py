"""Sweeps as lasting things, with the real daemon."""
