"""Python functions as jobs: the files of a call, and the process that executes it."""
