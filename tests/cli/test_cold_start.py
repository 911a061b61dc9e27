"""Modules that commands load later work although the start of a command takes a shortcut."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.lab import Lab


@pytest.mark.parametrize(
    "later",
    [
        "import collections.abc; collections.abc.Mapping",
        "import collections; collections.abc.Mapping; collections.OrderedDict",
        "from collections.abc import Mapping; import collections; collections.abc.Mapping",
        "import typing, sqlite3, tomllib, json, shlex",
    ],
)
def test_modules_that_use_collections_can_be_imported(later: str) -> None:
    code = f"import stoker.cli.cold_start; {later}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_commands_read_the_settings_file(lab: Lab) -> None:
    (lab.folder / "settings.toml").write_text("grace = 5\n")
    lab.ok("ls")
