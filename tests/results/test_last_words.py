"""What a program said last, and when two failures are one."""

from __future__ import annotations

import doctest

import pytest

from stoker.core.outcome import log_tail as module
from stoker.core.outcome.log_tail import last_words, masked
from stoker.core.outcome.retry import Verdict
from stoker.store.sweeps import alike


def test_examples_in_docstrings_are_true() -> None:
    done = doctest.testmod(module)
    assert (done.failed, done.attempted) == (0, 3)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (b"", None),
        (b"\n \n", None),
        (b"stoker: loss=1\n", None),  # a report is no last word
        (b"  50%\r 100%\r", None),
        (b"a\r\nb\r\n", "b"),
        (b"x" * 500, "x" * 199 + "\u2026"),
        (b"\xff", "\ufffd"),
        (b"Traceback (most recent call last):\n  File x\n", "File x"),
    ],
)
def test_the_last_line_that_says_something_counts(log: bytes, words: str | None) -> None:
    assert last_words(log) == words


def test_numbers_do_not_make_a_failure_another_one() -> None:
    verdict = Verdict("fail", "exit", 1, None)
    assert alike(verdict, "bad lr 0.1 in x3.py") == alike(verdict, "bad lr 1e-5 in x17.py")
    assert alike(verdict, "bad lr") != alike(verdict, "bad seed")
    assert alike(verdict, "a") != alike(verdict._replace(exit_code=2), "a")
    assert masked("KeyError: '7'") == "KeyError: '#'"
