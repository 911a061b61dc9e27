"""Commands close their connections; SQLite connections are checked by Python 3.13 and later."""

from __future__ import annotations

import sys

from tests.lab import Lab

COMMANDS = (
    "", "ls", "show 1", "why 1", "log 1", "gpus", "daemon status", "wait -q 1", "edit 2 --gpus 0",
    "priority 3 2", "tag 2 +x", "sweep ls", "results 1", "submit --hold true", "clean --older 7d",
    "run --log-dir logs -- true", "doctor", "rerun 1 --hold", "results nothing", "log -f 1",
)  # fmt: skip


def test_commands_close_their_connections(lab: Lab) -> None:
    lab.submit("true")
    lab.submit("--hold", "true")
    lab.wait(1)
    lab.command = [sys.executable, "-X", "dev", "-m", "stoker"]
    for words in COMMANDS:
        done = lab.run(*words.split())
        assert done.returncode == (1 if words == "results nothing" else 0), (words, done.stderr)
        assert "ResourceWarning" not in done.stderr, words
