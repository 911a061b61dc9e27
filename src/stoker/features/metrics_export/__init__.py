"""Metrics of the queue for Prometheus."""
