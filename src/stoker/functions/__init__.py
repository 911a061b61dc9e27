"""Python functions as jobs: what a call is on disk, and the process that makes it."""
