"""Record behaves like typing.NamedTuple and imports nothing heavy."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from stoker.record import Record


class Ours(Record):
    """A point."""

    x: int
    y: int = 2
    tags: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return abs(self.x) + abs(self.y)

    def moved(self, by: int) -> Ours:
        return self._replace(x=self.x + by)

    @classmethod
    def origin(cls) -> Ours:
        return cls(0, 0)


class Theirs(NamedTuple):
    """A point."""

    x: int
    y: int = 2
    tags: tuple[str, ...] = ()


class Empty(Record):
    pass


def test_record_is_a_tuple() -> None:
    assert isinstance(Ours(1), tuple)
    assert Ours(1) == (1, 2, ()) == Theirs(1)
    x, y, _ = Ours(3, 4)
    assert (x, y) == (3, 4)
    assert hash(Ours(1)) == hash(Theirs(1))


def test_record_has_the_fields_and_defaults_of_a_named_tuple() -> None:
    assert Ours._fields == Theirs._fields
    assert Ours._field_defaults == Theirs._field_defaults
    assert repr(Ours(1)) == repr(Theirs(1)).replace("Theirs", "Ours")
    assert Ours(1)._asdict() == Theirs(1)._asdict()
    assert Ours._make((1, 2, ())) == Ours(1)
    assert (Ours.__doc__, Ours.__name__, Ours.__module__) == ("A point.", "Ours", __name__)
    assert Ours.__qualname__ == "Ours"


def test_record_takes_keywords_and_refuses_unknown_ones() -> None:
    assert Ours(x=1, y=5).y == 5
    for make in (Ours, Theirs):
        with pytest.raises(TypeError):
            make()  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            make(1, z=2)  # type: ignore[call-arg]


def test_record_is_frozen_and_replaced() -> None:
    point = Ours(1)
    with pytest.raises(AttributeError):
        point.x = 5  # type: ignore[misc]
    assert point._replace(y=9) == (1, 9, ())
    with pytest.raises((TypeError, ValueError)):  # which one depends on the version of Python
        point._replace(z=1)  # type: ignore[call-arg]


def test_record_has_methods_and_properties() -> None:
    assert Ours(3, -4).size == 7
    assert Ours(1).moved(2) == Ours(3)
    assert type(Ours(1).moved(2)) is Ours
    assert Ours.origin() == (0, 0, ())


def test_record_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(Ours(1)))
    assert copy == Ours(1) and type(copy) is Ours


def test_record_without_fields_is_an_empty_tuple() -> None:
    assert Empty() == ()


# -- what `stoker submit` loads ----------------------------------------------------------------

HEAVY = {
    "_json", "annotationlib", "argparse", "ast", "asyncio", "concurrent", "concurrent.futures",
    "configparser", "ctypes", "dataclasses", "dis", "email", "enum", "hashlib", "http", "inspect",
    "json", "logging", "multiprocessing", "pathlib", "pickle", "platform", "random", "re",
    "secrets", "selectors", "shlex", "shutil", "signal", "socket", "ssl", "string", "subprocess",
    "tempfile", "textwrap", "threading", "tomllib", "traceback", "typing", "urllib", "uuid",
}  # fmt: skip


def loaded_by(code: str, folder: Path) -> set[str]:
    """The modules that a fresh interpreter has after `code` and had not before."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    env = {
        "STOKER_STATE_DIR": str(folder / "state"),
        "STOKER_SETTINGS": str(folder / "settings.toml"),
        "STOKER_DEVICES": "2",
        "SHELL": "/bin/sh",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "module", ["stoker.client.queue", "stoker.cli.main", "stoker.cli.verbs.submit"]
)
def test_modules_of_a_submit_import_nothing_heavy(module: str, tmp_path: Path) -> None:
    loaded = loaded_by(f"import {module}", tmp_path)
    assert module in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("is_repository", [False, True])
def test_submit_loads_nothing_heavy(tmp_path: Path, is_repository: bool) -> None:
    if is_repository:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
    code = "from stoker.cli.main import main\nmain(['submit', '--hold', 'echo', 'a'])"
    loaded = loaded_by(code, tmp_path)
    assert "stoker.engine.store.submit" in loaded
    assert ("stoker.features.code.state_reader" in loaded) == is_repository
    assert loaded & HEAVY == set()


def test_printable_does_not_need_regular_expressions(tmp_path: Path) -> None:
    assert loaded_by("import stoker.text.terminal", tmp_path) & HEAVY == set()
