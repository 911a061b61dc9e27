"""GPUPeasy's own names, on Stoker's engine: see stoker.compat.gpupeasy."""
