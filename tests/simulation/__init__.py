"""A seeded simulator: the real loop, recovery and store on simulated time, processes and faults.

One seed is one history. `python -m tests.simulation SEED` prints it.
"""
