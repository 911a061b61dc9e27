"""simple_hypersearch: the same lines in the same order, for less memory and with better errors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from stoker.compat.simple_gpu_scheduler import hypersearch
from stoker.compat.simple_gpu_scheduler.hypersearch import chosen, combinations, on_one_line
from tests.cli.helpers import refused
from tests.compat.conftest import Door
from tests.compat.test_attached import other_locale

__all__ = ["other_locale"]  # a fixture

AB = ("-p", "a", "1", "2", "3", "-p", "b", "x", "y", "z")
GRID = ("--sampling-mode", "grid")


@pytest.fixture
def door(new_door: Callable[..., Door]) -> Door:
    return new_door("simple_hypersearch", "stoker.compat.simple_gpu_scheduler.hypersearch")


def printed(door: Door, *words: str) -> list[str]:
    return door.ok(*words).splitlines()


# -- the contract --------------------------------------------------------------------------------


def test_a_grid_is_printed_with_the_last_parameter_fastest(door: Door) -> None:
    assert " ".join(printed(door, "{a}{b}", *GRID, *AB)) == "1x 1y 1z 2x 2y 2z 3x 3y 3z"


def test_a_seed_gives_the_order_that_it_has_always_given(door: Door) -> None:
    published = ["2z", "3x", "3y", "2y", "2x", "1x", "3z", "1y", "1z"]
    assert printed(door, "{a}{b}", "--seed", "1", *AB) == published
    assert printed(door, "{a}{b}", "--seed", "1", "--n-samples", "4", *AB) == published[:4]


def test_the_order_is_shuffled_by_default_and_every_combination_comes_once(door: Door) -> None:
    numbers = [str(number) for number in range(500)]
    words = printed(door, "{a}", "-p", "a", *numbers)
    assert words != numbers
    assert sorted(words, key=int) == numbers


@pytest.mark.parametrize(
    ("count", "lines"),
    [("2", ["1", "2"]), ("9", ["1", "2", "3"]), ("0", []), ("-1", ["1", "2"]), ("-7", [])],
)
def test_n_samples_takes_the_first(door: Door, count: str, lines: list[str]) -> None:
    words = ("{a}", *GRID, "--n-samples", count, "-p", "a", "1", "2", "3")
    assert printed(door, *words) == lines


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("{a}", "1e-3"),
        ("{{a}} }}{{", "{a} }{"),
        ("{a:>6}|{a:^6}|{a:6}|", "  1e-3| 1e-3 |1e-3  |"),
        ("{a!r}", "'1e-3'"),
        ("{a[0]}{a[3]}", "13"),
        ("  {a} $x 'y' ", "  1e-3 $x 'y' "),
    ],
)
def test_a_pattern_is_pythons(door: Door, pattern: str, line: str) -> None:
    assert door.ok(pattern, "-p", "a", "1e-3") == f"{line}\n"


def test_values_are_text_and_never_parsed_or_quoted(door: Door) -> None:
    values = ["1e-3", "0.10", "x y", "-1", "é", "$(date)"]
    assert printed(door, "{a}", *GRID, "-p", "a", *values) == values


def test_a_repeated_name_has_its_last_values_in_its_first_place(door: Door) -> None:
    words = ("-p", "a", "9", "-p", "b", "x", "y", "-p", "a", "1", "2")
    assert printed(door, "{a}{b}", *GRID, *words) == ["1x", "1y", "2x", "2y"]


def test_a_parameter_that_is_not_used_multiplies(door: Door) -> None:
    assert printed(door, "{a}", *GRID, "-p", "a", "1", "2", "-p", "b", "x", "y") == [*"1122"]


def test_a_parameter_without_values_prints_nothing(door: Door) -> None:
    assert door.ok("{a}", "-p", "a") == ""


def test_the_pattern_may_come_behind_another_option(door: Door) -> None:
    assert door.ok("-p", "a", "1", "--", "{a}") == "1\n"
    assert door.ok("--seed", "1", "{a}", "--parameter", "a", "1") == "1\n"
    assert door.run("-p", "a", "1", "{a}").returncode == 2


def test_options_can_be_abbreviated(door: Door) -> None:
    assert door.ok("{a}", "--samp", "grid", "--n", "1", "--par", "a", "1", "2") == "1\n"


def test_bytes_that_are_no_text_pass_through(door: Door) -> None:
    done = door.run(b"echo \xff {a}", "-p", "a", b"\xfe")
    assert done.stdout.encode("utf-8", "surrogateescape") == b"echo \xff \xfe\n"


def test_bytes_pass_through_in_every_locale(door: Door, other_locale: dict[str, str]) -> None:
    word = "\u00e9".encode()
    door.env.update(other_locale)
    done = door.run(b"echo " + word + b" \xff {a}", "-p", "a", word)
    assert done.stderr == ""
    assert done.stdout.encode("utf-8", "surrogateescape") == b"echo %b \xff %b\n" % (word, word)


# -- errors: one sentence, the old exit codes ------------------------------------------------------


def test_a_placeholder_without_parameter_is_refused(door: Door) -> None:
    refused(
        door.run("{a} {c}", "-p", "a", "1"),
        1,
        "the pattern has `{c}`, and there is no parameter `c`",
        "add -p c VALUE ..., or write {{ and }} for braces",
    )


def test_a_search_over_nothing_is_refused(door: Door) -> None:
    done = door.run("echo")
    refused(done, 1, "there is no parameter to search over", "add -p NAME VALUE ...")


@pytest.mark.parametrize("pattern", ["{a:.2f}", "{a", "}", "{}", "{a.b}", "{a[9]}", "{a[x]}"])
def test_a_pattern_that_makes_no_sense_is_refused(door: Door, pattern: str) -> None:
    done = door.run(pattern, "-p", "a", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the pattern cannot be filled in: ")
    assert done.stderr.splitlines()[1:] == ["hint: values are text; {{ and }} stand for braces"]


def test_an_error_in_a_late_combination_leaves_no_line_printed(door: Door) -> None:
    done = door.run("{a[2]}", *GRID, "-p", "a", "abc", "abc", "a")
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize(
    "words",
    [(), ("{a}", "--sampling-mode", "best", "-p", "a", "1"), ("{a}", "--seed", "x", "-p", "a")],
)
def test_a_command_line_that_makes_no_sense_exits_with_2(
    door: Door, words: tuple[str, ...]
) -> None:
    done = door.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: simple_hypersearch")


def test_a_reader_that_leaves_early_is_no_error(door: Door) -> None:
    line = "simple_hypersearch '{a}{b}{c}' -p a $(seq 100) -p b $(seq 100) -p c $(seq 50) | head -1"
    done = subprocess.run(["sh", "-c", line], env=door.env, capture_output=True, text=True)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        (">/dev/full", 1, "error: cannot write the output: No space left on device\n"),
        (">&-", 0, ""),
        (">/dev/full 2>&1", 1, ""),
        ("--help >/dev/full", 1, "error: cannot write the output: No space left on device\n"),
        ("--nope 2>/dev/full", 2, ""),
    ],
)
def test_output_that_cannot_be_written_is_a_sentence(
    door: Door, where: str, code: int, said: str
) -> None:
    line = f"simple_hypersearch '{{a}}' -p a 1 2 {where}"
    env = {**door.env, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_ctrl_c_while_python_imports_shows_nothing(door: Door) -> None:
    (door.folder / "random.py").write_text("import os\nos.kill(os.getpid(), 2)\nfor n in (): pass")
    done = door.run("{a}", "-p", "a", "1", PYTHONPATH=str(door.folder))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# -- grids that fit in no memory -----------------------------------------------------------------


def test_a_few_samples_of_a_huge_grid_need_no_memory() -> None:
    values = [[str(number) for number in range(1000)]] * 12  # 10^36
    for seed in (None, 7):
        points = list(combinations(values, False, 5, seed))
        assert len(set(points)) == 5
        assert all(len(point) == 12 for point in points)
    assert list(combinations(values, True, 2, None))[1] == ("0",) * 11 + ("1",)


def test_samples_of_a_huge_grid_can_be_repeated() -> None:
    assert list(chosen(10**30, 4, 3)) == list(chosen(10**30, 4, 3)) != list(chosen(10**30, 4, 4))


def test_a_few_unseeded_samples_come_without_a_list_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(hypersearch, "array")
    assert len(set(chosen(1000, 10, None))) == 10


def test_a_huge_grid_is_printed_in_order_as_it_is_made(door: Door) -> None:
    values = [word for number in range(20) for word in ("-p", f"a{number}", *"0123456789")]
    pattern = "".join(f"{{a{number}}}" for number in range(20))
    run = door.popen(pattern, *GRID, *values, stderr=subprocess.DEVNULL)
    assert run.stdout is not None
    assert run.stdout.readline() == f"{0:020}\n"
    assert run.stdout.readline() == f"{1:020}\n"
    run.stdout.close()
    assert run.wait(timeout=60) == 0


def test_to_shuffle_a_huge_grid_is_refused(door: Door) -> None:
    values = [word for number in range(12) for word in ("-p", f"a{number}", *"0123456789")]
    refused(
        door.run("{a0}", *values),
        1,
        "1000000000000 of 1000000000000 combinations are too many to shuffle",
        "give a smaller --n-samples, or --sampling-mode grid",
    )


# -- patterns of several lines ---------------------------------------------------------------------

SCRIPT = """mkdir -p '{d}/x'
for i in 1 2; do
  echo "$i 50% \\
