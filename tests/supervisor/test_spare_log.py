"""Log files that are made ahead of time."""

from __future__ import annotations

import os
from pathlib import Path

from stoker.supervisor.spare_log import SpareLog


def write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())
    os.close(descriptor)


def test_a_log_made_ahead_gets_its_name_when_it_is_needed(tmp_path: Path) -> None:
    logs = SpareLog()
    write(logs.open(f"{tmp_path}/a/1.log"), "first")
    logs.prepare()
    write(logs.open(f"{tmp_path}/a/2.log"), "second")
    logs.prepare()
    write(logs.open(f"{tmp_path}/b/3.log"), "third")  # the first of another folder
    logs.close()
    found = {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.glob("*/*")}
    assert found == {"a/1.log": "first", "a/2.log": "second", "b/3.log": "third"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.glob("*/*"))


def test_a_log_that_is_there_already_is_added_to(tmp_path: Path) -> None:
    logs = SpareLog()
    write(logs.open(f"{tmp_path}/1.log"), "one ")
    logs.prepare()
    write(logs.open(f"{tmp_path}/1.log"), "two")
    logs.close()
    assert (tmp_path / "1.log").read_text() == "one two"
    assert list(tmp_path.iterdir()) == [tmp_path / "1.log"]


def test_a_spare_log_that_somebody_removed_does_no_harm(tmp_path: Path) -> None:
    logs = SpareLog()
    write(logs.open(f"{tmp_path}/1.log"), "one")
    logs.prepare()
    for path in tmp_path.glob(".spare*"):
        path.unlink()
    write(logs.open(f"{tmp_path}/2.log"), "two")
    assert (tmp_path / "2.log").read_text() == "two"
    logs.close()
