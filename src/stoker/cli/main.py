"""`stoker`: find the verb, load only its file, run it, turn errors into sentences."""

from __future__ import annotations

import sys

from stoker.errors import Error, OutputFailed, TryLater, UsageError

# the commands, each in cli/verbs/NAME.py, with one line for `stoker help`
VERBS = {
    "submit": "queue a command, a job file or lines from stdin",
    "run": "run a job file in the foreground, without the daemon",
    "sweep": "a command over many parameters: start, extend, stop, resume",
    "results": "what trials and jobs have reported: sort, filter, group, export",
    "plot": "learning curves and parameters, in the terminal or as PNG and SVG",
    "status": "devices, running and waiting jobs (also: just `stoker`)",
    "ls": "list jobs",
    "show": "everything about a job",
    "why": "why a job waits",
    "log": "a job's output",
    "wait": "wait until jobs have ended",
    "cancel": "end jobs: ask, then kill the whole tree",
    "hold": "keep waiting jobs from starting",
    "release": "let held jobs start",
    "rerun": "submit ended jobs again",
    "priority": "change the priority of waiting jobs",
    "edit": "change a job that has not started",
    "tag": "add or remove tags",
    "rm": "remove finished jobs and their logs",
    "clean": "remove all finished jobs, or those of some age",
    "web": "the page: every GPU and every job, live, in the browser",
    "gpus": "the cards: who is on them; drain, restore, slots",
    "simulate": "replay a trace of jobs under different orders",
    "daemon": "start, stop, drain, resume or look at the daemon",
    "doctor": "explain what is wrong with this host",
    "completion": "shell completion for bash, zsh or fish",
}
ALIASES = {"add": "submit", "list": "ls", "logs": "log", "kill": "cancel", "queue": "ls"}


def main(arguments: list[str] | None = None) -> int:
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from stoker.cli.closed_streams import replace_closed_streams

        replace_closed_streams()
    words = _verb_first(sys.argv[1:] if arguments is None else arguments)
    _accept_any_text()
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # here, where a failure can still be reported
        return code
    except BrokenPipeError:
        _leave_stdout()  # the reader left; nothing more to say
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        known = _as_error(error)
        own = _own_words(words)
        if known is None or "--debug" in own:
            raise
        if isinstance(known, OutputFailed):
            _leave_stdout()
        _print_error(known, "--json" in own and not isinstance(known, OutputFailed))
        return known.exit_code


def _verb_first(words: list[str]) -> list[str]:
    """`stoker --json ls` is `stoker ls --json`."""
    end = 0
    while end < len(words) and words[end] in ("--json", "--debug"):
        end += 1
    if not 0 < end < len(words) or words[end].startswith("-"):
        return words
    return [words[end], *words[:end], *words[end + 1 :]]


def _accept_any_text() -> None:
    """Paths need not be UTF-8, and not every terminal knows every character."""
    if hasattr(sys.stdout, "reconfigure"):
        is_utf8 = sys.stdout.encoding.lower() in ("utf-8", "utf8")
        sys.stdout.reconfigure(errors="surrogateescape" if is_utf8 else "backslashreplace")


def _leave_stdout() -> None:
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _can_write() -> bool:
    import fcntl
    import os

    return bool(fcntl.fcntl(1, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR))


def _as_error(error: Exception) -> Error | None:
    """What went wrong, as one of our errors; None when it is a bug."""
    if isinstance(error, Error):
        return error
    if isinstance(error, OSError):
        import errno

        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _leave_stdout()
            return TryLater(f"cannot write: {error.strerror}", "free some space")
        if error.errno == errno.EBADF and not _can_write():
            return OutputFailed(f"stdout cannot be written: {error.strerror}")
        return None
    import sqlite3

    if isinstance(error, sqlite3.Error):
        from stoker.settings import load_settings
        from stoker.store.database import translate

        return translate(error, load_settings().state_dir)
    return None


