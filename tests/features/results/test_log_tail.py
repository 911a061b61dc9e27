"""The last line of a log, and when two failures count as the same."""

from __future__ import annotations

import doctest

import pytest

from stoker.engine.outcome import log_tail as module
from stoker.engine.outcome.log_tail import last_error, masked
from stoker.engine.outcome.retry import Verdict
from stoker.features.sweeps.store import alike


def test_docstring_examples_are_correct() -> None:
    done = doctest.testmod(module)
    assert (done.failed, done.attempted) == (0, 6)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (b"", None),
        (b"\n \n", None),
        (b"stoker: loss=1\n", None),  # a report is not an error message
        (b"  50%\r 100%\r", None),
        (b"a\r\nb\r\n", "b"),
        (b"x" * 500, "x" * 199 + "\u2026"),
        (b"\xff", "\ufffd"),
        (b"Traceback (most recent call last):\n  File x\n", "File x"),
    ],
)
def test_last_meaningful_line_of_a_log_is_found(log: bytes, words: str | None) -> None:
    assert last_error(log) == words


def test_failures_that_differ_only_in_numbers_are_equal() -> None:
    verdict = Verdict("fail", "exit", 1, None)
    assert alike(verdict, "bad lr 0.1 in x3.py") == alike(verdict, "bad lr 1e-5 in x17.py")
    assert alike(verdict, "bad lr") != alike(verdict, "bad seed")
    assert alike(verdict, "a") != alike(verdict._replace(exit_code=2), "a")
    assert masked("KeyError: '7'") == "KeyError: '#'"
