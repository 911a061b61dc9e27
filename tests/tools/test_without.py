"""tools/without.py: features can be taken out."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "without.py"


@pytest.mark.parametrize("name", ["simulate", "terminal"])
def test_jobs_run_without_a_feature(name: str) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    words = [sys.executable, str(SCRIPT), name, "tests/cli/test_smoke.py"]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_of_a_feature_are_listed_with_file_and_line(tmp_path: Path) -> None:
    imports_of = runpy.run_path(str(SCRIPT))["imports_of"]
    file = tmp_path / "src" / "a.py"
    file.parent.mkdir()
    file.write_text(
        "import stoker.features.topic\n"
        "from stoker.features import top\n"
        "def f():\n"
        "    from stoker.features.top.keys import KEYS\n"
    )
    assert list(imports_of("top", tmp_path)) == [
        "src/a.py:2: imports stoker.features.top",
        "src/a.py:4: imports stoker.features.top.keys",
    ]