def _own_words(words: list[str]) -> list[str]:
    """The words that are for us: `--json` may also belong to the command of a job."""
    name = ALIASES.get(words[0], words[0]) if words else ""
    if name not in ("submit", "run"):
        return words
    from stoker.cli.options import own_words

    return own_words(load(name).VERB, words[1:])


def _dispatch(words: list[str]) -> int:
    if words and words[0] in ("-h", "--help", "help"):
        return _help(words[1:])
    if words and words[0] in ("-V", "--version", "version"):
        from stoker import __version__

        print(f"stoker {__version__}")
        return 0
    if not words or words[0].startswith("-"):
        words = ["status", *words]
    name = ALIASES.get(words[0], words[0])
    if name not in VERBS:
        raise _unknown_verb(words[0])
    from stoker.cli.options import help_text, parse

    module = load(name)
    verb = module.VERB
    parsed = parse(verb, words[1:])
    if parsed["help"]:
        print(help_text(verb))
        return 0
    try:
        return int(module.run(parsed))
    finally:
        if "stoker.cli.open_queue" in sys.modules:  # not every verb opens a queue
            from stoker.cli.open_queue import close_all

            close_all()


def load(name: str):  # type: ignore[no-untyped-def]
    """The module of a verb."""
    import stoker.cli.verbs

    __import__(f"stoker.cli.verbs.{name}")  # importlib would cost more than the module itself
    return getattr(stoker.cli.verbs, name)


def _unknown_verb(word: str) -> UsageError:
    from stoker.cli.known_words import COMMANDS, EITHER
    from stoker.core.formats.suggestions import nearest

    message = f"`{word}` is not a Stoker command"
    if word in EITHER:
        return UsageError(message, "did you mean `{}` or `{}`?".format(*EITHER[word]))
    near = nearest(word, [*VERBS, *ALIASES])
    meant = COMMANDS.get(word) or (near and f"stoker {near}")
    if meant:
        return UsageError(message, f"did you mean `{meant}`?")
    return UsageError(message, f"to queue it as a job: stoker submit {word} ...")


def _help(words: list[str]) -> int:
    words = [word for word in words if not word.startswith("-")]
    if words and ALIASES.get(words[0], words[0]) in VERBS:
        from stoker.cli.options import help_text

        name = ALIASES.get(words[0], words[0])
        print(help_text(load(name).VERB))
        return 0
    if words == ["selectors"]:
        print(SELECTORS)
        return 0
    if words:
        raise _no_help(words[0])
    print("usage: stoker [COMMAND] [OPTIONS]\n\nStoker keeps every GPU fed.\n\ncommands:")
    for name, summary in VERBS.items():
        print(f"  {name:<12}{summary}")
    print("\n`stoker COMMAND --help` has options and examples; `stoker help selectors` says how to"
          " point at jobs.\n\nfirst steps:\n  stoker submit python train.py --lr 0.1\n"
          "  stoker log -f @\n  stoker run --devices 0,1 jobs.txt")  # fmt: skip
    return 0


def _no_help(word: str) -> UsageError:
    from stoker.core.formats.suggestions import nearest

    near = nearest(word, [*VERBS, *ALIASES, "selectors"])
    hint = f"did you mean `stoker help {near}`?" if near else "`stoker help` lists the commands"
    return UsageError(f"there is no help for `{word}`", hint)


SELECTORS = """How to point at jobs, wherever a command takes JOB:
  7  3-9  1,4,7     ids and ranges
  @  @~1            the last job, the one before it
  running failed    a state: held queued starting running stopping done failed cancelled lost
  waiting active final all
                    groups of states
  sweep:NAME        the jobs of a sweep
  NAME  TAG         all jobs of that name or tag (name:X and tag:X when it looks like another)"""


def _print_error(error: Error, wants_json: bool) -> None:
    if wants_json:
        import json

        text = {"code": error.code, "message": error.message, "hint": error.hint}
        print(json.dumps({"schema": 1, "error": text}))
        return
    from stoker.cli.output import tell
    from stoker.core.formats.terminal import printable

    tell(f"error: {printable(error.message)}")
    if error.hint:
        tell(f"hint: {printable(error.hint)}")
