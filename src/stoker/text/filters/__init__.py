"""The language of `--where`."""
