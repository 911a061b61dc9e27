"""`stoker`: find the verb, load only its file, run it, turn errors into sentences."""

from __future__ import annotations

import sys

from stoker.errors import Error, UsageError

# verb -> the file that holds it, and one line for `stoker help`
VERBS = {
    "submit": ("submit", "queue a command, a job file or lines from stdin"),
    "run": ("run", "run a job file in the foreground, without the daemon"),
    "status": ("status", "devices, running and waiting jobs (also: just `stoker`)"),
    "ls": ("ls", "list jobs"),
    "show": ("show", "everything about a job"),
    "why": ("why", "why a job waits"),
    "log": ("log", "a job's output"),
    "wait": ("wait", "wait until jobs have ended"),
    "cancel": ("change", "end jobs: ask, then kill the whole tree"),
    "hold": ("change", "keep waiting jobs from starting"),
    "release": ("change", "let held jobs start"),
    "rerun": ("change", "submit ended jobs again"),
    "priority": ("change", "change the priority of waiting jobs"),
    "edit": ("edit", "change a job that has not started"),
    "tag": ("change", "add or remove tags"),
    "rm": ("change", "forget ended jobs and their logs"),
    "clean": ("change", "forget all ended jobs, or those of some age"),
    "daemon": ("daemon", "start, stop, drain, resume or look at the daemon"),
    "doctor": ("doctor", "explain what is wrong with this host"),
    "completion": ("completion", "shell completion for bash, zsh or fish"),
}
ALIASES = {"add": "submit", "list": "ls", "logs": "log", "kill": "cancel", "queue": "ls"}


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    wants_json = "--json" in words
    try:
        return _dispatch(words)
    except Error as error:
        if "--debug" in words:
            raise
        _print_error(error, wants_json)
        return error.exit_code
    except BrokenPipeError:
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader left; nothing more to say
        return 0
    except KeyboardInterrupt:
        return 130


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
    verb = module.VERBS[name]
    parsed = parse(verb, words[1:])
    if parsed["help"]:
        print(help_text(verb))
        return 0
    return int(module.run(name, parsed))


def load(name: str):  # type: ignore[no-untyped-def]
    """The module of a verb."""
    from importlib import import_module

    return import_module(f"stoker.cli.{VERBS[name][0]}")


def _unknown_verb(word: str) -> UsageError:
    from stoker.cli.options import nearest

    near = nearest(word, [*VERBS, *ALIASES])
    if near:
        return UsageError(f"`{word}` is no stoker command", f"did you mean `stoker {near}`?")
    return UsageError(
        f"`{word}` is no stoker command", f"to queue it as a job: stoker submit {word} ..."
    )


def _help(words: list[str]) -> int:
    if words and ALIASES.get(words[0], words[0]) in VERBS:
        from stoker.cli.options import help_text

        name = ALIASES.get(words[0], words[0])
        print(help_text(load(name).VERBS[name]))
        return 0
    if words == ["selectors"]:
        print(SELECTORS)
        return 0
    print("usage: stoker [COMMAND] [OPTIONS]\n\nStoker keeps every GPU fed.\n\ncommands:")
    for name, (_, summary) in VERBS.items():
        print(f"  {name:<12}{summary}")
    print("\n`stoker COMMAND --help` has options and examples; `stoker help selectors` says how to"
          " point at jobs.\n\nfirst steps:\n  stoker submit python train.py --lr 0.1\n"
          "  stoker log -f @\n  stoker run --devices 0,1 jobs.txt")  # fmt: skip
    return 0


SELECTORS = """How to point at jobs, wherever a command takes JOB:
  7  3-9  1,4,7     ids and ranges
  @  @~1            the last job, the one before it
  running failed    a state: held queued starting running stopping done failed cancelled lost
  waiting active final all
                    groups of states
  NAME  TAG         all jobs of that name or tag (name:X and tag:X when it looks like another)"""


def _print_error(error: Error, wants_json: bool) -> None:
    if wants_json:
        import json

        text = {"code": error.code, "message": error.message, "hint": error.hint}
        print(json.dumps({"schema": 1, "error": text}))
        return
    from stoker.core.terminal import printable

    print(f"error: {printable(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {printable(error.hint)}", file=sys.stderr)
