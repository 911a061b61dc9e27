"""Run the commands of a page in docs/ as a user would type them.

Commands are the lines that begin with `$ ` in ```console blocks. They run in order, in one folder
with one queue, and must succeed; a command whose output in the page contains `error:` must fail
with that output. `...` at the end of a line of output stands for any text. The lines of a
here-document belong to its command.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.lab import Lab

ROOT = Path(__file__).parents[2]


class Command:
    """A command of a page, and the output that the page shows for it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.output: list[str] = []

    @property
    def must_fail(self) -> bool:
        return any(line.startswith("error:") for line in self.output)


def commands(page: str) -> list[Command]:
    """The commands of docs/PAGE."""
    found: list[Command] = []
    for block in re.findall(
        r"^```console\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S
    ):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Command(line[2:]))
            elif found[-1].text.endswith("\\") or _is_in_here_document(found[-1].text):
                found[-1].text += f"\n{line}"
            else:
                found[-1].output.append(line)
    return found


def _is_in_here_document(text: str) -> bool:
    """Whether a command such as `cat > FILE <<'END'` has not reached its last line."""
    first, *lines = text.split("\n")
    end = re.search(r"<<'?(\w+)'?$", first)
    return end is not None and end[1] not in lines


def environment(lab: Lab) -> dict[str, str]:
    """The environment of a user who has installed Stoker; few users set STOKER_SETTINGS."""
    programs = lab.folder / "bin"
    if not programs.exists():
        programs.mkdir()
        for name, module in (("stoker", "-m stoker "), ("python", "")):
            path = programs / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
            path.chmod(0o755)
    env = {**lab.env, "XDG_CONFIG_HOME": str(lab.folder / "config")}
    del env["STOKER_SETTINGS"]
    return {**env, "PATH": f"{programs}:{os.environ['PATH']}"}


def run(lab: Lab, page: str, folder: Path | None = None, **env: str) -> None:
    """Run all commands of a page."""
    found = commands(page)
    assert found, f"{page} has no commands"
    for command in found:
        done = subprocess.run(
            ["bash", "-c", command.text],
            env={**environment(lab), **env},
            cwd=folder or lab.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == command.must_fail, f"{command.text}\n{said}"
        if command.must_fail:
            for line in command.output:
                assert _shows(said, line), f"{command.text}: no `{line}` in\n{said}"


def _shows(said: str, line: str) -> bool:
    pattern = re.escape(line.removesuffix("...")) + (".*" if line.endswith("...") else "")
    return re.search(f"^{pattern}$", said, re.MULTILINE) is not None
