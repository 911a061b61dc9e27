"""The engine: what every job needs, from the queue to its end. It imports no feature."""
