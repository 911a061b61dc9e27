"""`stoker note`, `tag` and `star`: notes about jobs and sweeps at the terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

from tests.lab import Lab


def as_json(lab: Lab, *words: str) -> Any:
    return json.loads(lab.ok(*words, "--json"))


def refused(lab: Lab, *words: str, code: int = 1, **options: Any) -> str:
    """The error and hint of a command that fails with this exit code."""
    done = lab.run(*words, **options)
    assert (done.returncode, done.stdout) == (code, ""), done
    assert "hint: " in done.stderr, done.stderr
    return done.stderr


def a_sweep(lab: Lab) -> None:
    lab.ok("sweep", "--name", "lrs", "--hold", "--gpus", "0", "echo {lr}", "lr=1,2")


def test_note_is_written_printed_appended_and_restored(lab: Lab) -> None:
    job = str(lab.submit("--hold", "true"))
    assert lab.ok("note", job, "lr", "too", "high?") == f"note written for job {job}\n"
    assert lab.ok("note", job) == "lr too high?\n"
    lab.ok("note", job, "--append", "yes")
    assert lab.ok("note", job) == "lr too high?\n\nyes\n"
    lab.ok("note", job, "-", input="from\nstdin\n")
    assert lab.ok("note", job) == "from\nstdin\n"
    assert lab.ok("note", job, "--previous") == "lr too high?\n\nyes\n"
    lab.ok("note", job, "--restore")
    assert "note        lr too high?\n\n            yes" in lab.ok("show", job)
    shown = as_json(lab, "show", job)["jobs"][0]
    assert (shown["note"], shown["previous_note"]) == ("lr too high?\n\nyes", "from\nstdin")
    assert as_json(lab, "ls", job)["jobs"][0]["note_line"] == "lr too high?"
    lab.ok("note", job, "--clear")
    done = lab.run("note", job)
    assert (done.stdout, done.stderr) == ("", f"job {job} has no note\n")


def test_sweep_has_note_tags_and_star_of_its_own(lab: Lab) -> None:
    a_sweep(lab)
    lab.ok("note", "lrs", "which lr?")
    assert lab.ok("tag", "lrs", "1", "+paper,lr", "-x") == "1 job and 1 sweep tagged\n"
    assert lab.ok("star", "lrs") == "star added to 1 sweep\n"
    assert lab.ok("star", "lrs") == "unchanged: 1 sweep had a star before\n"
    text = lab.ok("sweep", "show", "lrs")
    assert "  tags      lr, paper\n  star      yes\n  note      which lr?\n" in text
    shown = as_json(lab, "sweep", "show", "lrs")
    assert (shown["note"], shown["tags"], shown["starred"]) == ("which lr?", ["lr", "paper"], True)
    assert "* lrs" in lab.ok("sweep", "ls", "--starred", "--tag", "paper,lr")
    assert lab.run("sweep", "ls", "--tag", "other").stderr == "no matching sweeps\n"
    assert [job["tags"] for job in as_json(lab, "ls")["jobs"]] == [["lr", "paper"], []]
    lab.ok("tag", "sweep:lrs", "+all")  # its jobs
    assert as_json(lab, "sweep", "show", "lrs")["tags"] == ["lr", "paper"]
    lab.ok("star", "--remove", "lrs")
    assert as_json(lab, "sweep", "ls")["sweeps"][0]["starred"] is False


def test_starred_jobs_are_marked_listed_and_selected(lab: Lab) -> None:
    one, two = lab.submit("--hold", "-n", "a", "true"), lab.submit("--hold", "true")
    assert lab.ok("ls", "starred") == "no matching jobs (2 held)\n"
    lab.ok("star", str(one))
    assert "* a " in lab.ok("ls")
    for words in (["--starred"], ["starred"], ["all", "--starred"]):
        assert [job["id"] for job in as_json(lab, "ls", *words)["jobs"]] == [one]
    assert lab.ok("cancel", "starred")
    assert (lab.state(one), lab.state(two)) == ("cancelled", "held")


def test_mistakes_in_notes_tags_and_stars_have_a_hint(lab: Lab) -> None:
    a_sweep(lab)
    job = str(lab.submit("--hold", "-n", "lrs", "true"))
    assert "there is no job or sweep `lr`" in refused(lab, "note", "lr", "text")
    both = refused(lab, "tag", "lrs", "+x", code=2)
    assert "`lrs` is a sweep, and the name or tag of jobs" in both
    assert "--sweep lrs" in both
    lab.ok("tag", "--sweep", "lrs", "+x")
    lab.ok("note", "--sweep", "lrs", "the sweep")
    assert lab.ok("note", "--sweep", "lrs") == "the sweep\n"
    assert "no jobs given" in refused(lab, "star", code=2)
    assert "there is no job 99" in refused(lab, "note", "99", "text")
    assert "cannot be combined" in refused(lab, "note", job, "--clear", "--edit", code=2)
    assert "takes no text" in refused(lab, "note", job, "--clear", "text", code=2)
    assert "needs a text" in refused(lab, "note", job, "--append", code=2)
    assert "the text is empty" in refused(lab, "note", job, "", code=2)
    assert "needs a terminal" in refused(lab, "note", job, "--edit", code=2)
    assert "65537 bytes" in refused(lab, "note", job, "-", code=2, input="x" * 65537)
    assert lab.ok("note", job) == ""


def test_note_is_edited_in_the_editor(lab: Lab) -> None:
    job = str(lab.submit("--hold", "true"))
    lab.ok("note", job, "before")
    leader, follower = pty.openpty()
    try:
        env = {**lab.env, "EDITOR": "sed -i 's/before/after/'", "VISUAL": ""}
        command = [sys.executable, "-m", "stoker", "note", job, "--edit"]
        subprocess.run(command, env=env, stdin=follower, check=True)
    finally:
        os.close(leader)
        os.close(follower)
    assert lab.ok("note", job) == "after\n"
    assert lab.ok("note", job, "--previous") == "before\n"
