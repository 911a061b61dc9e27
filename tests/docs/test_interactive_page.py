"""The commands in docs/interactive.md work as typed, at a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from tests.cli.helpers import Terminal
from tests.docs import pages
from tests.lab import Lab


def test_commands_of_the_page_work_at_a_terminal(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1)
    lab.env = pages.environment(lab)
    typed = [shlex.split(command.text)[1:] for command in pages.commands("interactive.md")]
    assert len(typed) == 4
    for words in typed:
        if words == ["attach"]:
            terminal = Terminal(lab, "shell")
            terminal.read_until("to leave it running")
            terminal.write(b"\x10\x11")
            terminal.close()
        terminal = Terminal(lab, *words)
        terminal.read_until("to leave it running")
        terminal.write(b"exit()\n" if "python" in words else b"exit\n")
        assert terminal.close() == 0, terminal.text
