"""Find the words of a command that another interpreter parses again.

`bash -c "echo {x}"` is parsed twice. Quoting for the first shell does not protect against the
second, so a placeholder there is refused, or quoted for the second shell where that is possible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HOLE = "\0"  # marks a placeholder in a literal word
LIVE = "\1"  # marks a shell expansion in a literal word

OK = "ok"
SCRIPT = "script"  # the program text of a POSIX shell, after -c
PLAIN = "plain"  # program text of another language: only values without special characters
NO_DASH = "no dash"  # a value that starts with a dash would become an option

UNKNOWN_COMMAND = "a command whose name is a value"

_POSIX_SHELLS_WORDS = "sh bash dash ash zsh ksh ksh93 mksh yash"
POSIX_SHELLS = frozenset(_POSIX_SHELLS_WORDS.split())
_OTHER_SHELLS_WORDS = "fish csh tcsh busybox pwsh elvish xonsh nu"
_OTHER_SHELLS = frozenset(_OTHER_SHELLS_WORDS.split())
# These evaluate their arguments as shell text, or as names with subscripts that bash evaluates.
_READ_AGAIN_WORDS = (
    "eval ssh slogin mosh rsh pdsh su runuser sg parallel watch tmux script at batch trap alias "
    "let declare typeset local integer float read unset mapfile readarray getopts complete "
    "compgen bind fc enable coproc sbatch bsub qsub"
)
_READ_AGAIN = frozenset(_READ_AGAIN_WORDS.split())
_READ_PIPES_WORDS = "ssh slogin rsh pdsh parallel at batch sbatch bsub qsub eval"
_READ_PIPES = frozenset(_READ_PIPES_WORDS.split())
_WRAPPER_WORDS = (
    "sudo doas env nohup nice timeout time command builtin exec stdbuf setsid ionice chrt taskset "
    "numactl srun xargs strace ltrace unbuffer conda mamba micromamba uv poetry catchsegv"
)
WRAPPERS = frozenset(_WRAPPER_WORDS.split())
_LANGUAGES = re.compile(
    r"(python|pypy)[0-9.]*|perl[0-9.]*|ruby[0-9.]*|node|nodejs|deno|bun|php[0-9.]*|lua[0-9.]*"
    r"|Rscript|R|julia|osascript"
)
_PROGRAM_FLAG = re.compile(r"-[A-Za-z0-9]*[ceErp]|--eval|--execute|--print")
_ALL_PROGRAM_WORDS = "awk gawk mawk nawk sed gsed make gmake"
_ALL_PROGRAM = frozenset(_ALL_PROGRAM_WORDS.split())
_TAKES_WORD_WORDS = "-o +o -O +O --rcfile --init-file"
_TAKES_WORD = frozenset(_TAKES_WORD_WORDS.split())
HARMLESS = re.compile(r"[A-Za-z0-9_./:,+=@-]*")


def judge(words: Sequence[str]) -> list[str]:
    """Return a verdict per word of one command: OK, SCRIPT, PLAIN, NO_DASH, or the name of the
    program that would parse the word again."""
    verdicts = [OK] * len(words)
    names = [word.rpartition("/")[2].lstrip("\\") for word in words]
    if not words:
        return verdicts
    for index, name in enumerate(names):
        if index and names[0] not in WRAPPERS:
            break
        if name in _READ_AGAIN:
            _mark(verdicts, index + 1, name)
        if name == "env" and any(w.startswith(("-S", "--split-string")) for w in words[index:]):
            _mark(verdicts, index + 1, "env -S")
        if name == "flock" and any(w in ("-c", "--command") for w in words):
            _mark(verdicts, index + 1, "flock -c")
        if name in ("printf", "test", "[", "wait") and any(w in ("-v", "-p") for w in words):
            _mark(verdicts, index + 1, f"{name} -v")
        if name in ("export", "readonly"):
            for place in range(index + 1, len(words)):
                if HOLE in words[place].partition("=")[0]:
                    verdicts[place] = name
        if name in _ALL_PROGRAM:
            _mark(verdicts, index + 1, PLAIN)
    if names[0] in WRAPPERS:
        _wrapped(words, names, verdicts)
    for index, name in enumerate(names):
        if name in POSIX_SHELLS or name in _OTHER_SHELLS:
            _shell(words, verdicts, index, SCRIPT if name in POSIX_SHELLS else name)
        elif index == 0 and (HOLE in name or LIVE in name):
            _shell(words, verdicts, index, UNKNOWN_COMMAND)
        elif _LANGUAGES.fullmatch(name):
            _language(words, verdicts, index)
    return verdicts


def reads_commands(words: Sequence[str]) -> bool:
    """Whether a command may execute what it reads from a pipe."""
    names = [word.rpartition("/")[2] for word in words]
    if any(name in POSIX_SHELLS | _OTHER_SHELLS | _READ_PIPES for name in names):
        return True
    if not names or HOLE in names[0] or LIVE in names[0]:
        return bool(names)
    return bool(_LANGUAGES.fullmatch(names[0])) and set(names[1:]) <= {"-"}


def _mark(verdicts: list[str], start: int, verdict: str) -> None:
    for place in range(start, len(verdicts)):
        if verdicts[place] in (OK, PLAIN):
            verdicts[place] = verdict


def _shell(words: Sequence[str], verdicts: list[str], index: int, verdict: str) -> None:
    """Mark the arguments of a shell: options, then the program after -c, or a script file."""
    place, has_program = index + 1, False
    while place < len(words) and words[place][:1] in ("-", "+") and words[place] not in ("-", "--"):
        word = words[place]
        if HOLE in word or LIVE in word:
            verdicts[place] = "the options of a shell"
        is_cluster = word[0] == "-" and not word.startswith("--")
        has_program = has_program or (is_cluster and "c" in word)
        place += 2 if word in _TAKES_WORD else 1
    if place < len(words) and words[place] in ("-", "--"):
        place += 1
    if place >= len(words):
        return
    if verdicts[place] not in (OK, PLAIN, NO_DASH):
        return
    if has_program:
        verdicts[place] = verdict
    elif words[place].startswith(HOLE) and verdict in (SCRIPT, *_OTHER_SHELLS):
        verdicts[place] = NO_DASH


def _wrapped(words: Sequence[str], names: Sequence[str], verdicts: list[str]) -> None:
    """`env {x}` must not become `env -S...`: no values with a dash before the program name."""
    for place in range(1, len(words)):
        if words[place].startswith(HOLE):
            if verdicts[place] == OK:
                verdicts[place] = NO_DASH
        elif words[place][:1] != "-" and "=" not in words[place] and names[place] not in WRAPPERS:
            return


def _language(words: Sequence[str], verdicts: list[str], index: int) -> None:
    place = index + 1
    while place < len(words) and words[place].startswith("-"):
        word = words[place]
        if HOLE in word:
            _mark_one(verdicts, place)
        if _PROGRAM_FLAG.fullmatch(word) and place + 1 < len(words):
            _mark_one(verdicts, place + 1)
        place += 2 if word in ("-W", "-X", "-I") else 1


def _mark_one(verdicts: list[str], place: int) -> None:
    if verdicts[place] == OK:
        verdicts[place] = PLAIN
