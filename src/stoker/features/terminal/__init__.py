"""Interactive jobs: a program on a pseudo-terminal that a user's terminal attaches to."""
