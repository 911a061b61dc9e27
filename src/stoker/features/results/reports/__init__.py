"""Metrics that jobs log: event files, summaries, and when they are read."""
