"""Starting, extending and stopping sweeps, and the driver of adaptive ones."""
