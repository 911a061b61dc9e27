"""Benchmarks of dispatch, submission and listing, compared with other tools. See README.md."""
