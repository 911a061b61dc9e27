"""Sweeps: one command, many values. Everything here is pure except `search/`, which runs a process.

command line, TOML, YAML, JSON  ->  SweepSpec  ->  points  ->  rendered commands, identities
"""
