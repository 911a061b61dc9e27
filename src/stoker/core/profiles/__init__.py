"""What Stoker learned about commands: duration, memory, amount of work."""
