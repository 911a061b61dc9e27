"""Doors for users of other schedulers: their commands, files and imports on Stoker's engine."""
