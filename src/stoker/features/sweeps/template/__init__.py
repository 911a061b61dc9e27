"""Commands with placeholders for a trial's values."""
