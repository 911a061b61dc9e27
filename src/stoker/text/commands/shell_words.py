"""Decide whether a command needs a shell.

A shell costs a process and 0.7 ms, so Stoker, like make, executes a command without shell syntax
directly. The rule is strict: any unusual character means that the user's shell runs the command.
"""

from __future__ import annotations

# Characters with a meaning in some shell: expansion, quoting, lists, redirection, history.
_SYNTAX = frozenset("|&;<>()$`\\\"'*?[]#~{}!^\n\r\v\f")

# Keywords and builtins of shells; programs with these names are missing or behave differently.
_WORDS = (
    ". : [ [[ alias and autoload begin bg bind break builtin caller case cd chdir command "
    "compgen complete compopt continue coproc count declare dirs disown do done echo elif "
    "else emulate enable end esac eval exec exit export false fc fg fi float for foreach "
    "function getopts hash help history if in integer jobs kill let limit local logout "
    "mapfile math nocorrect noglob not or popd print printf pushd pwd read readarray readonly "
    "rehash repeat return select set setenv setopt shift shopt source string suspend switch "
    "test then time times trap true type typeset ulimit umask unalias unlimit unset unsetenv "
    "unsetopt until wait whence where which while zmodload"
)
_SHELL_WORDS = frozenset(_WORDS.split())

CALL_MODULE = "stoker.functions.call"  # the module that function jobs run
TERMINAL_MODULE = "stoker.features.terminal.session"  # the one that interactive jobs run
# The longest argument of execve: MAX_ARG_STRLEN is 131072 with the terminating NUL.
MAX_ARGUMENT_BYTES = 131_071


def plain_words(text: str) -> tuple[str, ...] | None:
    """Return the words of a command that needs no shell, else None.

    >>> plain_words("python train.py --lr=0.1")
    ('python', 'train.py', '--lr=0.1')
    >>> plain_words("cd data && ./run") is None
    True
    """
    if not _SYNTAX.isdisjoint(text):
        return None
    words = tuple(word for word in text.replace("\t", " ").split(" ") if word)
    if not words or words[0] in _SHELL_WORDS or "=" in words[0] or words[0][0] == "%":
        return None  # assignments and job control
    if " =" in text or "\t=" in text:
        return None  # zsh expands `=program`
    return words


def quote(word: str) -> str:
    """Return a word quoted for a POSIX shell, and for zsh, which expands `=program`."""
    if (
        word
        and word[0] != "="
        and all(c.isascii() and (c.isalnum() or c in "@%+=:,./-_") for c in word)
    ):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def is_interactive(argv: tuple[str, ...]) -> bool:
    """Whether this is the command of an interactive job, to which a terminal can attach."""
    return argv[2:4] == ("-m", TERMINAL_MODULE) and "--" in argv


def display(argv: tuple[str, ...], shell: bool) -> str:
    """Return the command as a user would type it, and a Python function as its call."""
    if not shell and len(argv) == 8 and argv[3] == CALL_MODULE:
        call = argv[4].partition("@")[0]
        return call if "(" in call else f"{call}(...)"
    if not shell and is_interactive(argv):
        argv = argv[argv.index("--") + 1 :]
    return argv[0] if shell else " ".join(quote(word) for word in argv)
