"""Pages that are printed from the code are the ones that are there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from stoker.cli.main import ALIASES, VERBS

DOCS = Path(__file__).parents[2] / "docs"


def generate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, folder / "generate.py", *words], capture_output=True, text=True
    )


def test_command_reference_is_current() -> None:
    done = generate(DOCS, "--check", "commands.md")
    assert done.returncode == 0, done.stderr


def test_command_reference_has_every_command_and_alias() -> None:
    page = (DOCS / "commands.md").read_text("utf-8")
    assert [name for name in VERBS if f"\n## {name}\n" not in page] == []
    assert [alias for alias in ALIASES if f"`stoker {alias}`" not in page] == []


def test_stale_page_is_noticed_and_mended(tmp_path: Path) -> None:
    shutil.copy(DOCS / "generate.py", tmp_path)
    missing = generate(tmp_path, "--check")
    assert missing.returncode == 1
    assert "error: docs/states.md is stale" in missing.stderr
    assert list(tmp_path.glob("*.md")) == []

    assert generate(tmp_path).returncode == 0
    assert generate(tmp_path, "--check").returncode == 0

    page = tmp_path / "states.md"
    page.write_text(page.read_text("utf-8") + "more\n", "utf-8")
    assert generate(tmp_path, "--check", "commands.md").returncode == 0
    assert generate(tmp_path, "--check").returncode == 1


def test_unknown_page_is_refused() -> None:
    done = generate(DOCS, "--check", "nonsense.md")
    assert done.returncode == 2
    assert "`nonsense.md` is none of states.md, commands.md" in done.stderr
