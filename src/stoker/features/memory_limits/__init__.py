"""Limits of host memory and cores by cgroups."""
