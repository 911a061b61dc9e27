"""Commands that destroy or repeat work say what they would do, and ask on a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.helpers import Terminal, as_json, refused
from tests.lab import Lab


@pytest.fixture
def lab(new_lab: Callable[..., Lab]) -> Lab:
    """A queue with two held jobs, and two that failed."""
    lab = new_lab()
    for _ in range(2):
        lab.submit("--hold", "true")
    lab.wait(*(lab.submit("false") for _ in range(2)))
    return lab


def _answer(lab: Lab, words: tuple[str, ...], question: str, answer: bytes) -> tuple[int, str]:
    terminal = Terminal(lab, *words)
    terminal.read_until(f"{question}? [y/N]")
    terminal.write(answer)
    code = terminal.close()
    return code, terminal.text


@pytest.mark.parametrize(
    ("words", "question", "refusal", "reply"),
    [
        (("cancel", "all"), "cancel 2 waiting jobs", "no job was cancelled", "2 jobs cancelled"),
        (("cancel", "--all"), "cancel 2 waiting jobs", "no job was cancelled", "2 jobs cancelled"),
        (("rm", "failed"), "remove 2 finished jobs with their logs", "nothing was removed",
         "2 jobs removed"),
        (("rm", "3"), "remove 1 finished job with its logs", "nothing was removed",
         "1 job removed"),
        (("rerun", "--failed", "--hold"), "rerun 2 failed jobs (3, 4)", "nothing was resubmitted",
         "2 jobs resubmitted: 3 as 5, 4 as 6"),
        (("sweep", "--hold", "echo {x}", "x=range(1001)"), "queue 1,001 trials",
         "no trial was queued", "1001 trials"),
    ],
)  # fmt: skip
def test_command_asks_on_a_terminal(
    lab: Lab, words: tuple[str, ...], question: str, refusal: str, reply: str
) -> None:
    before = lab.ok("ls", "--state", "all", "--json")
    code, text = _answer(lab, words, question, b"n\n")
    assert (code, refusal in text) == (1, True)
    assert lab.ok("ls", "--state", "all", "--json") == before
    code, text = _answer(lab, words, question, b"y\n")
    assert (code, reply in text) == (0, True)


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        ("cancel all", "2 waiting jobs, none cancelled"),
        ("cancel 1", "1 waiting job, none cancelled"),
        ("cancel 3", "0 jobs, none cancelled"),
        ("rm all", "2 finished jobs with their logs, none removed"),
        ("rerun --failed", "2 failed jobs (3, 4), none resubmitted"),
        ("rerun 3", "1 job (3), none resubmitted"),
        ("clean", "2 finished jobs with their logs, none removed"),
    ],
)
def test_dry_run_shows_the_plan_and_changes_nothing(lab: Lab, words: str, plan: str) -> None:
    before = lab.ok("ls", "--state", "all", "--json")
    assert lab.ok(*words.split(), "--dry-run") == f"{plan} (--dry-run)\n"
    assert as_json(lab.ok(*words.split(), "--dry-run", "--json"))
    assert lab.ok("ls", "--state", "all", "--json") == before


def test_one_job_is_cancelled_without_a_question(lab: Lab) -> None:
    terminal = Terminal(lab, "cancel", "1")
    assert (terminal.close(), terminal.text) == (0, "1 job cancelled\n")


@pytest.mark.parametrize(("is_interrupt", "code"), [(True, 130), (False, 1)])
def test_leaving_a_question_changes_nothing_and_says_so(
    lab: Lab, is_interrupt: bool, code: int
) -> None:
    terminal = Terminal(lab, "cancel", "all")
    terminal.read_until("cancel 2 waiting jobs? [y/N]")
    terminal.interrupt() if is_interrupt else terminal.write(b"\x04")
    assert terminal.close() == code
    assert terminal.text.endswith("\nno job was cancelled\n")
    assert lab.state(1) == "held"


def test_yes_and_scripts_are_not_asked(lab: Lab) -> None:
    terminal = Terminal(lab, "cancel", "all", "--yes")
    assert (terminal.close(), terminal.text) == (0, "2 jobs cancelled\n")
    assert lab.ok("rm", "all") == "4 jobs removed\n"


def test_quiet_cancel_prints_nothing(lab: Lab) -> None:
    assert lab.ok("cancel", "-q", "--all") == ""
    assert lab.state(1) == "cancelled"
    refused(
        lab.run("cancel", "--all", "1"), 2, "`--all` and `1` exclude each other",
        "name jobs, or write `--all`",
    )  # fmt: skip
