"""What a command line that is being typed can continue with: `stoker __complete SHELL WORDS`.

Prints one line that says what follows, then words with descriptions, separated by a tab:

    words           the words
    words files     the words, and the names of files, which the shell completes
    files           names of files
    folders         names of folders
    command N       a command of the user that begins at word N (from 1), and its first word

Prints nothing and returns 0 if anything fails: an error message would break the line that is being
typed. Never starts the daemon and never changes a file.
"""

from __future__ import annotations

import os
import sys

from stoker.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.engine.store.completion_reader import Words
    from stoker.text.command_line import Option, Verb

# What completes the value of an option or an argument: a kind of words, or a list of them.
#
# In this order: `completes` of the option, the name of its value in the help text, its key. A new
# option that takes a FILE, DIR, JOB, TAG, STATE or SWEEP needs nothing more.

FILES, FOLDERS = "files", "folders"

_BY_KEY = {
    "on": "backends",
    "gpu_ids": "gpus",
    "prefer": "gpus",
    "devices": "gpus",
    "gpu_model": "gpu_models",
    "group": "groups",
    "sweep": "sweeps",
    "profile": "profiles",
    "conda": "conda",
    "venv": FOLDERS,
    "metric": "metrics",
    "param": "params",
}
_BY_VALUE = {
    "FILE": FILES,
    "PATH": FILES,
    "DIR": FOLDERS,
    "FOLDER": FOLDERS,
    "JOB": "jobs",
    "ID": "jobs",
    "TAG": "tags",
    "STATE": "states",
    "SWEEP": "sweeps",
    "HOST": "hosts",
    "METRIC": "metrics",
    "COLUMNS": "columns",
    "GPU": "gpus",
    "BACKEND": "backends",
    "PROFILE": "profiles",
    "WHEN": "events",
    "WHERE": "places",
}
# For arguments of commands: which jobs, by groups of states, the most likely first.
JOBS = {
    "cancel": ("active", "waiting"),
    "wait": ("active", "waiting"),
    "why": ("waiting",),
    "hold": ("waiting",),
    "release": ("held",),
    "priority": ("waiting",),
    "edit": ("waiting",),
    "rerun": ("final",),
    "rm": ("final",),
    "log": ("active", "final"),
    "pull": ("active", "final"),
}
# What follows the action of a command.
AFTER_ACTION = {
    "gpus": "gpus",
    "backend": "backends",
    "sweep": "sweeps",
    "context": "contexts",
    "notify": "places",
}
AFTER_ADD = {"backend": ("", "slurm|ray"), "context": (), "notify": ()}  # for `add`, by position


def value_kind(option: Option) -> str:
    """Return the kind of an option's value, `a|b` for a list of words, or "" for any text."""
    if option.value is None:
        return ""
    by_value = _BY_VALUE.get(option.value.partition("[")[0], "")
    return option.completes or by_value or _BY_KEY.get(option.key, "")


_GLOBAL = {
    "--host": "run on another machine over ssh",
    "--json": "print JSON instead of text",
    "--debug": "show a traceback when something fails",
    "--help": "show the commands",
    "--version": "print the version",
}
# Kinds that are not in the queue, so another machine is not asked for them.
_HERE = ("states", "contexts", "hosts")
_LISTS = ("gpus", "tags", "columns", "events", "profiles")  # separated by commas
_LONGEST = 80  # characters of a description
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-")


class Wanted(Record):
    """What completes the current word. `kind`: see `_BY_KEY`; "": only `words`."""

    kind: str
    words: tuple[tuple[str, str], ...] = ()
    prefix: str = ""  # the part of the current word before the value: `--state=`, `0,`
    given: tuple[str, ...] = ()  # for `find_words`
    files: str = ""  # files or folders: names that the shell completes too
    number: int = 0  # of the first word of a user's command


NOTHING = Wanted("")


def main(arguments: list[str]) -> int:
    """Complete a command line; the last argument is the current word. Returns 0."""
    try:
        lines = _complete(arguments)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt):
        pass
    return 0


