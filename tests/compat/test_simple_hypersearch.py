"""simple_hypersearch: the same lines in the same order, with less memory and clear errors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from stoker.compat.simple_gpu_scheduler import hypersearch
from stoker.compat.simple_gpu_scheduler.hypersearch import chosen, combinations, on_one_line
from tests.cli.helpers import refused
from tests.compat.conftest import CompatLab
from tests.compat.test_foreground import other_locale

__all__ = ["other_locale"]  # a fixture

AB = ("-p", "a", "1", "2", "3", "-p", "b", "x", "y", "z")
GRID = ("--sampling-mode", "grid")


@pytest.fixture
def lab(new_compat_lab: Callable[..., CompatLab]) -> CompatLab:
    return new_compat_lab("simple_hypersearch", "stoker.compat.simple_gpu_scheduler.hypersearch")


def printed(lab: CompatLab, *words: str) -> list[str]:
    return lab.ok(*words).splitlines()


# -- the contract --------------------------------------------------------------------------------


def test_grid_varies_the_last_parameter_fastest(lab: CompatLab) -> None:
    assert " ".join(printed(lab, "{a}{b}", *GRID, *AB)) == "1x 1y 1z 2x 2y 2z 3x 3y 3z"


def test_seed_gives_the_same_order_as_the_original(lab: CompatLab) -> None:
    published = ["2z", "3x", "3y", "2y", "2x", "1x", "3z", "1y", "1z"]
    assert printed(lab, "{a}{b}", "--seed", "1", *AB) == published
    assert printed(lab, "{a}{b}", "--seed", "1", "--n-samples", "4", *AB) == published[:4]


def test_default_order_is_shuffled_and_has_every_combination_once(lab: CompatLab) -> None:
    numbers = [str(number) for number in range(500)]
    words = printed(lab, "{a}", "-p", "a", *numbers)
    assert words != numbers
    assert sorted(words, key=int) == numbers


@pytest.mark.parametrize(
    ("count", "lines"),
    [("2", ["1", "2"]), ("9", ["1", "2", "3"]), ("0", []), ("-1", ["1", "2"]), ("-7", [])],
)
def test_n_samples_prints_the_first_combinations(
    lab: CompatLab, count: str, lines: list[str]
) -> None:
    words = ("{a}", *GRID, "--n-samples", count, "-p", "a", "1", "2", "3")
    assert printed(lab, *words) == lines


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
def test_pattern_is_a_python_format_string(lab: CompatLab, pattern: str, line: str) -> None:
    assert lab.ok(pattern, "-p", "a", "1e-3") == f"{line}\n"


def test_values_are_strings_and_never_parsed_or_quoted(lab: CompatLab) -> None:
    values = ["1e-3", "0.10", "x y", "-1", "é", "$(date)"]
    assert printed(lab, "{a}", *GRID, "-p", "a", *values) == values


def test_repeated_name_uses_its_last_values_at_its_first_position(lab: CompatLab) -> None:
    words = ("-p", "a", "9", "-p", "b", "x", "y", "-p", "a", "1", "2")
    assert printed(lab, "{a}{b}", *GRID, *words) == ["1x", "1y", "2x", "2y"]


def test_unused_parameter_multiplies_the_output(lab: CompatLab) -> None:
    assert printed(lab, "{a}", *GRID, "-p", "a", "1", "2", "-p", "b", "x", "y") == [*"1122"]


def test_parameter_without_values_prints_nothing(lab: CompatLab) -> None:
    assert lab.ok("{a}", "-p", "a") == ""


def test_pattern_may_follow_another_option(lab: CompatLab) -> None:
    assert lab.ok("-p", "a", "1", "--", "{a}") == "1\n"
    assert lab.ok("--seed", "1", "{a}", "--parameter", "a", "1") == "1\n"
    assert lab.run("-p", "a", "1", "{a}").returncode == 2


def test_options_can_be_abbreviated(lab: CompatLab) -> None:
    assert lab.ok("{a}", "--samp", "grid", "--n", "1", "--par", "a", "1", "2") == "1\n"


def test_undecodable_bytes_are_printed_unchanged(lab: CompatLab) -> None:
    done = lab.run(b"echo \xff {a}", "-p", "a", b"\xfe")
    assert done.stdout.encode("utf-8", "surrogateescape") == b"echo \xff \xfe\n"


def test_bytes_are_printed_unchanged_in_every_locale(
    lab: CompatLab, other_locale: dict[str, str]
) -> None:
    word = "\u00e9".encode()
    lab.env.update(other_locale)
    done = lab.run(b"echo " + word + b" \xff {a}", "-p", "a", word)
    assert done.stderr == ""
    assert done.stdout.encode("utf-8", "surrogateescape") == b"echo %b \xff %b\n" % (word, word)


# -- errors: one sentence, the exit codes of the original ------------------------------------------


def test_placeholder_without_a_parameter_is_an_error(lab: CompatLab) -> None:
    refused(
        lab.run("{a} {c}", "-p", "a", "1"),
        1,
        "the pattern uses `{c}`, but there is no parameter `c`",
        "add -p c VALUE ..., or write {{ and }} for literal braces",
    )


def test_search_without_parameters_is_an_error(lab: CompatLab) -> None:
    done = lab.run("echo")
    refused(done, 1, "no parameter given", "add one with -p NAME VALUE ...")


@pytest.mark.parametrize("pattern", ["{a:.2f}", "{a", "}", "{}", "{a.b}", "{a[9]}", "{a[x]}"])
def test_invalid_pattern_is_an_error(lab: CompatLab, pattern: str) -> None:
    done = lab.run(pattern, "-p", "a", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: cannot format the pattern: ")
    assert done.stderr.splitlines()[1:] == [
        "hint: values are strings; write {{ and }} for literal braces"
    ]


def test_error_in_a_late_combination_prints_no_line(lab: CompatLab) -> None:
    done = lab.run("{a[2]}", *GRID, "-p", "a", "abc", "abc", "a")
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize(
    "words",
    [(), ("{a}", "--sampling-mode", "best", "-p", "a", "1"), ("{a}", "--seed", "x", "-p", "a")],
)
def test_usage_error_exits_with_2(lab: CompatLab, words: tuple[str, ...]) -> None:
    done = lab.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: simple_hypersearch")


def test_reader_may_close_the_pipe_early(lab: CompatLab) -> None:
    line = "simple_hypersearch '{a}{b}{c}' -p a $(seq 100) -p b $(seq 100) -p c $(seq 50) | head -1"
    done = subprocess.run(["sh", "-c", line], env=lab.env, capture_output=True, text=True)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">/dev/full", 1, "error: cannot write the output: No space left on device\n"),
        (">&-", 0, ""),
        (">/dev/full 2>&1", 1, ""),
        ("--help >/dev/full", 1, "error: cannot write the output: No space left on device\n"),
        ("--nope 2>/dev/full", 2, ""),
    ],
)
def test_write_error_is_reported_in_one_sentence(
    lab: CompatLab, redirection: str, code: int, message: str
) -> None:
    line = f"simple_hypersearch '{{a}}' -p a 1 2 {redirection}"
    env = {**lab.env, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


def test_ctrl_c_during_imports_prints_nothing(lab: CompatLab) -> None:
    (lab.folder / "random.py").write_text("import os\nos.kill(os.getpid(), 2)\nfor n in (): pass")
    done = lab.run("{a}", "-p", "a", "1", PYTHONPATH=str(lab.folder))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# -- grids that are larger than memory -----------------------------------------------------------


def test_samples_of_a_huge_grid_are_generated_without_the_grid() -> None:
    values = [[str(number) for number in range(1000)]] * 12  # 10^36
    for seed in (None, 7):
        points = list(combinations(values, False, 5, seed))
        assert len(set(points)) == 5
        assert all(len(point) == 12 for point in points)
    assert list(combinations(values, True, 2, None))[1] == ("0",) * 11 + ("1",)


def test_samples_of_a_huge_grid_are_reproducible() -> None:
    assert list(chosen(10**30, 4, 3)) == list(chosen(10**30, 4, 3)) != list(chosen(10**30, 4, 4))


def test_few_unseeded_samples_need_no_list_of_all_combinations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(hypersearch, "array")
    assert len(set(chosen(1000, 10, None))) == 10


def test_huge_grid_is_printed_while_it_is_generated(lab: CompatLab) -> None:
    values = [word for number in range(20) for word in ("-p", f"a{number}", *"0123456789")]
    pattern = "".join(f"{{a{number}}}" for number in range(20))
    run = lab.popen(pattern, *GRID, *values, stderr=subprocess.DEVNULL)
    assert run.stdout is not None
    assert run.stdout.readline() == f"{0:020}\n"
    assert run.stdout.readline() == f"{1:020}\n"
    run.stdout.close()
    assert run.wait() == 0


def test_shuffling_a_huge_grid_is_an_error(lab: CompatLab) -> None:
    values = [word for number in range(12) for word in ("-p", f"a{number}", *"0123456789")]
    refused(
        lab.run("{a0}", *values),
        1,
        "1000000000000 of 1000000000000 combinations are too many to shuffle",
        "use a smaller --n-samples or --sampling-mode grid",
    )


# -- multi-line patterns ---------------------------------------------------------------------------

SCRIPT = """mkdir -p '{d}/x'
for i in 1 2; do
  echo "$i 50% \\
