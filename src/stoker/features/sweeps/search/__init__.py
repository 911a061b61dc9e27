"""The adaptive search: its process and its client."""
