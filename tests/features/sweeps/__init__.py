"""Sweeps: spaces, methods, templates, files and the search process."""
