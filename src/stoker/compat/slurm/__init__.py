"""`srun` inside jobs that were submitted from #SBATCH scripts."""
