"""What commands, JSON and the web UI show of jobs and GPUs."""
