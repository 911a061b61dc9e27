"""A seeded simulator: the real loop, recovery and store with virtual time, processes and faults.

Each seed gives one history. `python -m tests.simulation SEED` prints it.
"""
