"""Stoker keeps every GPU fed. The public Python names live here and load on first use."""

__version__ = "0.1.0"
