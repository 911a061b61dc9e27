"""Find likely mistakes before `stoker submit` queues a job."""

from __future__ import annotations

import os

from stoker.engine.model import JobSpec
from stoker.errors import UsageError
from stoker.text.activation import is_in_container
from stoker.text.commands.shell_words import plain_words, quote

_HEAD_BYTES = 4096
# Options of Stoker that training scripts hardly ever have.
_UNMISTAKABLE = (
    "--dry-run",
    "--gpu-mem",
    "--gpu-ids",
    "--min-gpu-mem",
    "--on-oom",
    "--after",
    "--time-limit",
    "--retries",
    "--restartable",
    "--keep-children",
    "--hold",
    "--dedupe",
    "--begin",
)
_WILL_FAIL = "the job will fail unless it exists when the job starts"
_SHELL_WORDS = ("cd", "source", ".", "export", "alias", "set", "ulimit")
_INTERPRETER_NAMES = ("python", "bash", "sh", "zsh")
_INTERPRETERS = {"py": "python", "sh": "sh", "bash": "bash", "r": "Rscript", "jl": "julia"}


def check_job_file(path: str, verb: str) -> None:
    """Raise UsageError if a job file looks like a program or a sweep file."""
    if path == "-" or not os.path.isfile(path):
        return
    from stoker.text.commands.job_file import other_use

    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return  # reported by the code that reads the file
    found = other_use(path, head)
    if found is None:
        return
    what, words = found
    meant = f"stoker {verb} {words}" if words else f"stoker sweep {path}"
    raise UsageError(
        f"`{path}` {what}, but each line of a job file must be a command",
        f"did you mean `{meant}`? If its lines are commands: stoker {verb} --file - < {path}",
    )


def check_program(spec: JobSpec) -> str | None:
    """A warning if the program does not exist, otherwise None.

    Raises UsageError if it is a file that cannot be executed, or not without `./`.
    """
    words = plain_words(spec.argv[0]) if spec.shell else spec.argv
    if not words:
        return None
    if not spec.shell:
        _check_first_word(words, spec.context.cwd)
    if spec.settings.activation:  # another PATH, or in a container other files
        is_inside = is_in_container(spec.settings.activation)
        return None if is_inside else _missing_script(words, spec.context.cwd)
    program, cwd = words[0], spec.context.cwd
    if "/" in program:
        path = os.path.join(cwd, program)
        if not os.path.exists(path):
            return f"`{program}` does not exist; {_WILL_FAIL}"
        if os.path.isfile(path) and not os.access(path, os.X_OK):
            if spec.after:  # an earlier job may change that
                return f"`{program}` is not executable; {_meant(words, path)}"
            raise UsageError(f"`{program}` is not executable", _meant(words, path))
        return _missing_script(words, cwd)
    search = dict(spec.context.env).get("PATH") or os.defpath
    for folder in search.split(":"):
        path = os.path.join(cwd, folder or ".", program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return _missing_script(words, cwd)
    path = os.path.join(cwd, program)
    if os.path.isfile(path):
        raise UsageError(
            f"`{program}` is a file in this folder, but not on your PATH", _meant(words, path)
        )
    return f"`{program}` is not on your PATH; {_WILL_FAIL}"


def _check_first_word(words: tuple[str, ...], cwd: str) -> None:
    """Raise UsageError for words that only a shell understands: they are run without one."""
    first, rest = words[0], words[1:]
    name, equals, value = first.partition("=")
    if os.path.isfile(os.path.join(cwd, first)):
        return
    if name.isidentifier() and equals:
        command = " ".join(map(quote, rest)) or "COMMAND"
        option = f"--gpu-ids {value}" if name == "CUDA_VISIBLE_DEVICES" else f"--env {quote(first)}"
        raise UsageError(
            f"`{first}` is not a program; a command of several words is run without a shell",
            f"set the variable with an option: stoker submit {option} {command}",
        )
    if first in _SHELL_WORDS:
        text = f"{' '.join(map(quote, words))} && ..."
        raise UsageError(
            f"`{first}` is a command of the shell; a command of several words is run without one",
            f"quote the whole command: stoker submit {quote(text)}",
        )
    if " " in first.strip() and rest:
        meant = f"{' '.join(rest)} {quote(first)}"
        if not rest[0].startswith("-"):
            meant = quote(f"{first} {' '.join(map(quote, rest))}")
        raise UsageError(
            f"there is no program `{first}`; the words after it are passed to it",
            f"options of Stoker go before the command: stoker submit {meant}",
        )


def _missing_script(words: tuple[str, ...], cwd: str) -> str | None:
    """A warning for an interpreter whose script does not exist, such as `python trian.py`."""
    is_interpreter = os.path.basename(words[0]).startswith(_INTERPRETER_NAMES)
    if not is_interpreter or len(words) < 2 or not words[1].endswith((".py", ".sh")):
        return None
    if os.path.exists(os.path.join(cwd, words[1])):
        return None
    return f"`{words[1]}` does not exist; {_WILL_FAIL}"


def _meant(words: tuple[str, ...], path: str) -> str:
    """A hint how to run a file: directly, or with the interpreter for its extension."""
    rest = "".join(f" {quote(word)}" for word in words[1:])
    name = words[0]
    if os.access(path, os.X_OK):
        return f"to run it: stoker submit ./{name}{rest}"
    interpreter = _INTERPRETERS.get(name.rpartition(".")[2].lower())
    if interpreter is None and not rest and _is_list_of_commands(path):
        return f"to queue each line as a job: stoker submit --file {quote(name)}"
    return f"to run it: stoker submit {interpreter or 'sh'} {name}{rest}"


def _is_list_of_commands(path: str) -> bool:
    from stoker.text.commands.job_file import other_use

    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return not head.startswith("#!") and other_use(path, head) is None


def misplaced_options(words: list[str]) -> str | None:
    """A warning about options of Stoker after the command, which are passed to the command."""
    found = [word for word in words[1:] if word.partition("=")[0] in _UNMISTAKABLE]
    if not found:
        return None
    return (
        f"`{found[0]}` was passed to `{words[0]}`; options of `stoker submit` go before the command"
    )


def background_command(spec: JobSpec) -> str | None:
    """A warning about a command that ends before the program it starts, such as `train &`."""
    if not spec.shell or spec.settings.keep_children or "&" not in spec.argv[0]:
        return None
    import re

    if re.search(r"[^&>|]&[\s)}]*(;?\s*disown\b[^;&|]*)?[\s)};]*$", spec.argv[0]) is None:
        return None
    return (
        "the command ends in `&`, so the job ends at once and its program is stopped; leave out"
        " the `&` (jobs run in the background anyway), or give --keep-children"
    )


def ignored_input() -> str | None:
    """A warning if stdin has data, which a queued job cannot read. Does not block.

    If the parent process has the same stdin, the data is most likely the list that a loop reads
    (`while read ...; do stoker submit ...; done < list`), and there is no warning.
    """
    import stat

    try:
        own = os.fstat(0)
        if stat.S_ISREG(own.st_mode):
            has_data = os.lseek(0, 0, os.SEEK_CUR) < own.st_size
        elif stat.S_ISFIFO(own.st_mode):
            has_data = _is_readable(0)
        else:
            return None
        if not has_data:
            return None
        parent = os.stat(f"/proc/{os.getppid()}/fd/0")
        if (parent.st_dev, parent.st_ino) == (own.st_dev, own.st_ino):
            return None
    except OSError:
        return None
    return (
        "the job cannot read the data on stdin; put it into a file: stoker submit 'COMMAND < FILE'"
    )


def _is_readable(descriptor: int) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))
