"""What the compatible commands share: running jobs in the foreground."""
