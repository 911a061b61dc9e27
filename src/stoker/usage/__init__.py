"""What jobs and GPUs used: the recorder process and the charts."""
