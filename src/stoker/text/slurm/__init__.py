"""Options and variables of Slurm."""
