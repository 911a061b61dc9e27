"""Which commands run a Python program that a fork can run."""

from __future__ import annotations

import pytest

from stoker.text.command_line import Option, Verb, own_words, parse
from stoker.text.commands.python_command import PythonCommand, parse_python, quoted_words


@pytest.mark.parametrize(
    ("command", "flags", "kind", "program", "arguments"),
    [
        ("python train.py", (), "script", "train.py", ()),
        ("/opt/venv/bin/python3.12 -u a/b.py -m x", ("-u",), "script", "a/b.py", ("-m", "x")),
        ("python3 -m pkg.part --lr 1", (), "module", "pkg.part", ("--lr", "1")),
        ("python -um pkg", ("-u",), "module", "pkg", ()),
        ("python -mpkg -c", (), "module", "pkg", ("-c",)),
        ("python -Wignore -X dev -OO x.py", ("-W", "ignore", "-X", "dev", "-OO"), "script", "x.py",
         ()),
        ("python -c code arg", (), "code", "code", ("arg",)),
    ],
)  # fmt: skip
def test_python_programs_are_recognized(
    command: str, flags: tuple[str, ...], kind: str, program: str, arguments: tuple[str, ...]
) -> None:
    words = tuple(command.split())
    assert parse_python(words) == PythonCommand(words[0], flags, kind, program, arguments)


@pytest.mark.parametrize(
    "command",
    ["uv run python x.py", "torchrun x.py", "pythonx x.py", "python", "python -", "python -i x.py",
     "python -V", "python --version", "python -X importtime x.py", "python -m", "ipython x.py"],
)  # fmt: skip
def test_other_commands_are_refused_with_a_reason(command: str) -> None:
    assert isinstance(parse_python(tuple(command.split())), str)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python x.py 'a b' \"c d\"", ("python", "x.py", "a b", "c d")),
        ("python x.py --name='a'b", ("python", "x.py", "--name=ab")),
        ("python x.py ''", ("python", "x.py", "")),
        ("python -c 'print(\"$HOME\")'", ("python", "-c", 'print("$HOME")')),
        ("python x.py $HOME", None),
        ('python x.py "$HOME"', None),
        ("python x.py a\\ b", None),
        ("python x.py | cat", None),
        ("python x.py 'open", None),
        ("python x.py *.txt", None),
        ("python x.py ~/a", None),
        ("python x.py =ls", None),
        ("python x.py {a,b}", None),
        ("python x.py # comment", None),
        ("", None),
    ],
)
def test_shell_text_with_quotes_is_split_only_if_it_has_no_other_syntax(
    text: str, words: tuple[str, ...] | None
) -> None:
    assert quoted_words(text) == words


_VERB = Verb(
    "submit",
    "submit",
    "",
    (Option("--warm", "", "MODULES", lambda text: text or "learned", optional=True),),
    keeps_words=True,
    words="files",
)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--warm", "python", "x.py"], "learned"),
        (["--warm=", "python", "x.py"], "learned"),
        (["--warm=torch", "python", "x.py"], "torch"),
        (["python", "x.py"], None),
    ],
)
def test_option_with_an_optional_value_takes_it_only_after_an_equals_sign(
    arguments: list[str], value: str | None
) -> None:
    parsed = parse(_VERB, arguments)
    assert (parsed["warm"], parsed.words) == (value, ["python", "x.py"])
    assert own_words(_VERB, arguments) == [word for word in arguments if word.startswith("-")]
