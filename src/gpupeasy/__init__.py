"""The imports of GPUPeasy, run by Stoker (see stoker.compat.gpupeasy)."""
