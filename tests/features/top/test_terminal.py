"""`stoker top` on a real pseudo-terminal: start, end, sizes and colors."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from stoker.engine.supervisor.process_table import STOPPED, process_state
from stoker.features.top.screen import FILTER_EXAMPLES, KEYS
from tests.cli.helpers import Terminal, refused
from tests.docs import pages
from tests.lab import Lab

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "top.md").read_text("utf-8")
_LEAVE = "\x1b[?1049l"  # back to the screen with the shell
_SHOW_CURSOR = "\x1b[?25h"
_COLOR = re.compile(r"\x1b\[(?:[0-9;]*;)?[34][0-8](?:;[0-9;]*)?m")


@pytest.mark.parametrize(
    ("end", "code"),
    [(b"q", 0), (b"\x03", 0), (signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_every_end_restores_the_terminal(lab: Lab, end: bytes | signal.Signals, code: int) -> None:
    terminal = Terminal(lab, "top")
    terminal.read_until("no jobs yet")
    assert terminal.modes() != terminal.modes_before
    if isinstance(end, bytes):
        terminal.write(end)
    else:
        terminal.signal(end)
    terminal.read_until(_LEAVE)
    terminal.read_until(_SHOW_CURSOR)
    assert terminal.modes() == terminal.modes_before
    assert terminal.close() == code
    assert "Traceback" not in terminal.text and "Warning" not in terminal.text


def test_resized_terminal_is_drawn_again(lab: Lab) -> None:
    terminal = Terminal(lab, "top")
    terminal.read_until("no jobs yet")
    terminal.resize(8, 40)
    terminal.read_until("too small")
    terminal.text = ""
    terminal.resize(30, 100)
    terminal.read_until("no jobs yet")
    terminal.write(b"q")
    assert terminal.close() == 0


def test_continued_program_draws_the_whole_screen_again(lab: Lab) -> None:
    terminal = Terminal(lab, "top")
    terminal.read_until("no jobs yet")
    terminal.write(b"\x1a")  # Ctrl-Z
    terminal.read_until(_SHOW_CURSOR)
    lab.wait_until(lambda: process_state(terminal.pid) == STOPPED)
    assert terminal.modes() == terminal.modes_before
    terminal.text = ""
    terminal.signal(signal.SIGCONT)
    for text in ("stoker top", "no jobs yet", "quit"):
        terminal.read_until(text)
    terminal.write(b"q")
    assert terminal.close() == 0


@pytest.mark.parametrize("has_colors", [True, False])
def test_colors_are_the_16_of_the_terminal_or_none(lab: Lab, has_colors: bool) -> None:
    if has_colors:
        del lab.env["NO_COLOR"]
    job = lab.submit("--name", "a-failure", "false")
    lab.wait(job)
    terminal = Terminal(lab, "top")
    terminal.read_until("a-failure")
    terminal.write(b"q")
    assert terminal.close() == 0
    colors = _COLOR.findall(terminal.text)
    assert bool(colors) == has_colors
    assert not re.search("[34]8;[25];", terminal.text)


def test_program_without_a_terminal_is_refused(lab: Lab) -> None:
    refused(
        lab.run("top"), 2, "`stoker top` needs a terminal for input and output",
        "without one: stoker status",
    )  # fmt: skip


def test_missing_textual_has_a_hint_how_to_install_it(lab: Lab) -> None:
    module = lab.folder / "modules" / "textual"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text("raise ModuleNotFoundError(name='textual')\n")
    lab.env["PYTHONPATH"] = str(module.parent)
    terminal = Terminal(lab, "top")
    assert terminal.close() == 69
    assert terminal.text == ("error: textual is not installed\nhint: pip install 'stoker[top]'\n")


def test_other_commands_do_not_import_textual(lab: Lab) -> None:
    script = (
        "import sys\n"
        "from stoker.cli.main import main\n"
        "main(['ls'])\n"
        "print([name for name in ('textual', 'rich', 'asyncio') if name in sys.modules])"
    )
    lab.command = [sys.executable, "-c", script]
    assert lab.ok() == "no jobs\n[]\n"


def test_page_of_the_docs_has_the_screen_and_all_keys() -> None:
    screen = (Path(__file__).parent / "screens" / "jobs_30_80x24.txt").read_text("utf-8")
    assert screen in PAGE
    for keys, words in (*KEYS, *FILTER_EXAMPLES):
        assert f"| `{keys}` | {words} |" in PAGE


def test_commands_of_the_page_work_as_typed(lab: Lab) -> None:
    typed = [shlex.split(command.text, comments=True) for command in pages.commands("top.md")]
    assert len(typed) > 2
    for program, *words in typed:
        if program == "stoker" and words[0] == "top":
            terminal = Terminal(lab, *words)
            terminal.read_until("quit")
            terminal.write(b"q")
            assert terminal.close() == 0
        elif program == "stoker":
            lab.ok(*words)
        else:
            assert program == "pip"
