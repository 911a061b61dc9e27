"""Sweeps: spaces, methods, templates, files and the searcher."""
