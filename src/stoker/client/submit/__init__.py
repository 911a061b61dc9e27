"""From options to a submitted job."""
