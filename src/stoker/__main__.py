"""`python -m stoker` is the same as `stoker`."""

from stoker.cli.main import program

raise SystemExit(program())
