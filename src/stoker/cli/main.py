"""The `stoker` command: import only the module of the requested command, run it, print errors."""

from __future__ import annotations

import gc
import os
import sys

from stoker.errors import Error, OutputFailed, TryLater, UsageError
from stoker.features import COMMANDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# While modules are imported, almost nothing is garbage, so the collector runs less often.
gc.set_threshold(20_000, *gc.get_threshold()[1:])

# Each command is in cli/verbs/NAME.py, or in the folder of its feature (features/__init__.py); the
# text is its line in `stoker help`.
_ORDER = {
    "submit": "queue a command, a job file or lines from stdin",
    "run": "run jobs in the foreground, without the daemon",
    "shell": "",
    "attach": "",
    "sweep": "",
    "results": "",
    "plot": "",
    "report": "",
    "status": "show GPUs, running and waiting jobs (the default command)",
    "top": "",
    "ls": "list jobs",
    "show": "show everything about a job",
    "why": "explain why a job waits",
    "log": "show the output of a job",
    "wait": "wait until jobs finish",
    "cancel": "cancel jobs: SIGTERM, then SIGKILL, to all processes of a job",
    "hold": "keep waiting jobs from starting",
    "release": "let held jobs start",
    "rerun": "submit finished jobs again",
    "priority": "change the priority of waiting jobs",
    "edit": "change a job that has not started",
    "note": "",
    "tag": "",
    "star": "",
    "rm": "remove finished jobs and their logs",
    "clean": "remove finished jobs: all, or only old ones",
    "web": "start the web UI: GPUs and jobs, live, in the browser",
    "gpus": "show GPUs and the processes on them; drain, restore, set slots",
    "notify": "",
    "backend": "",
    "simulate": "",
    "daemon": "start, stop, drain, resume or inspect the daemon",
    "doctor": "check this host and explain problems",
    "pull": "",
    "config": "show the settings with their sources; set and edit them",
    "profile": "show the profiles of the settings, for `--profile`",
    "context": "",
    "completion": "print the completion script for bash, zsh or fish",
}  # "": the command of a feature
VERBS = {
    verb: words or COMMANDS[verb][1] for verb, words in _ORDER.items() if words or verb in COMMANDS
}
_BOX = "box"  # what `stoker --host` runs on the other machine; not for users
COMPLETE = "__complete"  # what completion scripts run; not for users
ALIASES = {"add": "submit", "list": "ls", "logs": "log", "kill": "cancel", "queue": "ls"}


def program() -> int:
    """The program `stoker`: ends without the clean-up of the interpreter, which takes 2 ms."""
    code = main()
    import atexit

    threading = sys.modules.get("threading")
    if atexit._ncallbacks() == 0 and (threading is None or threading.active_count() == 1):
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            return code  # the interpreter reports that
        os._exit(code)
    return code


def main(arguments: list[str] | None = None) -> int:
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _replace_closed_streams()
    words, host = _verb_first(sys.argv[1:] if arguments is None else arguments)
    _accept_any_text()
    try:
        code = _dispatch(words, host)
        sys.stdout.flush()  # here, where a failure can still be reported
        return code
    except BrokenPipeError:
        _discard_stdout()  # the reader closed the pipe
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        known = _as_error(error)
        own = _own_words(words)
        if known is None or "--debug" in own:
            raise
        if isinstance(known, OutputFailed):
            _discard_stdout()
        _print_error(known, "--json" in own and not isinstance(known, OutputFailed))
        return known.exit_code


def _verb_first(words: list[str]) -> tuple[list[str], str | None]:
    """Move the command to the front: `stoker --json ls` becomes `stoker ls --json`.

    Returns the words without `--host HOST`, and the host.
    """
    end, host, own = 0, None, []
    while end < len(words):
        word = words[end]
        if word == "--host":
            end += 1
            host = words[end] if end < len(words) else ""  # an error, see `check_host`
        elif word.startswith("--host="):
            host = word[len("--host=") :]
        elif word in ("--json", "--debug"):
            own.append(word)
        else:
            break
        end += 1
    rest = words[end:]
    if not own or not rest or rest[0].startswith("-"):
        return [*own, *rest], host
    return [rest[0], *own, *rest[1:]], host


