"""Rendering of logs and user text for a terminal."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.text.logs.log_rendering import LogView
from stoker.text.terminal import printable

UP, DOWN, CLEAR = "\x1b[A", "\x1b[B", "\x1b[K"
RED, RESET = "\x1b[31m", "\x1b[0m"
SGR = re.compile("\x1b\\[[0-9;:]*m")


def lines(*pieces: str, colors: bool = False, live: bool = False) -> list[str]:
    view = LogView(colors, live)
    found = [line for piece in pieces for line in view.feed(piece)]
    return found + view.finish()


# -- lines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\nb", ["a", "b"]),
        ("\n\na\n\n", ["", "", "a", ""]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\r\r\nb", ["a", "b"]),
        ("a\tb", ["a\tb"]),
        ("é█\udcff", ["é█\udcff"]),
    ],
)
def test_plain_lines_are_not_changed(text: str, expected: list[str]) -> None:
    assert lines(text) == lines(text, live=True) == lines(text, colors=True) == expected


def test_live_line_is_returned_when_it_ends() -> None:
    view = LogView(False, live=True)
    assert view.feed("a\nb\nc") == ["a", "b"]
    assert view.feed("d\n") == ["cd"]
    assert view.finish() == []


def test_view_can_be_used_again_after_its_end() -> None:
    view = LogView(False)
    view.feed("a\x1b]0;unfinished")
    assert view.finish() == ["a"]
    assert view.feed("b") + view.finish() == ["b"]


# -- progress bars -----------------------------------------------------------------------------


def test_carriage_return_overwrites_the_line() -> None:
    assert lines("10%\r50%\r100%\ndone\n") == ["100%", "done"]
    assert lines("10%", "\r", "50%", "\r100%\n") == ["100%"]


def test_carriage_return_at_the_end_keeps_the_line() -> None:
    assert lines("100%\r") == lines("100%\r\r\n") == ["100%"]


def test_backspaces_erase() -> None:
    assert lines("|\b/\b-\bdone") == ["done"]
    assert lines("abc\b\b\b\b\bx") == ["x"]
    assert lines("10%\b\b\b20%\n") == ["20%"]


def test_backspace_does_not_leave_the_line() -> None:
    assert lines("a\n\bb") == ["a", "b"]
    assert lines("a\r\b\n") == ["a"]


def test_clearing_the_line_clears_only_behind_the_cursor() -> None:
    assert lines(f"a\r{CLEAR}\nb") == ["", "b"]
    assert lines("a\x1b[2K\rb") == ["b"]


def test_colored_grep_output_keeps_its_line() -> None:
    """grep and gcc clear to the end of the line after each change of color."""
    text = "before \x1b[01;31m\x1b[Kmatch\x1b[m\x1b[K after\n"
    assert lines(text) == ["before match after"]
    assert lines(text, colors=True) == ["before \x1b[01;31mmatch\x1b[m after"]


def test_first_column_is_a_carriage_return() -> None:
    assert lines("10%\x1b[G20%\x1b[1G30%") == ["30%"]


def nested_bars(outer: int, inner: int) -> str:
    """What tqdm writes for a bar inside a bar."""
    text = "\router 0"
    for i in range(1, outer + 1):
        for j in range(inner + 1):
            text += f"\n\rinner {j}{UP}"
        text += f"\router {i}"
    return text + "\n\n"


def test_nested_progress_bars_collapse_to_their_last_state() -> None:
    assert lines(nested_bars(3, 5)) == ["outer 3", "inner 5"]


def test_live_nested_bars_collapse_after_their_first_cursor_up() -> None:
    text = nested_bars(3, 5)
    assert lines(*text, live=True) == ["outer 0", "outer 3", "inner 5"]


def test_live_log_is_delayed_only_by_the_lines_it_moves_up() -> None:
    view = LogView(False, live=True)
    view.feed(nested_bars(2, 2))
    assert view.feed("epoch 1\nepoch 2\nepoch 3\n")[-2:] == ["epoch 1", "epoch 2"]


def test_cursor_up_stops_at_the_first_line() -> None:
    assert lines(f"a\nb\n\x1b[{'9' * 100}Ax") == ["x", "b"]


def test_cursor_down_makes_no_lines() -> None:
    assert lines(f"a{DOWN * 5}\x1b[99999Bb") == ["b"]
    assert lines(f"a\nb\n{UP}{UP}c{DOWN}d") == ["c", "d"]


def test_line_above_the_window_is_final() -> None:
    text = "".join(f"{n}\n" for n in range(100))
    assert lines(f"{text}\x1b[99Ax")[:41] == [*map(str, range(40)), "x"]


# -- sequences that must not reach a terminal --------------------------------------------------

CORPUS = {
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "clipboard with ST": "\x1b]52;c;cm0gLXJmIH4=\x1b\\",
    "clipboard, 8 bit end": "\x1b]52;c;cm0gLXJmIH4=\x9c",
    "title": "\x1b]0;pwned\x07",
    "title stack": "\x1b[22;0t\x1b[23;0t",
    "title report": "\x1b[21t",
    "hyperlink": "\x1b]8;;http://evil.example\x1b\\\x1b]8;;\x1b\\",
    "device status": "\x1b[5n\x1b[6n\x1b[?6n",
    "device attributes": "\x1b[c\x1b[>c\x1bZ",
    "DECRQSS": "\x1bP$q\"p\x1b\\",
    "DECUDK": "\x1bP0;1|17/6c73\x1b\\",
    "sixel": "\x1bPq#0;2;0;0;0~~@@vv\x1b\\",
    "kitty picture": "\x1b_Gf=24,s=1,v=1;AAAA\x1b\\",
    "privacy message": "\x1b^secret\x1b\\",
    "start of string": "\x1bXsecret\x1b\\",
    "bracketed paste": "\x1b[?2004h\x1b[200~\x1b[201~\x1b[?2004l",
    "mouse": "\x1b[?1000h\x1b[?1006h",
    "alternate screen": "\x1b[?1049h",
    "reset": "\x1bc\x1b[!p",
    "keyboard lock": "\x1b[2h",
    "character set": "\x1b(B\x1b(0\x1b)B\x0e\x0f",
    "cursor keys": "\x1b=\x1b>",
    "position": "\x1b[1;1H\x1b[2J\x1b[3J",
    "scroll region": "\x1b[1;5r\x1b[S\x1b[T\x1bM",
    "bell": "\x07",
    "answerback": "\x05",
    "C0": "".join(chr(code) for code in range(0x20) if chr(code) not in "\b\t\n\r\x1b"),
    "delete": "\x7f",
    "C1 alone": "".join(map(chr, range(0x80, 0xA0))),
    "SGR with more than numbers": "\x1b[>4;2m\x1b[?4m\x1b[1 m",
}  # fmt: skip


@pytest.mark.parametrize("colors", [False, True])
@pytest.mark.parametrize("sequence", CORPUS.values(), ids=CORPUS.keys())
def test_sequence_leaves_nothing_behind(sequence: str, colors: bool) -> None:
    assert lines(f"a{sequence}b\n", colors=colors) == ["ab"]


@pytest.mark.parametrize("sequence", CORPUS.values(), ids=CORPUS.keys())
def test_sequence_in_pieces_leaves_nothing_behind(sequence: str) -> None:
    assert lines(*f"a{sequence}b\n", colors=True) == ["ab"]


def test_8_bit_control_characters_are_removed() -> None:
    assert lines("a\x9b5nb\x9d52;c;AAAA\x07") == ["a5nb52;c;AAAA"]


def test_backspace_cannot_split_a_color_sequence() -> None:
    assert lines("\x1b[5m\bn", colors=True) == ["\x1b[5mn"]
    assert lines("x\x1b[m\b\b]52;c;AAAA\x07", colors=True) == ["\x1b[m]52;c;AAAA"]


def test_job_killed_inside_a_title_does_not_hide_the_rest_of_its_log() -> None:
    assert lines("a\x1b]0;tit\nb\n") == ["a", "b"]


def test_control_character_inside_a_sequence_ends_it() -> None:
    assert lines("a\x1b[12\nb") == ["a", "b"]
    assert lines("a\x1b\x1b[31mb") == ["ab"]
    assert lines("a\x1bé") == ["aé"]


@pytest.mark.parametrize("start", ["\x1b]52;c;", "\x1bP", "\x1b_G"])
def test_sequence_that_never_ends_needs_no_memory(start: str) -> None:
    view = LogView(False, live=True)
    block = "A" * (1 << 16)
    view.feed(start)
    tracemalloc.start()
    try:
        assert [line for _ in range(50) for line in view.feed(block)] == []
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < len(block)
    assert view.feed("\x07end\n") == ["end"]


def test_overlong_sequence_is_cut_and_shown() -> None:
    assert lines("\x1b[" + "1" * 1000 + "m", colors=True) == ["1" * 872 + "m"]


# -- colors ------------------------------------------------------------------------------------


def test_colors_are_kept_on_request() -> None:
    text = f"{RED}a{RESET} \x1b[38;2;1;2;3mb\x1b[38:5:1mc\n"
    assert lines(text, colors=True) == [text[:-1]]
    assert lines(text) == ["a bc"]


def test_color_at_the_left_edge_does_not_erase_the_line() -> None:
    assert lines(f"100%\r{RESET}\nb", colors=True) == [f"100%{RESET}", "b"]
    assert lines(f"10%\r{RED}100%{RESET}", colors=True) == [f"{RED}100%{RESET}"]


def test_color_after_the_last_line_is_not_a_line() -> None:
    assert lines(f"a\n{RESET}", colors=True) == ["a"]


# -- always ------------------------------------------------------------------------------------

TEXTS = st.lists(
    st.sampled_from(
        ["a", "bc", " ", "é", "\n", "\n", "\r", "\r\n", "\b", "\t", "\x1b", "[", "m", "1", ";",
         "]", "\\", "\x07", "(B", "\x9b", "\x9d", "\0", UP, "\x1b[2A", DOWN, CLEAR, "\x1b[2K",
         "\x1b[G", "\x1b[E", "\x1b[F", RED, RESET, "\x1b]0;t\x07", "\x1bP$q\x1b\\", "\x1b[?25l"]
    )
    | st.characters(exclude_categories=["Cs"])
).map("".join)  # fmt: skip


@given(TEXTS, st.lists(st.integers(0, 200)), st.booleans(), st.booleans())
@example("a\nb\n\x1b[2Ac", [4], False, True)
@example("\x1b]0;" + "x" * 1000 + "\x07a", [100, 200], False, False)
@example("\x1b[" + "1" * 200 + "m", [100, 150], True, False)
def test_lines_do_not_depend_on_the_pieces(
    text: str, cuts: list[int], colors: bool, live: bool
) -> None:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert "".join(pieces) == text
    whole = lines(text, colors=colors, live=live)
    assert lines(*pieces, colors=colors, live=live) == whole
    assert lines(*text, colors=colors, live=live) == whole


@given(TEXTS, st.booleans(), st.booleans())
def test_output_has_only_text_tabs_and_requested_colors(
    text: str, colors: bool, live: bool
) -> None:
    for line in lines(text, colors=colors, live=live):
        bare = SGR.sub("", line) if colors else line
        assert not re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f]", bare)


@given(TEXTS, st.booleans())
def test_colors_change_only_colors(text: str, live: bool) -> None:
    colored = lines(text, colors=True, live=live)
    assert [SGR.sub("", line) for line in colored] == lines(text, live=live)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]))))
def test_text_without_controls_is_not_changed(rows: list[str]) -> None:
    text = "".join(f"{row}\n" for row in rows)
    assert lines(text) == lines(text, live=True) == rows


# -- printable ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é █", "plain é █"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b", "\\x9b"),
        ("\udcff", "\\xff"),
        ("\u202e", "\\u202e"),
        ("\u2028", "\\u2028"),
    ],
)
def test_printable_shows_control_characters(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_printable_text_is_always_printable(text: str) -> None:
    assert printable(text).isprintable()
