"""Progress that a job prints or logs."""
