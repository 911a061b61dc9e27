"""Logs as lines for the terminal and the browser."""
