"""Devices with real processes, locks and files."""
