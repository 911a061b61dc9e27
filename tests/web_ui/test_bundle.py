"""The page as it is built: small, strict, by itself, and recognised when it is stale."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hatch_build import is_fresh, source_hash
from tests.web_ui.conftest import FRONTEND, ROOT

pytestmark = pytest.mark.slow
BUDGET = 60_000


def test_types_are_strict(node: str, packages: Path) -> None:
    compiler = packages / "node_modules" / "typescript" / "bin" / "tsc"
    done = subprocess.run(
        [node, compiler, "--noEmit"], cwd=packages, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_what_needs_no_browser(node: str, packages: Path) -> None:
    done = subprocess.run([node, "test.mjs"], cwd=packages, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_size(page: Path) -> None:
    files = [*page.glob("assets/*.js"), *page.glob("assets/*.css")]
    assert len(files) == 2
    assert sum(len(gzip.compress(file.read_bytes(), 9)) for file in files) < BUDGET


def test_needs_nothing_from_elsewhere(page: Path) -> None:
    """No address of another host, no script or style inside the markup."""
    text = (page / "index.html").read_text()
    assert (
        "<style" not in text
        and "style=" not in text
        and not re.search(r"<script(?![^>]*src=)", text)
    )
    for file in (page / "index.html", *page.glob("assets/*.css"), *page.glob("assets/*.js")):
        found = set(re.findall(r"https?://[\w.-]+", file.read_text()))
        assert found <= {"http://www.w3.org"}, file.name  # the name of SVG, never fetched
    assert "dangerouslySetInnerHTML" not in "".join(
        file.read_text() for file in (FRONTEND / "src").rglob("*.ts*")
    )


def test_licences_go_with_it(page: Path) -> None:
    assert "preact" in (page / "assets" / "notices.txt").read_text()


def test_lock_names_no_registry() -> None:
    assert '"resolved"' not in (FRONTEND / "package-lock.json").read_text()


def test_a_stale_bundle_is_recognised(page: Path, tmp_path: Path) -> None:
    assert is_fresh(ROOT)
    copy = tmp_path / "copy"
    shutil.copytree(FRONTEND, copy / "frontend", ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(page, copy / "src/stoker/web/static")
    assert is_fresh(copy)
    assert source_hash(copy) == source_hash(ROOT)
    (copy / "frontend/src/main.tsx").write_text("// other")
    assert not is_fresh(copy)
    shutil.rmtree(copy / "frontend")
    assert is_fresh(copy), "without sources, what is there is taken"
