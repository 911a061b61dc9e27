"""Help texts, suggestions after typos, completion."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from stoker import __version__
from stoker.cli import help
from stoker.cli.main import VERBS, load
from tests.cli.helpers import as_json, refused
from tests.lab import Lab

# docs/commands.md has the lines of the commands; test_docs.py compares it with the code.
HELP = (
    """\
usage: stoker [--host HOST] [COMMAND] [OPTIONS]

Schedule jobs on the GPUs of this host, or of another one over ssh (--host).

commands:
"""
    + "".join(f"  {name:<10}  {text}\n" for name, text in VERBS.items())
    + """\

`stoker COMMAND --help` shows options and examples; `stoker help selectors` explains how to select
jobs.

first steps:
  stoker submit python train.py --lr 0.1
  stoker log -f @
  stoker run --devices 0,1 jobs.txt
"""
)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(lab: Lab, words: list[str]) -> None:
    assert lab.ok(*words) == HELP
    assert not lab.state_dir.exists()


def test_help_explains_selectors(lab: Lab) -> None:
    assert lab.ok("help", "selectors").startswith("How to select jobs")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_command_has_a_help_text(lab: Lab, verb: str) -> None:
    text = lab.ok(verb, "--help")
    head, _, rest = text.partition("\n\n")
    assert re.fullmatch(rf"usage: stoker \[?{verb}\]?( .*)?", head)
    summary, _, rest = rest.partition("\n\n")
    assert summary.rstrip().endswith(".")
    options, _, examples = rest.partition("\n\nexamples:\n")
    assert "options:\n" in options
    assert "\n  -h, --help                  show this help message and exit\n" in options
    assert "  stoker" in examples
    assert all(len(line) <= 100 for line in text.splitlines())
    assert lab.ok("help", verb) == text
    assert not lab.state_dir.exists()


@pytest.mark.parametrize("width", [30, 59, 60, 80, 200])
@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_wraps_between_words(verb: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.cli.main import load

    def help_at(columns: int) -> str:
        monkeypatch.setattr(help, "columns", lambda: columns)
        return help.help_text(load(verb).VERB)

    text = help_at(width)
    assert text.split() == help_at(10_000).split()
    commands = {line for line, _ in load(verb).VERB.examples}
    for line in text.splitlines():
        is_one_word = len(line.split()) <= 1
        assert len(line) <= width or is_one_word or line.strip() in commands, line


def test_help_option_may_follow_the_words_of_a_command(lab: Lab) -> None:
    assert lab.ok("ls", "1-3", "-h").startswith("usage: stoker ls ")
    assert lab.ok("clean", "7", "-h").startswith("usage: stoker clean ")


@pytest.mark.parametrize("verb", VERBS)
def test_examples_of_a_command_parse(lab: Lab, verb: str) -> None:
    """No example in a help text causes a usage error, except pipes and what sends messages."""
    (lab.folder / "jobs.txt").write_text("true\n")
    examples = lab.ok(verb, "--help").partition("\nexamples:\n")[2]
    for line in re.findall(r"^  (stoker.*)$", examples, re.MULTILINE):
        left_out = r"[|>&]|completion|daemon|^stoker run|-f @$|wait|notify test"
        if re.search(left_out, line.split("'")[0]):
            continue
        command = line.replace("stoker", f"{sys.executable} -m stoker", 1)
        done = subprocess.run(
            ["sh", "-c", command.replace(" submit ", " submit --hold ")],
            env=lab.env, cwd=lab.folder, capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        refusals = ("has no option", "takes no arguments", " given", "is not a ")
        is_refused = any(words in done.stderr for words in refusals)
        assert not is_refused or "is not a sweep" in done.stderr, (line, done.stderr)


def test_help_for_an_unknown_command_is_refused(lab: Lab) -> None:
    refused(lab.run("help", "xyzzy"), 2, "there is no help for `xyzzy`",
            "`stoker help` lists the commands")  # fmt: skip
    refused(lab.run("help", "selector"), 2, "there is no help for `selector`",
            "did you mean `stoker help selectors`?")  # fmt: skip


def test_global_options_may_precede_the_command(lab: Lab) -> None:
    assert as_json(lab.ok("--json", "ls"))["jobs"] == []
    assert lab.ok("--debug", "ls") == "no jobs\n"
    assert as_json(lab.ok("--debug", "--json", "submit", "--hold", "echo", "--json"))["jobs"] == [1]
    assert lab.job(1)["argv"] == ["echo", "--json"]
    error = as_json(lab.run("--json", "show", "7").stdout)["error"]
    assert error["message"] == "there is no job 7"
    assert lab.ok("--json", "help", "ls").startswith("usage: stoker ls ")


def test_version_is_printed(lab: Lab) -> None:
    for words in (["--version"], ["-V"], ["version"]):
        assert lab.ok(*words) == f"stoker {__version__}\n"


def test_unknown_command_suggests_a_similar_one(lab: Lab) -> None:
    refused(lab.run("sbumit", "x"), 2, "`sbumit` is not a Stoker command",
            "did you mean `stoker submit`?")  # fmt: skip
    refused(lab.run("python", "train.py"), 2, "`python` is not a Stoker command",
            "to queue it as a job: stoker submit python ...")  # fmt: skip


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("ps", "did you mean `stoker ls`?"),
        ("stop", "did you mean `stoker cancel JOB` or `stoker daemon stop`?"),
        ("exit", "did you mean `stoker daemon stop` or `stoker cancel all`?"),
        ("metrics", "did you mean `stoker results`?"),
        ("sbatch", "did you mean `stoker submit`?"),
        ("tail", "did you mean `stoker log -f`?"),
        ("nvidia-smi", "did you mean `stoker gpus`?"),
        ("make", "to queue it as a job: stoker submit make ..."),
    ],
)
def test_command_of_another_tool_suggests_the_one_of_stoker(lab: Lab, word: str, hint: str) -> None:
    refused(lab.run(word), 2, f"`{word}` is not a Stoker command", hint)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("submit", "--cores"), "did you mean `--cpus`?"),
        (("run", "--ncpus"), "did you mean `--cpus`?"),
        (("edit", "--memory"), "did you mean `--mem`?"),
        (("submit", "--queue"), "there is only one queue; remove the option"),
        (("submit", "--licenses"), "did you mean `--need`?"),
        (("submit", "--time"), "did you mean `--time-limit`?"),
        (("submit", "--depends-on"), "did you mean `--after`?"),
        (("submit", "--prioriyt"), "did you mean `--priority`?"),
        (("gpus", "--cpus"), "see `stoker gpus --help`"),
        (("ls", "--cpus"), "see `stoker ls --help`"),
    ],
)
def test_option_of_another_tool_suggests_the_one_of_stoker(
    lab: Lab, words: tuple[str, str], hint: str
) -> None:
    verb, option = words
    refused(lab.run(verb, option, "2"), 2, f"`stoker {verb}` has no option `{option}`", hint)


def test_suggested_commands_and_options_exist() -> None:
    from stoker.cli.main import load
    from stoker.text import known_words
    from stoker.text.command_line import all_options

    suggested = [
        *known_words.COMMANDS.values(),
        *(s for both in known_words.EITHER.values() for s in both),
    ]
    assert {text.split()[1] for text in suggested} <= set(VERBS)
    names = {
        name
        for verb in VERBS
        for option in all_options(load(verb).VERB)
        for name in option.names.split()
    }
    assert set(known_words.OPTIONS.values()) <= names
    assert not set(known_words.COMMANDS) & set(VERBS)


def test_unknown_option_suggests_a_similar_one(lab: Lab) -> None:
    refused(lab.run("submit", "--gpu", "2", "x"), 2, "`stoker submit` has no option `--gpu`",
            "did you mean `--gpus`?")  # fmt: skip
    refused(lab.run("ls", "-Z"), 2, "`stoker ls` has no option `-Z`", "see `stoker ls --help`")


def test_options_with_wrong_values_are_refused(lab: Lab) -> None:
    refused(lab.run("submit", "--gpus"), 2, "`--gpus` needs a value (N)")
    refused(lab.run("ls", "--watch=1"), 2, "`--watch` takes no value", "see `stoker ls --help`")


@pytest.mark.parametrize("verb", ["status", "clean", "doctor"])
def test_unexpected_words_are_refused(lab: Lab, verb: str) -> None:
    refused(lab.run(verb, "7"), 2, f"`stoker {verb}` takes no arguments, but got `7`",
            f"see `stoker {verb} --help`")  # fmt: skip


def test_errors_are_json_with_json_option(lab: Lab) -> None:
    done = lab.run("show", "--json", "7")
    assert (done.returncode, done.stderr) == (1, "")
    assert as_json(done.stdout)["error"] == {
        "code": "not_found",
        "message": "there is no job 7",
        "hint": "`stoker ls` shows the jobs",
    }
    done = lab.run("submit", "--gpus", "9", "--json", "x")
    assert (done.returncode, as_json(done.stdout)["error"]["code"]) == (65, "impossible")
    done = lab.run("ls", "--jsn", "--json")
    assert (done.returncode, as_json(done.stdout)["error"]["code"]) == (2, "usage")


def test_json_and_debug_after_the_command_belong_to_it(lab: Lab) -> None:
    done = lab.run("submit", "--gpus", "9", "python", "x.py", "--json", "--debug")
    assert (done.returncode, done.stdout) == (65, "")
    assert done.stderr.startswith("error: the job requests 9 GPUs")
    assert "Traceback" not in done.stderr


def test_debug_prints_a_traceback(lab: Lab) -> None:
    done = lab.run("show", "7", "--debug")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")


def test_completion_of_an_unknown_shell_is_refused(lab: Lab) -> None:
    refused(lab.run("completion"), 2, "give exactly one shell", "shells: bash, zsh, fish")
    refused(lab.run("completion", "tcsh"), 2, "shell `tcsh` is not supported",
            "shells: bash, zsh, fish")  # fmt: skip


def test_completion_has_no_json_option(lab: Lab) -> None:
    assert "--json" not in lab.ok("completion", "--help")
    done = lab.run("completion", "bash", "--json")
    assert (done.returncode, "has no option `--json`" in done.stdout) == (2, True)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_summary_of_a_command_is_one_line_that_help_wraps(verb: str) -> None:
    assert "\n" not in load(verb).VERB.summary


@pytest.mark.parametrize("verb", ["submit", "run", "sweep"])
def test_help_says_that_a_time_limit_of_zero_is_no_limit(lab: Lab, verb: str) -> None:
    assert "(0: no limit; without unit: minutes)" in " ".join(lab.ok(verb, "--help").split())
