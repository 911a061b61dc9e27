"""Parts of interactive jobs that need no process: messages, keys, idle time and warnings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.features.terminal.frames import (
    DATA,
    EXIT,
    MAX_BYTES,
    NOTICE,
    SIZE,
    FrameReader,
    exit_frame,
    frame,
    read_exit,
    read_size,
    size_frame,
)
from stoker.features.terminal.session import PROGRAM, IdleLimit, session_argv
from stoker.features.terminal.start import DETACH_KEYS, DetachKeys, LimitNotice
from stoker.text.commands.shell_words import display, is_interactive


@given(
    st.lists(st.tuples(st.sampled_from([DATA, NOTICE, EXIT, SIZE]), st.binary(max_size=50))),
    st.integers(1, 7),
)
def test_reader_returns_the_messages_however_the_stream_is_cut(
    messages: list[tuple[bytes, bytes]], step: int
) -> None:
    stream = b"".join(frame(*message) for message in messages)
    reader = FrameReader()
    found: list[tuple[bytes, bytes]] = []
    for at in range(0, len(stream), step):
        found += reader.feed(stream[at : at + step])
    assert found == messages


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 0xFFFF), st.integers(1, 0xFFFF))
def test_numbers_survive_in_messages(code: int, lines: int, columns: int) -> None:
    ((_, exit_content),) = FrameReader().feed(exit_frame(code))
    ((_, size_content),) = FrameReader().feed(size_frame(lines, columns))
    assert read_exit(exit_content) == code
    assert read_size(size_content) == (lines, columns)


def test_reader_refuses_a_message_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="a message of"):
        list(FrameReader().feed(DATA + (MAX_BYTES + 1).to_bytes(4, "big")))
    with pytest.raises(ValueError, match="a size of 3 bytes"):
        read_size(b"123")
    with pytest.raises(ValueError, match="an exit code of 0 bytes"):
        read_exit(b"")


@given(st.lists(st.binary(min_size=1, max_size=5)))
def test_detach_keys_are_found_however_they_arrive(typed: list[bytes]) -> None:
    """Everything before the keys is passed on, except a first key that may still be followed."""
    whole = b"".join(typed)
    keys, passed, is_detached = DetachKeys(), b"", False
    for data in typed:
        some, is_detached = keys.feed(data)
        passed += some
        if is_detached:
            break
    before, found, _ = whole.partition(DETACH_KEYS)
    assert is_detached == bool(found)
    assert passed == (before if found else whole.removesuffix(DETACH_KEYS[:1]))


def test_idle_time_ends_after_a_warning_and_any_use_begins_it_again() -> None:
    idle = IdleLimit(1800, now=0)
    assert (idle.must_warn(1499), idle.must_warn(1500), idle.must_warn(1501)) == (
        False, True, False,
    )  # fmt: skip
    idle.use(1600)
    assert (idle.is_over(1800), idle.must_warn(3099), idle.must_warn(3100)) == (False, False, True)
    assert (idle.is_over(3399), idle.is_over(3400)) == (False, True)


def test_busy_processes_count_as_use() -> None:
    idle = IdleLimit(100, now=0)
    idle.check(10, cpu_seconds=0.6)  # 6 % of a core
    assert (idle.is_over(109), idle.is_over(110)) == (False, True)
    idle.check(20, cpu_seconds=1.0)  # 4 %
    assert idle.is_over(110)
    idle.check(30, cpu_seconds=0.2)  # a process with more CPU time has exited
    assert idle.is_over(110)


def test_idle_time_without_limit_never_ends() -> None:
    idle = IdleLimit(0, now=0)
    assert (idle.is_over(1e9), idle.must_warn(1e9), idle.seconds_to_check()) == (False, False, None)


def test_warnings_precede_the_time_limit_once_each() -> None:
    left: float | None = 7200.0
    notice = LimitNotice(lambda: left)
    assert notice.next() == (None, 6900.0)
    left = 300.5
    assert notice.next() == ("the time limit ends this job in 5m00s", 240.5)
    left = 290.0
    assert notice.next() == (None, 230.0)
    left = 60.0
    assert notice.next() == ("the time limit ends this job in 1m00s", None)
    left = 10.0
    assert notice.next() == (None, None)
    left = None
    assert notice.next() == (None, None)


def test_job_with_a_short_limit_is_warned_only_once() -> None:
    assert LimitNotice(lambda: 30.0).next() == ("the time limit ends this job in 30s", None)


def test_command_of_an_interactive_job_is_shown_as_typed() -> None:
    argv = session_argv("/state/terminals", 1800.0, PROGRAM, ("python", "-m", "x", "--", "a b"))
    assert is_interactive(argv)
    assert display(argv, shell=False) == "python -m x -- 'a b'"
    assert not is_interactive(("python", "-m", "x"))
