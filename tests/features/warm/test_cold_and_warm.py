"""A program behaves the same after a cold and after a warm start: output, exit code, signal."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.features.warm.helpers import notes, outcomes, write_files, write_modules
from tests.features.warm.programs import COMMANDS, SCRIPTS
from tests.lab import Lab

# Programs that a fork cannot run, and one whose flags hide the module that it should import.
_COLD = {"missing_script", "folder_as_program", "zip_as_program", "shadowed_module", "isolated"}
_RELEASE_PYTHONS = ("3.10", "3.12", "3.13", "3.14")
_OTHER_PYTHONS = (
    "3.9",
    *(pytest.param(version, marks=pytest.mark.release) for version in _RELEASE_PYTHONS),
)
_FOR_OTHERS = (
    "arguments", "main_module", "path", "environment", "exit_text", "exception", "syntax_error",
    "interrupt", "own_excepthook", "unflushed_output", "streams", "at_exit", "descriptors",
    "threads", "multiprocessing_spawn", "multiprocessing_fork", "heavy_module", "finalizer",
)  # fmt: skip
_COMMANDS_FOR_OTHERS = ("module", "code", "failing_module", "failing_function_of_code")


def _has_spaces(words: list[str]) -> bool:
    return any(" " in word for word in words)


Results = dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]


class Comparison:
    """Runs programs cold and warm in one lab."""

    def __init__(self, folder: Path, python: str) -> None:
        self._python = python
        self.lab = Lab(folder, devices=4)
        self.folder = folder
        write_files(folder)
        for name, source in SCRIPTS.items():
            (folder / f"run_{name}.py").write_text(source)
        self.lab.env["PYTHONPATH"] = str(write_modules(folder))
        self.lab.env["PYTHONDONTWRITEBYTECODE"] = "1"  # so that both find the same files
        self._jobs: dict[str, tuple[int, int]] = {}

    def submit(self, commands: dict[str, list[str]]) -> None:
        """Queue each command twice; those that need no quotes as lines of one file."""
        lines = []
        plain = {name: words for name, words in commands.items() if not _has_spaces(words)}
        for words in plain.values():
            line = " ".join([self._python, *words]).replace("FOLDER", str(self.folder))
            lines += [line, f"{line}  #stoker --warm=heavy"]
        made = self.lab.ok("submit", "-q", "--file", "-", input="\n".join(lines))
        ids = iter(map(int, made.split()))
        self._jobs |= {name: (next(ids), next(ids)) for name in plain}
        for name in commands.keys() - plain.keys():
            words = ["--", self._python, *commands[name]]
            self._jobs[name] = (self.lab.submit(*words), self.lab.submit("--warm=heavy", *words))

    def results(self) -> Results:
        self.lab.wait()
        found = outcomes(self.lab)
        return {name: (found[cold], found[warm]) for name, (cold, warm) in self._jobs.items()}

    def notes(self, name: str) -> list[str]:
        return notes(self.lab, self._jobs[name][1])


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    made = Comparison(tmp_path_factory.mktemp("programs"), sys.executable)
    (made.folder / "unreadable.py").chmod(0)
    made.submit({name: [f"run_{name}.py", "--number", "1"] for name in SCRIPTS} | COMMANDS)
    yield made
    made.lab.close()


@pytest.fixture(scope="module")
def results(comparison: Comparison) -> Results:
    return comparison.results()


@pytest.mark.parametrize("name", [*SCRIPTS, *COMMANDS])
def test_warm_start_behaves_like_a_cold_start_of(
    comparison: Comparison, results: Results, name: str
) -> None:
    cold, warm = results[name]
    assert _without_imports(_comparable(warm)) == _without_imports(_comparable(cold))
    if name == "no_permission" and os.geteuid() == 0:
        return  # root may read it
    assert bool(comparison.notes(name)) == (name in _COLD), comparison.notes(name)


def _comparable(found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without the numbers that differ between any two processes, and without slow helpers."""
    log = re.sub(r"stoker: the command has exited; .*\n", "", found[-1])
    return (*found[:-1], re.sub(r"0x[0-9a-f]+", "?", log))


def _without_imports(found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without what the module `heavy` prints, also where a program does not import it."""
    return (*found[:-1], found[-1].replace("heavy was imported\n", ""))


def test_output_of_imports_is_in_the_log_of_each_warm_job(results: Results) -> None:
    cold, warm = results["heavy_module"]
    assert cold[-1].count("heavy was imported") == warm[-1].count("heavy was imported") == 1


@pytest.mark.parametrize("version", _OTHER_PYTHONS)
def test_warm_start_behaves_like_a_cold_start_in_other_pythons(
    tmp_path: Path, version: str
) -> None:
    python = _find_python(version)
    if python is None:
        pytest.skip(f"needs Python {version}")
    made = Comparison(tmp_path, python)
    try:
        scripts = {name: [f"run_{name}.py", "1"] for name in _FOR_OTHERS}
        made.submit(scripts | {name: COMMANDS[name] for name in _COMMANDS_FOR_OTHERS})
        for name, (cold, warm) in made.results().items():
            assert _without_imports(_comparable(warm)) == _without_imports(_comparable(cold)), name
            assert made.notes(name) == [], name
    finally:
        made.lab.close()


def _find_python(version: str) -> str | None:
    """The path of an interpreter of this version that works."""
    installed = Path.home().glob(f".pyenv/versions/{version}*/bin/python{version}")
    for found in (*map(str, installed), shutil.which(f"python{version}")):
        if found is not None:
            asked = subprocess.run([found, "-c", "pass"], capture_output=True)
            if asked.returncode == 0:
                return found
    return None
