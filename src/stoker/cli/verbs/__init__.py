"""One file for each command, and parts of `log -f`, `--watch` and `sweep`."""
