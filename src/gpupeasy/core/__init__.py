"""`gpupeasy.core.server`, as start scripts import it."""
