"""Slurm, through its own commands with explicit output formats."""
