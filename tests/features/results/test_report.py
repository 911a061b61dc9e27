"""`stoker report` with a real sweep: its content, its files, and mistakes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helpers import Terminal
from tests.lab import Lab

TRIAL = "test {lr} != 9 || exit 3; for i in 3 2 1; do echo stoker: loss=$i.{seed} step=$i; done"


@pytest.fixture
def swept(new_lab: Callable[..., Lab]) -> Lab:
    lab = new_lab(devices=0, STOKER_CPU_SLOTS="4")
    lab.ok("sweep", "--name", "lrs", "--gpus", "0", "--metric", "loss", TRIAL, "lr=1,9", "seed=1,2")
    lab.ok("wait", "sweep:lrs", "--ignore-failures")
    lab.ok("note", "lrs", "Does **lr** matter?")
    return lab


def test_report_has_results_and_commands_that_work(swept: Lab) -> None:
    text = swept.ok("report", "lrs")
    assert text.startswith("# Sweep `lrs`\n\n**finished**, 4 trials, 2 done, 2 failed\n")
    assert "> Does **lr** matter?\n" in text
    assert "- 2 `exit 3` (`stoker log" in text
    assert "| `lr` | n | mean | sd | min | max | missing |\n" in text
    assert "| 1 | 2 | 1.15 | " in text  # as `stoker results lrs --group lr`
    assert "```text\nloss over steps\n" in text
    (again,) = [line for line in text.split("\n") if line.startswith("$ cd ") and " sweep " in line]
    words = shlex.split(again)
    done = swept.run(*words[words.index("sweep") :], "--dry-run", cwd=Path(words[2]))
    assert "all 4 trials already exist in sweep lrs" in done.stdout + done.stderr
    (same,) = [line for line in text.split("\n") if line.startswith("$ stoker rerun --same-code")]
    best = json.loads(swept.ok("results", "lrs", "--sort", "loss", "--json"))["rows"][0]
    assert same.split()[-1] == str(best["job"])
    shown = json.loads(swept.ok("report", "lrs", "--format", "html", "--json"))
    assert shown["format"] == "html"
    assert shown["report"].count("data:image/svg+xml") == 3
    grouped = swept.ok("report", "lrs", "--group", "seed", "--top", "1", "--smooth", "0.5")
    assert "Over lr: loss of trials that are equal in seed." in grouped


def test_files_are_replaced_only_with_consent_and_mistakes_have_a_hint(
    swept: Lab, tmp_path: Path
) -> None:
    path = tmp_path / "report.md"
    swept.ok("report", "lrs", "-o", str(path))
    text = path.read_text()
    images = sorted(one.name for one in tmp_path.glob("report-*.png"))
    assert all(f"(<{name}>)" in text for name in images)
    assert images or "```text" in text  # matplotlib is optional
    path.write_text("mine")
    done = swept.run("report", "lrs", "-o", str(path))
    assert done.returncode == 1
    assert done.stderr == f"error: `{path}` exists already\nhint: to replace it, use --force\n"
    terminal = Terminal(swept, "report", "lrs", "-o", str(path))
    terminal.read_until("[y/N] ")
    terminal.write(b"n\n")
    assert terminal.close() == 1
    assert path.read_text() == "mine"
    swept.ok("report", "lrs", "-o", str(path), "--force")
    assert path.read_text().startswith("# Sweep")
    page = tmp_path / "report.html"
    swept.ok("report", "lrs", "-o", str(page))
    assert page.read_text().startswith("<!doctype html>")
    assert not list(tmp_path.glob(".report*"))
    for words, code, message in (
        ([], 2, "needs the name of one sweep"),
        (["lr"], 1, "there is no sweep `lr`"),
        (["lrs", "-o", "report.pdf"], 2, "unknown suffix"),
        (["lrs", "--metric", "acc"], 1, "no trial has reported `acc`"),
        (["lrs", "--group", "nope"], 2, "unknown column `nope`"),
        (["lrs", "--smooth", "2"], 2, "`--smooth` must be"),
        (["lrs", "-o", f"{tmp_path}/none/report.md"], 2, "cannot write"),
    ):
        done = swept.run("report", *words)
        assert (done.returncode, done.stdout) == (code, ""), done
        assert message in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_report_of_a_sweep_without_results_says_so(lab: Lab) -> None:
    lab.ok("sweep", "--name", "new", "--hold", "--gpus", "0", "echo {lr}", "lr=1,2")
    text = lab.ok("report", "new")
    assert "No trial has a result yet." in text
    assert "Nothing was recorded" in text
    assert "<figure" not in lab.ok("report", "new", "--format", "html")
