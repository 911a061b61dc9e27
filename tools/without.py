"""Run the tests in a copy of this tree without one feature.

    python tools/without.py NAME [--short | TEST...]

The copy has neither `src/stoker/features/NAME` nor its tests nor its rows in the table of features
(src/stoker/features/__init__.py). Runs the tests of the engine and of the other features, or with
`--short` a selection of them, or the tests that are given. If they fail, prints which files still
import the feature. Returns the exit code of pytest.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHORT = ("tests/engine/store", "tests/text", "tests/cli/test_smoke.py", "tests/cli/test_submit.py")
FULL = ("tests/engine", "tests/text", "tests/features", "tests/cli")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name")
    parser.add_argument("--short", action="store_true", help="a short selection of tests")
    parser.add_argument("tests", nargs="*")
    given = parser.parse_args()
    if not (ROOT / "src/stoker/features" / given.name / "__init__.py").exists():
        parser.error(f"there is no feature `{given.name}`")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "stoker"
        copy_without(given.name, copy)
        tests = given.tests or (SHORT if given.short else FULL)
        env = {**os.environ, "PYTHONPATH": str(copy / "src")}
        words = [sys.executable, "-m", "pytest", "-q", "-n", "2", *tests]
        code = subprocess.run(words, cwd=copy, env=env).returncode
        if code:
            for line in imports_of(given.name, copy):
                print(line)
    return code


def copy_without(name: str, copy: Path) -> None:
    """Copy the files of this tree that git does not ignore, without a feature."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    removed = (f"src/stoker/features/{name}/", f"tests/features/{name}/")
    for path in filter(None, listed.split("\0")):
        if not path.startswith(removed) and (ROOT / path).is_file():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, copy / path)
    table = copy / "src/stoker/features/__init__.py"
    tree = ast.parse(table.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            kept = [
                (key, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if not _is_of(name, value)
            ]
            node.keys, node.values = [key for key, _ in kept], [value for _, value in kept]
        elif isinstance(node, ast.Tuple):
            node.elts = [one for one in node.elts if not _is_of(name, one)]
    table.write_text(ast.unparse(tree))


def _is_of(name: str, row: ast.expr) -> bool:
    """Whether a row is of a feature: `NAME.module:function`, or a tuple that begins with NAME."""
    if isinstance(row, ast.Tuple) and row.elts:
        return isinstance(row.elts[0], ast.Constant) and row.elts[0].value == name
    text = row.value if isinstance(row, ast.Constant) else None
    return isinstance(text, str) and text.startswith((f"{name}.", f"stoker.features.{name}."))


def imports_of(name: str, root: Path) -> Iterator[str]:
    """`path:line: module` of each import of a feature."""
    removed = (f"stoker.features.{name}", f"tests.features.{name}")
    for path in sorted([*root.glob("src/**/*.py"), *root.glob("tests/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_bytes())):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
            for module in modules:
                if f"{module}.".startswith(tuple(f"{one}." for one in removed)):
                    lineno = getattr(node, "lineno", 0)
                    yield f"{path.relative_to(root)}:{lineno}: imports {module}"
                    break


if __name__ == "__main__":
    sys.exit(main())
