"""State that follows the queue: waiting, watching, logs."""