def _replace_closed_streams() -> None:
    """Open a replacement for each standard stream that was closed (`stoker submit ... >&-`).

    Python sets such a stream to None, and the kernel reuses its descriptor for the next file that
    is opened, so that `print` could write into that file. Now stdin is at its end, writing to
    stdout fails with EBADF, and text written to stderr is discarded.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _accept_any_text() -> None:
    """Let stdout take paths that are not UTF-8, and characters that the terminal cannot show."""
    if hasattr(sys.stdout, "reconfigure"):
        is_utf8 = sys.stdout.encoding.lower() in ("utf-8", "utf8")
        sys.stdout.reconfigure(errors="surrogateescape" if is_utf8 else "backslashreplace")


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that flushing it at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _can_write() -> bool:
    import fcntl

    return bool(fcntl.fcntl(1, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR))


def _as_error(error: Exception) -> Error | None:
    """The exception as an `Error` with a message for users; None if it is a bug."""
    if isinstance(error, Error):
        return error
    if isinstance(error, OSError):
        import errno

        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _discard_stdout()
            return TryLater(f"cannot write: {error.strerror}", "free some space")
        if error.errno == errno.EBADF and not _can_write():
            return OutputFailed(f"cannot write to stdout: {error.strerror}")
        return None
    import sqlite3

    if isinstance(error, sqlite3.Error):
        from stoker.engine.store.database import translate
        from stoker.settings import load_settings

        return translate(error, load_settings().state_dir)
    return None


def _own_words(words: list[str]) -> list[str]:
    """The words that are options of Stoker; `--json` may also belong to the command of a job."""
    if words and words[0] == _BOX:  # stoker box VERB SETTINGS WORDS...
        words = [*words[1:2], *words[3:]]
    name = ALIASES.get(words[0], words[0]) if words else ""
    if name not in ("submit", "run", "shell"):
        return words
    from stoker.text.command_line import own_words

    return own_words(load(name).VERB, words[1:])


def _dispatch(words: list[str], host: str | None) -> int:
    if words and words[0] == COMPLETE:
        from stoker.cli.completion.command_line import main as complete

        return complete(words[1:])
    if words and words[0] in ("-h", "--help", "help"):
        return _help(words[1:])
    call = os.environ.pop("STOKER_REMOTE_CALL", None)  # not for jobs
    if call is not None:
        from stoker.features.remote.remote_command import CallMarker

        marker = CallMarker(call)
        return marker.exit(_run(words))
    if host is not None or _has_chosen_box(os.environ):
        from stoker.features.remote.cli.forward import forward

        code = forward(words, host)
        if code is not None:
            return code
    return _run(words)


def _has_chosen_box(env: Mapping[str, str]) -> bool:
    """Whether a setting may send the command to another machine; see `features/remote/boxes.py`."""
    if env.get("STOKER_HOST") or env.get("STOKER_CONTEXT"):
        return True
    from os.path import exists

    from stoker.settings import config_folder

    return exists(f"{config_folder()}/current-context")


def _run(words: list[str]) -> int:
    if words and words[0] in ("-V", "--version", "version"):
        from stoker import __version__

        print(f"stoker {__version__}")
        return 0
    if not words or words[0].startswith("-"):
        words = ["status", *words]
    name = ALIASES.get(words[0], words[0])
    if name not in VERBS and name != _BOX:
        raise _unknown_verb(words[0])
    from stoker.text.command_line import parse

    module = load(name)
    parsed = parse(module.VERB, words[1:])
    if parsed["help"]:
        from stoker.cli.help import help_text

        print(help_text(module.VERB))
        return 0
    try:
        return int(module.run(parsed))
    finally:
        if "stoker.cli.open_queue" in sys.modules:  # not every command opens a queue
            from stoker.cli.open_queue import close_all

            close_all()


def load(name: str):  # type: ignore[no-untyped-def]
    """Import and return the module of a command."""
    module = f"stoker.cli.verbs.{name}"
    if name in COMMANDS:
        module = f"stoker.features.{COMMANDS[name][0]}.verbs.{name}"
    __import__(module)  # importing importlib takes longer than the module
    return sys.modules[module]


def _unknown_verb(word: str) -> UsageError:
    from stoker.text.known_words import COMMANDS, EITHER
    from stoker.text.suggestions import nearest

    message = f"`{word}` is not a Stoker command"
    if word in EITHER:
        return UsageError(message, "did you mean `{}` or `{}`?".format(*EITHER[word]))
    near = nearest(word, [*VERBS, *ALIASES])
    meant = COMMANDS.get(word) or (near and f"stoker {near}")
    if meant:
        return UsageError(message, f"did you mean `{meant}`?")
    return UsageError(message, f"to queue it as a job: stoker submit {word} ...")


def _help(words: list[str]) -> int:
    from stoker.cli import help

    words = [word for word in words if not word.startswith("-")]
    if not words:
        print(help.overview(VERBS))
    elif words == ["selectors"]:
        print(help.SELECTORS)
    elif (name := ALIASES.get(words[0], words[0])) in VERBS:
        print(help.help_text(load(name).VERB))
    else:
        raise _no_help(words[0])
    return 0


def _no_help(word: str) -> UsageError:
    from stoker.text.suggestions import nearest

    near = nearest(word, [*VERBS, *ALIASES, "selectors"])
    hint = f"did you mean `stoker help {near}`?" if near else "`stoker help` lists the commands"
    return UsageError(f"there is no help for `{word}`", hint)


def _print_error(error: Error, wants_json: bool) -> None:
    if wants_json:
        import json

        from stoker.text.json_schema import JSON_SCHEMA

        text = {"code": error.code, "message": error.message, "hint": error.hint}
        print(json.dumps({"schema": JSON_SCHEMA, "error": text}))
        return
    from stoker.cli.output import notice
    from stoker.text.terminal import printable

    notice(f"error: {printable(error.message)}")
    if error.hint:
        notice(f"hint: {printable(error.hint)}")
