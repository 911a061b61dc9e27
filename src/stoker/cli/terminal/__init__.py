"""Interactive jobs at a user's terminal: start one, wait for its GPUs, attach to it."""
