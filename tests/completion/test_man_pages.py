"""Man pages: complete, valid roff, and found by `man` after the wheel is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

from stoker.cli.main import ALIASES, VERBS, load
from stoker.cli.man_pages import man_pages
from stoker.core.formats.command_line import all_options
from tests.completion.shells import has_shell

ROOT = Path(__file__).parents[2]


def test_every_command_and_alias_has_a_page() -> None:
    pages = man_pages()
    names = {"stoker", *(f"stoker-{name}" for name in (*VERBS, *ALIASES))}
    assert {name.removesuffix(".1") for name in pages} == names
    for alias, name in ALIASES.items():
        assert pages[f"stoker-{alias}.1"] == f".so man1/stoker-{name}.1\n"


def test_every_page_has_every_option_and_example_and_no_warning(tmp_path: Path) -> None:
    has_shell("groff")
    pages = man_pages()
    for name in VERBS:
        path = tmp_path / f"stoker-{name}.1"
        path.write_text(pages[path.name], "utf-8")
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Kutf8", "-Tascii", "-P-cbou", "-rLL=400n", str(path)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == "", name
        verb = load(name).VERB
        shown = " ".join(done.stdout.split())
        for option in all_options(verb):
            assert ", ".join(option.names.split()) in shown
        for line, _ in verb.examples:
            assert " ".join(line.split()) in shown


def test_page_of_stoker_lists_all_commands() -> None:
    text = man_pages()["stoker.1"]
    assert all(rf"\fBstoker\-{name}\fR(1)" in text for name in VERBS)


def test_wheel_installs_pages_that_man_finds_through_the_path(tmp_path: Path) -> None:
    has_shell("man")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    env = {**os.environ, "STOKER_NO_PAGE": "1"}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=source, env=env, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", symlinks=True)
    python = str(tmp_path / "venv/bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    if find_spec("pip") is None:  # an environment that uv has made
        pip = ["uv", "pip", "install", "--python", python]
    words = ["-q", "--no-index", "--no-deps", str(wheel)]
    subprocess.run([*pip, *words], env=env, check=True)
    folder = tmp_path / "venv/share/man/man1"
    assert {path.name for path in folder.iterdir()} == man_pages().keys()
    path = f"{tmp_path / 'venv/bin'}:/usr/bin:/bin"
    for page in ("stoker", "stoker-submit", "stoker-add"):
        done = subprocess.run(
            ["man", "-w", page], env={"PATH": path, "HOME": str(tmp_path)}, capture_output=True,
            text=True,
        )  # fmt: skip
        assert Path(done.stdout.strip()).parent == folder, done.stderr
