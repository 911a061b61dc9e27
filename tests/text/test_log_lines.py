"""Logs as lines of styled text: offsets, spans, and text that is safe to show."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.text.byte_text import to_text
from stoker.text.logs.log_lines import LogLines, styled, visible
from stoker.text.logs.log_rendering import LogView

CSS = Path(__file__).resolve().parents[2] / "frontend/src/style/log.css"
Line = dict[str, Any]

PIECES = st.sampled_from(
    ["a", "bar 10%", "é", "日", "\n", "\n", "\r", "\r\n", "\b", "\t", "\x00", "\x9b", "\u202e",
     "\x1b[A", "\x1b[2A", "\x1b[B", "\x1b[K", "\x1b[2K", "\x1b[1G", "\x1b[31m", "\x1b[1;4m",
     "\x1b[0m", "\x1b[38;5;208m", "\x1b[48;2;1;2;3m", "\x1b[38;5m", "\x1b[97;107m", "\x1b]0;t\x07",
     "\x1b]8;;x", "\x1b[", "\x1b", "<b>"]
)  # fmt: skip
LOGS = st.lists(st.one_of(PIECES.map(str.encode), st.binary(max_size=4)), max_size=40)


def rendered(*pieces: bytes, is_raw: bool = False, start: int = 0) -> list[Line]:
    """The lines of a reader that takes them after each piece."""
    log = LogLines(start, is_raw=is_raw)
    lines: list[Line] = []
    for piece in pieces:
        log.feed(piece)
        first, new = log.take()
        lines = [line for line in lines if line["at"] < first] + new
    return lines


def texts(lines: list[Line]) -> list[str]:
    return ["".join(span["text"] for span in line["spans"]) for line in lines]


# -- lines ---------------------------------------------------------------------------------------


def whole_characters(pieces: list[bytes]) -> list[bytes]:
    """The pieces, divided only where a character ends."""
    found, rest = [], b""
    for piece in pieces:
        rest += piece
        if (
            not re.search(rb"[\x80-\xff]\Z", rest)
            or to_text(rest).encode("utf-8", "replace") == rest
        ):
            found.append(rest)
            rest = b""
    return [*found, rest]


@given(LOGS)
def test_lines_do_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    for is_raw in (False, True):
        whole = rendered(data, is_raw=is_raw)
        assert rendered(*whole_characters(pieces), is_raw=is_raw) == whole


def test_colors_stay_in_effect_when_a_line_is_overwritten() -> None:
    for pieces in (["\x1b[31m", "\r", "a", "\r", "a"], ["\x1b[31mb\ra"], ["b\x1b[31m\r", "a"],
                   ["\x1b[31mb\x1b[2Ka"], ["\x1b[1mb\x1b[0m\r\x1b[31mc\r", "a"]):  # fmt: skip
        [line] = rendered(*(piece.encode() for piece in pieces))
        assert line["spans"] == [{"text": "a", "classes": "f1"}], pieces


def test_colors_of_a_long_progress_bar_do_not_add_up() -> None:
    view = LogView(True)
    for number in range(1000):
        view.feed(f"\r\x1b[{30 + number % 8}m\x1b[38;5;{number % 256}m{number}%")
    assert len(view.rows()[0]) < 500


@given(LOGS)
def test_lines_are_those_of_stoker_log(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    view = LogView(False)
    expected = [*view.feed(to_text(data)), *view.finish()]
    assert texts(rendered(data)) == [visible(line) for line in expected]


@given(LOGS, st.integers(0, 1 << 40))
def test_lines_start_after_line_ends(pieces: list[bytes], start: int) -> None:
    data = b"".join(pieces)
    for is_raw in (False, True):
        starts = [line["at"] - start for line in rendered(data, is_raw=is_raw, start=start)]
        assert starts == sorted(set(starts))
        assert all(at == 0 or data[at - 1 : at] == b"\n" for at in starts)


@given(LOGS)
def test_spans_are_safe_to_show(pieces: list[bytes]) -> None:
    known = set(re.findall(r"^\.([a-z]+\d*)\b", CSS.read_text(), re.MULTILINE))
    for is_raw in (False, True):
        for line in rendered(b"".join(pieces), is_raw=is_raw):
            for span in line["spans"]:
                kinds = {unicodedata.category(char) for char in span["text"] if char != "\t"}
                assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}
                assert set(span.get("classes", "").split()) <= known
                for key in ("color", "background"):
                    assert re.fullmatch(r"(rgb\(\d+ \d+ \d+\))?", span.get(key, ""))


def test_change_of_a_line_is_returned_with_the_lines_after_it() -> None:
    log = LogLines(0)
    log.feed(b"one\nouter 0\ninner 0")
    assert texts(log.take()[1]) == ["one", "outer 0", "inner 0"]
    log.feed(b"!")
    assert (log.take()[0], log.cursor) == (12, 12)
    log.feed(b"\x1b[A\router 1")
    first, lines = log.take()
    assert (first, texts(lines), log.cursor) == (4, ["outer 1", "inner 0!"], 4)
    log.feed(b"\n\x1b[2K")
    assert log.take() == (12, []), "the last line is empty now"
    assert log.take()[1] == []


def test_lines_beyond_the_reach_of_the_cursor_are_returned_once() -> None:
    log = LogLines(0)
    log.feed(b"".join(b"%d\n" % n for n in range(1000)))
    assert len(log.take()[1]) == 1000
    log.feed(b"last\n")
    assert texts(log.take()[1]) == ["last"]
    assert log.weight < 300


def test_removed_bytes_are_noted_in_a_line_of_their_own() -> None:
    for head, before in ((b"a\n", ["a"]), (b"a", ["a"]), (b"", []), (b"a\nb\x1b[A", ["a", "b"])):
        log = LogLines(0)
        log.feed(head)
        log.skip(5 << 20)
        log.feed(b"z\n")
        lines = log.take()[1]
        assert texts(lines) == [*before, "... 5.0 MiB dropped ...", "z"]
        assert [line["at"] for line in lines[-2:]] == [len(head), len(head) + (5 << 20)]


def test_raw_lines_show_control_characters_as_symbols() -> None:
    assert texts(rendered(b"a\r\x1b[1m\nb\t\x7f\xff")) == ["a", "b\t\\xff"]
    assert texts(rendered(b"a\r\x1b[1m\nb\t\x7f\xff", is_raw=True)) == ["a␍␛[1m", "b\t␡\\xff"]


# -- spans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "span"),
    [
        ("1;31", {"classes": "bold f1"}),
        ("2;3;4;7", {"classes": "faint slant under inverse"}),
        ("97;100", {"classes": "f15 g8"}),
        ("1;22", {}),
        ("31;39;41;49", {}),
        ("38;5;9", {"classes": "f9"}),
        ("48;5;208", {"background": "rgb(255 135 0)"}),
        ("38;5;232", {"color": "rgb(8 8 8)"}),
        ("38;2;1;2;999;1", {"color": "rgb(1 2 255)", "classes": "bold"}),
        ("38:2:1:2:3", {"color": "rgb(1 2 3)"}),
        ("38;2;1", {"color": "rgb(1 0 0)"}),
        ("38", {}),
        ("38;7;1", {"classes": "bold"}),
        ("31;0", {}),
        ("31;", {}),
        ("5;73;999", {}),
    ],
)
def test_color_sequences_become_classes_or_colors(codes: str, span: Line) -> None:
    assert styled(f"\x1b[{codes}mx", {})[0] == [{"text": "x", **span}]


def test_style_continues_in_the_next_line_and_markup_stays_text() -> None:
    lines = rendered(b"a\x1b[1;31mb\nc\x1b[38;2;1;2;3md\x1b[0m<b>\ne")
    assert [line["spans"] for line in lines] == [
        [{"text": "a"}, {"text": "b", "classes": "bold f1"}],
        [{"text": "c", "classes": "bold f1"},
         {"text": "d", "classes": "bold", "color": "rgb(1 2 3)"}, {"text": "<b>"}],
        [{"text": "e"}],
    ]  # fmt: skip


def test_changed_style_is_returned_for_the_lines_after_it() -> None:
    log = LogLines(0)
    log.feed(b"a\nb\n")
    log.take()
    log.feed(b"\x1b[2A\x1b[32ma")
    first, lines = log.take()
    assert first == 0
    assert [line["spans"] for line in lines] == [
        [{"text": "a", "classes": "f2"}], [{"text": "b", "classes": "f2"}]
    ]  # fmt: skip