more" >> "{d}/x/out"
done
printf '%s\\n' a\\\\b >> {d}/x/out; (exit 3)"""


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_multi_line_pattern_is_printed_as_one_line_that_a_shell_runs_as_one_command(
    lab: CompatLab, shell: str
) -> None:
    lines = printed(lab, SCRIPT, *GRID, "-p", "d", "one", "two")
    assert len(lines) == 2
    for folder, line in zip(("one", "two"), lines, strict=True):
        done = subprocess.run([shell, "-c", line], cwd=lab.folder, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
        out = (lab.folder / folder / "x" / "out").read_text()
        assert out == "1 50% more\n2 50% more\na\\b\n"


def test_multi_line_pattern_does_not_affect_the_next_command(lab: CompatLab) -> None:
    line = "simple_hypersearch 'cd /\nx={a}; pwd' --sampling-mode grid -p a 1 2 | sh; pwd"
    done = subprocess.run(["sh", "-c", line], env=lab.env, cwd=lab.folder, capture_output=True)
    assert done.stdout.decode() == f"/\n/\n{lab.folder}\n"


def test_newlines_around_a_pattern_are_ignored() -> None:
    assert on_one_line("\necho a\n") == "echo a"
    assert on_one_line("-x\ny") == "(eval \"$(printf '\\055x\\ny')\")"
