"""Processes that the daemon starts beside its loop."""