more" >> "{d}/x/out"
done
printf '%s\\n' a\\\\b >> {d}/x/out; (exit 3)"""


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_pattern_of_several_lines_is_one_line_and_one_command_for_a_shell(
    door: Door, shell: str
) -> None:
    lines = printed(door, SCRIPT, *GRID, "-p", "d", "one", "two")
    assert len(lines) == 2
    for folder, line in zip(("one", "two"), lines, strict=True):
        done = subprocess.run([shell, "-c", line], cwd=door.folder, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
        out = (door.folder / folder / "x" / "out").read_text()
        assert out == "1 50% more\n2 50% more\na\\b\n"


def test_a_pattern_of_several_lines_changes_nothing_for_the_next_command(door: Door) -> None:
    line = "simple_hypersearch 'cd /\nx={a}; pwd' --sampling-mode grid -p a 1 2 | sh; pwd"
    done = subprocess.run(["sh", "-c", line], env=door.env, cwd=door.folder, capture_output=True)
    assert done.stdout.decode() == f"/\n/\n{door.folder}\n"


def test_line_ends_around_a_pattern_do_not_count() -> None:
    assert on_one_line("\necho a\n") == "echo a"
    assert on_one_line("-x\ny") == "(eval \"$(printf '\\055x\\ny')\")"
