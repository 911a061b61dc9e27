"""Sweeps: one command, many values. Pure but for `search.py`, which talks to a child process.

words, TOML, YAML, JSON  ->  SweepSpec  ->  points  ->  rendered commands, identities
"""
