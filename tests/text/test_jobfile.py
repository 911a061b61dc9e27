"""Job files: one job per line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.text.commands.job_file import JobLine, Parser, parse


def jobs(text: str) -> list[JobLine]:
    return [line._replace(flags_at=0) for line in with_places(text)]


def with_places(text: str) -> list[JobLine]:
    return list(parse(text.splitlines(keepends=True)))


def texts(text: str) -> list[str]:
    return [line.text for line in jobs(text)]


def test_each_line_is_a_job_with_its_number() -> None:
    assert jobs("a\nb\n") == [JobLine(1, "a", ""), JobLine(2, "b", "")]


def test_last_line_needs_no_line_end() -> None:
    assert texts("a\nb") == ["a", "b"]


def test_blank_lines_and_comments_are_skipped_but_numbered() -> None:
    assert jobs("\n# one\n   # two\n \t \na\n") == [JobLine(5, "a", "")]


def test_comment_after_a_command_is_left_to_the_shell() -> None:
    assert texts("echo a # b\n") == ["echo a # b"]


def test_space_around_a_command_is_removed() -> None:
    assert texts("  a b \t\n") == ["a b"]


def test_escaped_space_at_the_end_is_kept() -> None:
    assert texts("touch a\\ \n") == ["touch a\\ "]


def test_windows_line_ends_and_byte_order_mark_are_removed() -> None:
    assert jobs("\ufeffa\r\nb \\\r\nc\r\n") == [JobLine(1, "a", ""), JobLine(2, "b c", "")]


# -- continuation ------------------------------------------------------------------------------


def test_backslash_continues_the_line_and_the_job_has_its_first_number() -> None:
    assert jobs("a \\\n  b \\\nc\nd\n") == [JobLine(1, "a   b c", ""), JobLine(4, "d", "")]


def test_two_backslashes_do_not_continue_the_line() -> None:
    assert texts("a \\\\\nb\n") == ["a \\\\", "b"]


def test_three_backslashes_are_a_backslash_and_a_continuation() -> None:
    assert texts("a \\\\\\\nb\n") == ["a \\\\b"]


def test_comment_is_not_continued() -> None:
    assert texts("# a \\\nb\n") == ["b"]


def test_number_sign_inside_a_continued_line_is_part_of_it() -> None:
    assert texts("a \\\n# b\n") == ["a # b"]


@pytest.mark.parametrize("text", ["\\\n", " \\\n", " \\\n  \n", "\\\n\\\n", " \\\n# no job\n"])
def test_continued_empty_line_is_not_a_job(text: str) -> None:
    assert jobs(text) == []


def test_continued_last_line_is_a_job() -> None:
    assert texts("a \\") == ["a"]


# -- directives --------------------------------------------------------------------------------


def test_flags_after_a_command_apply_to_that_job() -> None:
    assert jobs("a #stoker --gpus 2\nb\n") == [JobLine(1, "a", "--gpus 2"), JobLine(2, "b", "")]


def test_flags_on_a_line_of_their_own_apply_to_all_later_jobs() -> None:
    assert jobs("a\n#stoker --gpus 2\nb\n  #stoker -p 1\nc #stoker -n x\n") == [
        JobLine(1, "a", ""),
        JobLine(3, "b", "--gpus 2"),
        JobLine(5, "c", "--gpus 2 -p 1 -n x"),
    ]


def test_later_flags_override_earlier_ones() -> None:
    assert jobs("a #stoker -G 1 #stoker -G 2\n")[0] == JobLine(1, "a", "-G 1 -G 2")


@pytest.mark.parametrize(
    "text", ["echo #stokers", "echo x#stoker y", "echo '#stoker'", "echo #stoker-x"]
)
def test_text_that_resembles_a_directive_stays_in_the_command(text: str) -> None:
    assert jobs(text) == [JobLine(1, text, "")]


def test_comment_that_resembles_a_directive_is_a_comment() -> None:
    assert jobs("#stokers --gpus 2\na\n") == [JobLine(2, "a", "")]


def test_flags_may_continue_on_the_next_line() -> None:
    assert jobs("a #stoker --gpus \\\n2\n") == [JobLine(1, "a", "--gpus 2")]


def test_empty_directive_changes_nothing() -> None:
    assert jobs("#stoker\na #stoker\n") == [JobLine(2, "a", "")]


@pytest.mark.parametrize(
    "text",
    [
        "echo 'a #stoker -G 2'",
        'echo "a #stoker -G 2"',
        'echo "a \\" #stoker -G 2"',
        "echo 'a' \"b ' #stoker -G 2 '\"",
        "echo a\\ #stoker -G 2",
        "echo \\' b ' #stoker -G 2 '",
        "sh -c 'echo \" #stoker x\"'",
    ],
)
def test_directive_in_quotes_is_text(text: str) -> None:
    assert jobs(text) == [JobLine(1, text, "")]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("echo 'a #stoker b' #stoker -G 2", "echo 'a #stoker b'"),
        ('echo \\" #stoker -G 2', 'echo \\"'),
        ("echo 'it''s' #stoker -G 2", "echo 'it''s'"),
        ("true # don't wait #stoker -G 2", "true # don't wait"),
        ("true;# it's late #stoker -G 2", "true;# it's late"),
        ("echo a#'b #stoker -G 1' #stoker -G 2", "echo a#'b #stoker -G 1'"),
    ],
)
def test_directive_behind_quotes_and_comments_is_one(text: str, command: str) -> None:
    assert jobs(text) == [JobLine(1, command, "-G 2")]


def test_quotes_in_flags_keep_their_words_together() -> None:
    text = "a #stoker -n 'b #stoker c' #stoker -G 2"
    assert jobs(text) == [JobLine(1, "a", "-n 'b #stoker c' -G 2")]


# -- bad input ---------------------------------------------------------------------------------


def test_nul_byte_is_refused_with_its_line() -> None:
    with pytest.raises(UsageError, match="line 3 holds a NUL byte"):
        jobs("a\n# \nb\0\n")


def test_lines_before_an_invalid_one_are_returned() -> None:
    lines = parse(["a\n", "\0\n"])
    assert next(lines).text == "a"
    with pytest.raises(UsageError):
        next(lines)


# -- always ------------------------------------------------------------------------------------

LINES = st.lists(
    st.lists(
        st.sampled_from(
            ["a", "b c", " ", "\t", "\\", "#", "#stoker", " #stoker ", "--gpus 2", "é", "'", '"']
        )
    ).map("".join)
)


@given(LINES, st.sampled_from(["\n", "\r\n"]))
def test_lines_one_by_one_give_the_same_jobs_as_the_whole(lines: list[str], end: str) -> None:
    parser = Parser()
    found = [line for raw in lines if (line := parser.feed(raw + end)) is not None]
    last = parser.finish()
    assert found + ([last] if last else []) == list(parse(lines))
    assert parser.finish() is None


@given(LINES)
def test_every_job_has_a_command_and_the_number_of_a_line_in_order(lines: list[str]) -> None:
    found = list(parse(lines))
    numbers = [line.number for line in found]
    assert all(line.text.strip() and line.flags == line.flags.strip() for line in found)
    assert numbers == sorted(set(numbers)) and all(1 <= n <= len(lines) for n in numbers)


def test_job_knows_the_line_of_its_last_directive() -> None:
    found = with_places("a\n#stoker -G 1\n\nb\nc #stoker -G 2\nd\n")
    assert [(line.number, line.flags_at) for line in found] == [(1, 0), (4, 2), (5, 5), (6, 2)]
