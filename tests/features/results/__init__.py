"""Results and metrics: pure code without I/O."""
