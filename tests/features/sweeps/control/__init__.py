"""Sweeps with the real daemon."""
