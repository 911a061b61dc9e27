"""Benchmarks of dispatch, submitting and listing, beside other tools. See README.md."""