def _complete(arguments: list[str]) -> list[str]:
    shell, *words = arguments
    hidden = 0
    if shell == "bash":
        # Readline replaces only what follows the last = or :, so the part before is left out.
        line, typed = words
        words = split_line(line)
        hidden = len(words[-1]) - (0 if typed in ("=", ":") else len(typed))
    if len(words) < 2:
        return []
    current = words[-1]
    wanted, host = wanted_words(words[1:])
    if wanted.kind in (FILES, FOLDERS):
        return [wanted.kind]
    if wanted.kind == "command":
        return [f"command {wanted.number + 1}", words[wanted.number]]
    begun = current[len(wanted.prefix) :]
    found = list(wanted.words)
    if wanted.kind:
        found += _find(wanted.kind, begun, list(wanted.given), host)
    lines = [f"words {wanted.files}".rstrip()]
    for word, text in found:
        if not word.startswith(begun) or not word.isprintable():
            continue
        whole = wanted.prefix + word
        if shell == "bash":
            if set(whole) <= _SAFE:
                lines.append(whole[max(0, hidden) :])
            continue
        about = " ".join(text.split())
        about = "".join(c if c.isprintable() else "?" for c in about)[:_LONGEST]
        lines.append(f"{whole}\t{about}" if about else whole)
    return lines


def split_line(line: str) -> list[str]:
    """Split what was typed so far; the last word, which may be empty, is the current one.

    >>> split_line("stoker ls  'my na"), split_line("X=1 stoker ")
    (['stoker', 'ls', 'my na'], ['stoker', ''])
    """
    import shlex

    for end in ("", " ", "'", '"'):
        lexer = shlex.shlex(line + end, posix=True, punctuation_chars="")
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            words = list(lexer)
            break
        except ValueError:  # a quote that is not closed, or a backslash at the end
            continue
    else:
        return []
    if not line or (line[-1:].isspace() and not end):
        words.append("")
    while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
        del words[0]
    return words


def _find(kind: str, begun: str, given: list[str], host: str | None) -> Words:
    """Words of a kind, from the queue of this machine or of another one."""
    if "|" in kind:
        return [(word, "") for word in kind.split("|") if word]
    if kind not in _HERE and (host is not None or _may_be_remote()):
        from stoker.features.remote.boxes import chosen_box

        box = chosen_box(host)
        if box is not None:
            from stoker.cli.completion.words import STATE_WORDS
            from stoker.features.remote.cli.forward import remote_words

            found = remote_words(box, kind, begun, given)
            return found or (list(STATE_WORDS.items()) if kind == "jobs" else [])
    from stoker.cli.completion.words import find_words

    return find_words(kind, begun, given)


def _may_be_remote() -> bool:
    from stoker.cli.main import _has_chosen_box

    return _has_chosen_box(os.environ)


def wanted_words(words: list[str]) -> tuple[Wanted, str | None]:
    """Return what completes the last word, and the host before the command."""
    from stoker.cli.main import ALIASES, VERBS, load

    place, host, last = 0, None, len(words) - 1
    while place < last and words[place].startswith("-"):
        if words[place] == "--host":
            place += 1
            if place == last:
                return Wanted("hosts"), None
            host = words[place]
        elif words[place].startswith("--host="):
            host = words[place].partition("=")[2]
        elif words[place] not in ("--json", "--debug"):
            return NOTHING, None
        place += 1
    current = words[last]
    if place == last:
        if current.startswith("--host="):
            return Wanted("hosts", prefix="--host="), None
        if current.startswith("-"):
            return Wanted("", tuple(_GLOBAL.items())), host
        aliases = ((alias, f"the same as {name}") for alias, name in ALIASES.items())
        return Wanted("", (*VERBS.items(), *aliases, ("help", "show help"))), host
    name = ALIASES.get(words[place], words[place])
    if name == "help":
        topics = (*VERBS.items(), ("selectors", "how to select jobs"))
        return Wanted("", topics), host
    if name not in VERBS:
        return NOTHING, host
    module = load(name)
    return _arguments(module, module.VERB, words, place + 1), host


