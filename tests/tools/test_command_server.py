"""A command in a fork of the command server behaves as one in a Python of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import Lab


def both(lab: Lab, *words: str, **kwargs: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command, which are the same both ways."""
    results = []
    for lab.forks in (True, False):
        done = lab.run(*words, **kwargs)  # type: ignore[arg-type]
        results.append((done.returncode, done.stdout, done.stderr))
    assert results[0] == results[1]
    return results[0]


@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("help", "submit"),
        ("show", "7"),
        ("show", "7", "--json"),
        ("submit", "-G", "x"),
        (),
    ],
)
def test_fork_has_the_same_exit_code_and_output(lab: Lab, words: tuple[str, ...]) -> None:
    both(lab, *words)


def test_fork_reads_stdin_environment_and_folder(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    words = ("submit", "--hold", "-E", "COLOR", "--json", "--dry-run", "-")
    code, output, _ = both(lab, *words, input=b"echo \xff\n", cwd=folder, COLOR="red")
    assert code == 0  # -E refuses a variable that is not set
    assert str(folder) in output


def test_fork_prints_times_of_the_time_zone_of_its_environment(lab: Lab) -> None:
    lab.submit("--begin", "2100-01-01T12:00", "true", TZ="UTC")
    assert "2100-01-01 17:00" in both(lab, "show", "1", TZ="UTC-5")[1]


def test_fork_ends_with_a_traceback_as_a_process_does(lab: Lab) -> None:
    lab.forks = True
    done = lab.run("show", "7", "--debug")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("NotFound: there is no job 7\nhint: `stoker ls` shows the jobs\n")


def test_commands_run_at_the_same_time(lab: Lab) -> None:
    """A command that waits does not keep others from running."""
    from concurrent.futures import ThreadPoolExecutor

    job = lab.submit("--hold", "true")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(lab.wait, job)
        lab.ok("release", str(job))
        assert waiting.result() == 0
