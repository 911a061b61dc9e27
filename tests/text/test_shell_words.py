"""Commands that need no shell, checked with real shells."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stoker.text.byte_text import to_bytes, to_text
from stoker.text.commands.shell_words import display, plain_words, quote

SHELLS = [shell for shell in ("/bin/sh", "/bin/bash", "/bin/zsh") if shutil.which(shell)]
Run = Callable[[str, str], tuple[str, ...]]


@pytest.fixture(scope="module")
def argv_of(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs `show TEXT` with a shell; the words that `show` was given."""
    show = tmp_path_factory.mktemp("bin") / "show"
    show.write_text("#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done\n")
    show.chmod(0o755)
    assert plain_words(str(show)) == (str(show),)

    def run(shell: str, text: str) -> tuple[str, ...]:
        done = subprocess.run(
            [shell, "-c", to_bytes(f"{show} {text}")], stdout=subprocess.PIPE, check=True
        )
        return tuple(to_text(word) for word in done.stdout.split(b"\0")[:-1])

    return run


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# Texts that have a chance to be plain: few of the characters that mean something to a shell.
PLAIN_TEXT = st.one_of(
    st.text(st.sampled_from("abcXYZ019-_=+,./:@% \t")),
    st.text(
        st.characters(
            exclude_categories=["Cs"],
            exclude_characters="\0\n\r\v\f|&;<>()$`\\\"'*?[]#~{}!^",
        )
    ),
    st.binary().map(lambda blob: to_text(blob.replace(b"\0", b""))),
)


@pytest.mark.parametrize("shell", SHELLS)
@given(text=PLAIN_TEXT)
@example("a  b\tc")
@example("--lr=0.1 x=y")
@example("\x01\x7f\x81\x88")
@example("\xa0 \u3000 \u2028")
def test_plain_command_has_the_same_words_in_a_shell(argv_of: Run, shell: str, text: str) -> None:
    words = plain_words(f"show {text}")
    assume(words is not None)
    assert words is not None and words[0] == "show"
    assert argv_of(shell, text) == words[1:]


@pytest.mark.parametrize("shell", SHELLS)
@given(words=st.lists(ANY_TEXT | PLAIN_TEXT, max_size=5))
@example([""])
@example(["it's", "$HOME", "a\nb", "*", "-n", "\\"])
def test_quoted_words_survive_a_shell(argv_of: Run, shell: str, words: list[str]) -> None:
    assert argv_of(shell, " ".join(map(quote, words))) == tuple(words)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "\t", "a|b", "a; b", "a & b", "a > b", "echo $HOME", "ls *.py", "a 'b'", 'a "b"',
        "a\nb", "a\\ b", "~/run", "a #b", "a {1,2}", "!x", "X=1 env", "cd /tmp", "exit 3",
        "time python x.py", ". ./env", "test -f x", "%1", "run =python", "a [bc]", "(a)", "`a`",
        "if true", "not true", "a\rb",
    ],
)  # fmt: skip
def test_command_with_shell_syntax_needs_a_shell(text: str) -> None:
    assert plain_words(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python train.py --lr=0.1", ("python", "train.py", "--lr=0.1")),
        ("  ./run\t-x  ", ("./run", "-x")),
        ("a cd", ("a", "cd")),
        ("/usr/bin/time x", ("/usr/bin/time", "x")),
        ("run \udcff é", ("run", "\udcff", "é")),
    ],
)
def test_command_without_shell_syntax_is_split_into_words(
    text: str, words: tuple[str, ...]
) -> None:
    assert plain_words(text) == words


def test_shell_builtins_need_a_shell() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash to ask")
    listed = subprocess.run([bash, "-c", "compgen -bk"], capture_output=True, text=True, check=True)
    known = listed.stdout.split()
    assert len(known) > 50
    assert [word for word in known if plain_words(f"{word} x") is not None] == []


def test_commands_are_displayed_as_typed() -> None:
    assert display(("cd data && ./run 'x'",), shell=True) == "cd data && ./run 'x'"
    assert display(("run", "a b", "--lr=1", ""), shell=False) == "run 'a b' --lr=1 ''"


def test_script_of_this_file_is_what_a_shell_runs(argv_of: Run, tmp_path: Path) -> None:
    """The fixture distinguishes words; otherwise the properties above would prove nothing."""
    assert argv_of("/bin/sh", "a 'b c' \"\"") == ("a", "b c", "")
