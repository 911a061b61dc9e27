"""Metrics that jobs report."""
