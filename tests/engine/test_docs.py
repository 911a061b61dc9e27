"""Generated pages are current, and other pages name only files and tests that exist."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.cli.main import ALIASES, VERBS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md")),
    *sorted(DOCS.rglob("*.md")),
]


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


def test_stale_page_is_reported_and_rewritten(tmp_path: Path) -> None:
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
    assert "`nonsense.md` is not one of states.md, commands.md" in done.stderr


def missing_tests(text: str) -> list[str]:
    """The names in `text`, of the form `folder/test_file.py::test_name`, that do not exist."""
    missing = []
    for file, name in re.findall(r"`([\w/]+\.py)::(test_\w+)`", text):
        path = ROOT / "tests" / file
        tree = ast.parse(path.read_text("utf-8")) if path.exists() else ast.Module([], [])
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{file}::{name}")
    return missing


def test_every_test_in_the_fault_matrix_exists() -> None:
    text = (DOCS / "faults.md").read_text("utf-8")
    assert missing_tests(text) == []
    # Every row names a test, from the first section to the one about faults without a test.
    sections = text.partition("\n## ")[2].partition("\n## Without")[0]
    rows = [line for line in sections.splitlines() if line.startswith("| ")]
    assert len(rows) > 20
    assert [row for row in rows if "::test_" not in row and not row.startswith("| # |")] == []


def test_missing_test_in_the_fault_matrix_is_found() -> None:
    text = "`engine/test_docs.py::test_no_such_test`, `core/no_file.py::test_x`, "
    text += "`engine/test_docs.py::test_unknown_page_is_refused`"
    assert missing_tests(text) == [
        "engine/test_docs.py::test_no_such_test",
        "core/no_file.py::test_x",
    ]


def missing_files(page: Path) -> list[str]:
    """Relative links, and paths of modules and tests in backquotes, that do not exist."""
    text = page.read_text("utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    missing = [link for link in links if not (page.parent / link).exists()]
    folders = "|".join(item.name for item in (ROOT / "src" / "stoker").iterdir() if item.is_dir())
    paths = re.findall(rf"`((?:(?:{folders})/[\w/]+\.py)|(?:tests/[\w/]+(?:\.py)?))`", text)
    bases = (ROOT, ROOT / "src" / "stoker")
    missing += [path for path in paths if not any((base / path).exists() for base in bases)]
    return missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_links_to_files_that_exist(page: Path) -> None:
    assert missing_files(page) == []


def test_dead_links_and_paths_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](gone.md) [b](page.md#x) `cli/gone.py` `cli/main.py` `tests/gone`")
    assert missing_files(page) == ["gone.md", "cli/gone.py", "tests/gone"]