def _arguments(module: Any, verb: Verb, words: list[str], place: int) -> Wanted:
    """What completes the last word, an argument of a command; parses like `command_line.parse`."""
    from stoker.text.command_line import all_options

    table = {name: option for option in all_options(verb) for name in option.names.split()}
    last, current = len(words) - 1, words[-1]
    given: list[str] = []
    used: set[str] = set()
    dashed = False
    while place < last:
        word = words[place]
        place += 1
        is_word = dashed or word[:1] != "-" or word == "-"
        if word == "--" and not dashed:
            dashed = True
            if verb.keeps_words:
                return Wanted("command", number=place + 1)
            continue
        if is_word:
            if verb.keeps_words:
                return Wanted("command", number=place)
            given.append(word)
            continue
        option = table.get(word)
        if option is None:
            continue
        used.add(option.key)
        if option.several:
            while place < last and words[place] not in table:
                place += 1
            if place == last and not current.startswith("-"):
                return NOTHING
        elif option.takes_next:
            if place == last:
                return _value(option, "", current, given)
            place += 1
    if current.startswith("--") and "=" in current and not dashed:
        name, _, value = current.partition("=")
        if name in table and table[name].value is not None:
            return _value(table[name], f"{name}=", value, given)
        return NOTHING
    is_minus_word = verb.minus_words and current[1:2] not in ("", "-")
    if current.startswith("-") and not dashed and not is_minus_word:
        return Wanted("", tuple(_options(all_options(verb), used)))
    return _argument(module, verb, given, current, place)


def _options(options: tuple[Option, ...], used: set[str]) -> list[tuple[str, str]]:
    """The long names of the options that can still be given."""
    return [
        (option.names.split()[-1], option.help)
        for option in options
        if option.many or option.several or option.key not in used
    ]


def _value(option: Option, prefix: str, value: str, given: list[str]) -> Wanted:
    kind = value_kind(option)
    if kind in (FILES, FOLDERS):
        return Wanted(kind)
    if not kind:
        return NOTHING
    if kind in _LISTS:
        begun, comma, _ = value.rpartition(",")
        prefix += begun + comma
        if kind == "columns" and value[len(begun + comma) :].startswith("-"):
            prefix += "-"  # in descending order
    return Wanted(kind, prefix=prefix, given=tuple(given))


def _argument(module: Any, verb: Verb, given: list[str], current: str, place: int) -> Wanted:
    """What completes an argument that is not an option."""
    if verb.keeps_words:
        return Wanted("command", number=place + 1)
    actions: tuple[str, ...] = getattr(module, "ACTIONS", getattr(module, "_ACTIONS", ()))
    if actions and not given:
        first = tuple((action, "") for action in actions)
        return Wanted("", first, files=FILES if verb.name == "sweep" else "")
    if verb.name == "config":
        return Wanted("settings") if given == ["set"] else NOTHING
    if actions and given[0] in actions:
        steps = AFTER_ADD.get(verb.name, ()) if given[0] == "add" else None
        if steps is not None:
            kind = steps[len(given) - 1] if len(given) <= len(steps) else ""
            return Wanted(kind) if kind else NOTHING
        return Wanted(AFTER_ACTION.get(verb.name, ""))
    if verb.name == "tag" and current[:1] in ("+", "-"):
        return Wanted("tags", prefix=current[:1])
    if verb.name == "note" and given:
        return NOTHING  # a text
    if verb.name in ("note", "star", "tag"):
        return Wanted("annotated", prefix=current.rpartition(",")[0] + "," * ("," in current))
    if verb.name == "priority" and not given:
        return NOTHING
    if verb.words == "jobs":
        begun, comma, _ = current.rpartition(",")
        return Wanted("jobs", prefix=begun + comma, given=JOBS.get(verb.name, ()))
    if verb.words == "sweeps":
        return Wanted("results", files=FOLDERS) if not actions else NOTHING
    if verb.words == "files":
        return Wanted(FILES)
    return NOTHING
