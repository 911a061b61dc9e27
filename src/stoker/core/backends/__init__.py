"""What backends can do, which requests they can satisfy, and how jobs are divided into chunks."""
