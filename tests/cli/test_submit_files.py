"""`stoker submit --file`: one job per line; either all lines are queued or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import as_json, refused
from tests.lab import Lab


def write(lab: Lab, text: str | bytes, name: str = "jobs.txt") -> Path:
    path = lab.folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def planned(lab: Lab, *words: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = json.loads(lab.ok("submit", "--dry-run", "--json", *words))[
        "dry_run"
    ]
    return jobs


def test_each_line_is_a_job(lab: Lab) -> None:
    write(lab, "echo one\n\n# a comment\n   echo 'two  spaces' | cat\necho three # shell comment")
    done = lab.run("submit", "--file", "jobs.txt")
    assert done.stdout == "3 jobs queued: 1-3            watch: stoker ls --watch\n"
    assert lab.wait() == 0
    assert [lab.log(job) for job in (1, 2, 3)] == ["one\n", "two  spaces\n", "three\n"]


def test_lines_can_come_from_stdin(lab: Lab) -> None:
    assert lab.ok("submit", "-q", "-f", "-", input="echo a\necho b\n") == "1\n2\n"
    assert lab.wait() == 0
    assert lab.log(2) == "b\n"


def test_backslash_continues_a_line(lab: Lab) -> None:
    write(lab, "echo a \\\n  b\necho c \\\\\necho d \\")
    assert [job["argv"] for job in planned(lab, "-f", "jobs.txt")] == [
        ["echo a   b"],
        ["echo c \\\\"],
        ["echo d"],
    ]


def test_windows_line_ends_do_not_reach_the_command(lab: Lab) -> None:
    write(lab, "echo a\r\necho b\r\n")
    assert [job["argv"] for job in planned(lab, "-f", "jobs.txt")] == [["echo a"], ["echo b"]]


def test_flags_after_a_command_apply_to_that_job(lab: Lab) -> None:
    write(
        lab, "a #stoker --gpus 2 --name wide\nb\nc #stokers are no flags\nd # echo #stoker -p 3\n"
    )
    jobs = planned(lab, "-f", "jobs.txt", "-p", "7")
    assert [(job["argv"][0], job["gpus"], job["name"], job["priority"]) for job in jobs] == [
        ("a", 2, "wide", 7),
        ("b", 1, None, 7),
        ("c #stokers are no flags", 1, None, 7),
        ("d # echo", 1, None, 3),
    ]


def test_flags_on_their_own_line_apply_to_all_jobs_below(lab: Lab) -> None:
    write(lab, "a\n#stoker --gpus 0 --name n\nb\nc #stoker --gpus 2\n#stoker -p 4\nd\n")
    jobs = planned(lab, "-f", "jobs.txt")
    assert [(job["gpus"], job["name"], job["priority"]) for job in jobs] == [
        (1, None, 0),
        (0, "n", 0),
        (2, "n", 0),
        (0, "n", 4),
    ]


def test_repeated_flags_of_a_line_add_to_those_of_the_command_line(lab: Lab) -> None:
    write(lab, 'echo "$A $B" #stoker --env B=2 --tag line\n')
    lab.ok("submit", "-E", "A=1", "-T", "all", "-f", "jobs.txt")
    assert lab.wait() == 0
    assert lab.log(1) == "1 2\n"
    assert lab.job(1)["tags"] == ["all", "line"]


def test_jobs_of_a_file_have_their_batch_index(lab: Lab) -> None:
    write(lab, "echo $STOKER_ARRAY_ID $STOKER_ARRAY_INDEX\n" * 3)
    lab.ok("submit", "-f", "jobs.txt")
    assert lab.wait() == 0
    assert [lab.log(job) for job in (1, 2, 3)] == ["1 0\n", "1 1\n", "1 2\n"]
    assert [(lab.job(job)["batch"], lab.job(job)["batch_index"]) for job in (1, 3)] == [
        (1, 0),
        (1, 2),
    ]


@pytest.mark.parametrize(
    ("line", "code", "message", "hint"),
    [
        (b"x #stoker --gpu 2", 2, "line 3: `stoker submit` has no option `--gpu`",
         "did you mean `--gpus`?"),
        (b"x #stoker --gpus 99", 65, "line 3: the job requests 99 GPUs", None),
        (b"x #stoker --name 'open", 2, "line 3: No closing quotation", None),
        (b"x #stoker two words", 2, "line 3: `two` is not an option", None),
        (b"x #stoker --tag ''", 2, "line 3: `--tag`: a tag must not be empty", None),
        (b"x \0 y", 2, "line 3 holds a NUL byte", "is this a text file?"),
        (b"x #stoker --after 77", 1, "line 3: `--after`: there is no job 77",
         "`stoker ls` shows the jobs"),
    ],
)  # fmt: skip
def test_bad_line_queues_nothing(
    lab: Lab, line: bytes, code: int, message: str, hint: str | None
) -> None:
    write(lab, b"true\ntrue\n" + line + b"\ntrue\n")
    done = lab.run("submit", "-f", "jobs.txt")
    assert done.returncode == code
    assert done.stderr.startswith(f"error: {message}")
    assert hint is None or done.stderr.endswith(f"hint: {hint}\n")
    assert "Traceback" not in done.stderr
    assert lab.states() == {}
    assert lab.daemon_pid() is None


def test_file_without_jobs_is_not_an_error(lab: Lab) -> None:
    write(lab, "\n# nothing\n")
    done = lab.run("submit", "-f", "jobs.txt")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no jobs queued: the input has only blank lines and comments\n"


def test_file_and_a_command_exclude_each_other(lab: Lab) -> None:
    write(lab, "true\n")
    refused(
        lab.run("submit", "-f", "jobs.txt", "echo", "x"),
        2,
        "`--file` and a command (`echo`) exclude each other",
    )


def test_error_names_the_unreadable_file(lab: Lab) -> None:
    refused(
        lab.run("submit", "-f", "missing"), 2, "cannot read `missing`: No such file or directory"
    )
    refused(lab.run("submit", "-f", "."), 2, "cannot read `.`: Is a directory")


def test_thousands_of_lines_are_queued_in_order(lab: Lab) -> None:
    write(lab, "".join(f"echo {number}\n" for number in range(12_000)))
    done = lab.run("submit", "--hold", "-f", "jobs.txt")
    assert done.stdout == "12000 jobs held: 1-12000            watch: stoker ls --watch\n"
    jobs = as_json(lab.ok("ls", "11999-12000", "--json"))["jobs"]
    assert [job["command"] for job in jobs] == ["echo 11998", "echo 11999"]


def test_command_of_ten_megabytes_runs(lab: Lab) -> None:
    write(lab, ": " + "x" * 10_000_000 + "; echo the end\n")
    lab.ok("submit", "-f", "jobs.txt")
    assert lab.wait(1) == 0
    assert lab.log(1) == "the end\n"


def test_bytes_that_are_not_utf8_reach_the_shell_unchanged(lab: Lab) -> None:
    write(lab, b"printf %s '\xff\xfe' | od -An -tx1\n")
    lab.ok("submit", "-f", "jobs.txt")
    assert lab.wait(1) == 0
    assert lab.log(1) == " ff fe\n"


def test_error_in_a_directive_names_its_own_line(lab: Lab) -> None:
    text = "true\n\n#stoker --gpus x\n# comment\ntrue\ntrue #stoker --gpus 0\n"
    done = lab.run("submit", "-f", "-", input=text)
    assert done.stderr.startswith("error: line 3: `--gpus`: ")
    done = lab.run("submit", "-f", "-", input="#stoker --gpus 0\ntrue\ntrue #stoker --gpus y\n")
    assert "error: line 3: `--gpus`: " in done.stderr
