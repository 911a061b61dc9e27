"""The bundle of the web UI: small, type-checked, self-contained, and rebuilt when out of date."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from hatch_build import is_fresh, source_hash
from tests.web_ui.conftest import FRONTEND, ROOT

BUDGET = 140_000


def test_sources_pass_the_strict_type_check(node: str, packages: Path) -> None:
    """The types of the HTTP API are generated from the OpenAPI document of this version."""
    compiler = str(packages / "node_modules" / "typescript" / "bin" / "tsc")
    env = {**os.environ, "STOKER_PYTHON": sys.executable}
    for command in ([node, "types.mjs"], [node, compiler, "--noEmit"]):
        done = subprocess.run(command, cwd=packages, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_unit_tests_of_the_frontend_pass(node: str, packages: Path) -> None:
    done = subprocess.run([node, "test.mjs"], cwd=packages, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_bundle_stays_within_its_size_budget(bundle: Path) -> None:
    files = [*bundle.glob("assets/*.js"), *bundle.glob("assets/*.css")]
    assert len(files) == 2
    assert sum(len(gzip.compress(file.read_bytes(), 9)) for file in files) < BUDGET


def test_bundle_loads_nothing_from_other_hosts(bundle: Path) -> None:
    """No address of another host, no script or style inside the markup."""
    text = (bundle / "index.html").read_text()
    assert (
        "<style" not in text
        and "style=" not in text
        and not re.search(r"<script(?![^>]*src=)", text)
    )
    for file in (bundle / "index.html", *bundle.glob("assets/*.css"), *bundle.glob("assets/*.js")):
        found = set(re.findall(r"https?://[\w.-]+", file.read_text()))
        assert found <= {"http://www.w3.org"}, file.name  # the namespace of SVG, never fetched
    assert "dangerouslySetInnerHTML" not in "".join(
        file.read_text() for file in (FRONTEND / "src").rglob("*.ts*")
    )


def test_bundle_contains_the_licenses_of_its_packages(bundle: Path) -> None:
    assert "preact" in (bundle / "assets" / "notices.txt").read_text()


def test_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (FRONTEND / "package-lock.json").read_text()


def test_bundle_of_changed_sources_is_out_of_date(bundle: Path, tmp_path: Path) -> None:
    assert is_fresh(ROOT)
    copy = tmp_path / "copy"
    shutil.copytree(FRONTEND, copy / "frontend", ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(bundle, copy / "src/stoker/web/static")
    assert is_fresh(copy)
    assert source_hash(copy) == source_hash(ROOT)
    (copy / "frontend/src/main.tsx").write_text("// other")
    assert not is_fresh(copy)
    shutil.rmtree(copy / "frontend")
    assert is_fresh(copy), "without sources, the existing bundle is used"
