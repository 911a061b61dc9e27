"""The command line of `schedule`: the flags of both versions of iterait/scheduler.

"v1" is the version of 2016, "v2" that of 2018. The parser is written by hand because they differ in
the words after the options: v1 takes one quoted word, which is split like a shell would; v2 takes
the words of the task unquoted, with its options. As in argparse, names may be abbreviated.
"""

from __future__ import annotations

from stoker.errors import UsageError
from stoker.record import Record

USAGE = """\
usage: schedule [-h] [-gc GPU_COUNT] [-i INIT [INIT ...]] [-v] [-o [OUT]]
                [-e [ERR]] [-pg PREFERED_GPU] [-fg FORCED_GPU] [-s]
                [-rg RELEASE_GPU [RELEASE_GPU ...]] [-n NUM] [-p PREFER]
                [-f FORCE] [-r RELEASE [RELEASE ...]] [--cx] [--exit-zero]
                [task ...]
"""
HELP = f"""\
{USAGE}
Wait for free GPUs, run one task on them, free them.

positional arguments:
  task                  The quoted task with arguments which will be started
                        on free GPUs as soon as possible; or the unquoted
                        words of the task.

options:
  -h, --help            show this help message and exit
  -gc GPU_COUNT, --gpu_count GPU_COUNT
  -n NUM, --num NUM     The count of required GPUs for specified task.
  -i INIT [INIT ...], --init INIT [INIT ...]
                        Total count of GPUs; the numbers after it denote
                        unavailable GPUs. -i 5 3 4: five GPUs, of which 3 and 4
                        are unavailable.
  -v, --verbose         Prints info about the process, when the task is
                        completed.
  -o [OUT], --out [OUT]
                        The file for the task's stdout (default, and -: this
                        stdout).
  -e [ERR], --err [ERR]
                        The file for the task's stderr (default: this stderr;
                        -: this stdout).
  -pg PREFERED_GPU, --prefered_gpu PREFERED_GPU
  -p PREFER, --prefer PREFER
                        Use these if they are free, else the lowest free ones:
                        2 or [1,3].
  -fg FORCED_GPU, --forced_gpu FORCED_GPU
  -f FORCE, --force FORCE
                        Wait until these are free: 2 or [1,3].
  -s, --status          Show info about GPU usage - user/GPU/taskPID/start
  -rg RELEASE_GPU [RELEASE_GPU ...], --release_gpu RELEASE_GPU [RELEASE_GPU ...]
  -r RELEASE [RELEASE ...], --release RELEASE [RELEASE ...]
                        Make unavailable GPUs available again.
  --cx                  Append model.n_gpus=[NUM] to the task args.
  --exit-zero           Exit with 0 even if the task fails, as the original did
                        (also: STOKER_COMPAT_EXIT_ZERO=1).

The first Ctrl-C warns, the second terminates the task, the third kills it.
SIGTERM and a closed terminal also terminate the task. SIGUSR1 cancels the wait
for a GPU (exit code 138), but lets a running task finish.
"""
STDOUT = "-"  # as a file name: the stdout of `schedule`

_SEVERAL = "several"  # one or more numbers
_MAYBE = "maybe"  # an optional value
_ONE = "one"
_NONE = "none"
_OPTIONS = {
    ("-h", "--help"): _NONE,
    ("-gc", "--gpu_count"): _ONE,
    ("-i", "--init"): _SEVERAL,
    ("-v", "--verbose"): _NONE,
    ("-o", "--out"): _MAYBE,
    ("-e", "--err"): _MAYBE,
    ("-pg", "--prefered_gpu"): _ONE,
    ("-fg", "--forced_gpu"): _ONE,
    ("-s", "--status"): _NONE,
    ("-rg", "--release_gpu"): _SEVERAL,
    ("-n", "--num"): _ONE,
    ("-p", "--prefer"): _ONE,
    ("-f", "--force"): _ONE,
    ("-r", "--release"): _SEVERAL,
    ("--cx",): _NONE,
    ("--exit-zero",): _NONE,
}
_BY_NAME = {name: names for names in _OPTIONS for name in names}
# Options with different names in v2 and v1; the abbreviation `--rel` was valid in both.
_ALIKE = {"--release": "--release_gpu", "--prefer": "--prefered_gpu", "--force": "--forced_gpu"}
_V1_FLAGS = (
    "--gpu_count",
    "--verbose",
    "--out",
    "--err",
    "--prefered_gpu",
    "--forced_gpu",
    "--release_gpu",
)
_V2_FLAGS = ("--num", "--prefer", "--force", "--release", "--cx")
_NEW = ("--exit-zero",)  # in neither version, so `--e` is not ambiguous


class Call(Record):
    """The parsed command line, in the order in which it is carried out."""

    wants_help: bool = False
    init: tuple[int, ...] = ()
    release: tuple[int, ...] = ()
    status: bool = False
    task: tuple[str, ...] = ()  # the words, with `__num__` not yet replaced
    needs: int = 1  # number of GPUs
    prefer: tuple[int, ...] = ()
    force: tuple[int, ...] = ()
    force_text: str | None = None  # the value as written, for the v2 flag
    out: str | None = None
    err: str | None = None
    is_verbose: bool = False
    is_cx: bool = False
    exits_zero: bool = False
    is_v2: bool = False  # print the output of v2


def parse(words: list[str]) -> Call:
    """Parse the command line; raises UsageError."""
    values: dict[str, list[str]] = {}
    task: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            _add_task(task, list(reversed(rest)))
            break
        found = None if not _is_option(word) else _find(word, bool(task) and not _is_quoted(task))
        if found is None:
            _add_task(task, [word])
            continue
        key, given = found
        takes = _OPTIONS[_BY_NAME[key]]
        if takes == _NONE:
            if given is not None and "=" in word:
                raise _usage_error(f"`{word}`: {key} does not take a value")
            if given is not None:  # -sv is -s and -v
                rest.append(f"-{given}")
            values[key] = []
        elif takes == _SEVERAL:
            several = [] if given is None else [given]
            while rest and _is_number(rest[-1]):
                several.append(rest.pop())
            if not several:
                raise _usage_error(f"`{word}` needs at least one number")
            values[key] = several
        elif given is not None:
            values[key] = [given]
        elif rest and not _is_option(rest[-1]):
            values[key] = [rest.pop()]
        elif takes == _MAYBE:
            values[key] = []
        else:
            raise _usage_error(f"`{word}` needs a value")
    return _call(values, task)


def _is_quoted(task: list[str]) -> bool:
    return any(letter.isspace() for letter in task[0])


def _add_task(task: list[str], words: list[str]) -> None:
    for word in words:
        if task and _is_quoted(task):
            raise _usage_error(
                f"`{word}` is a second task",
                "schedule runs one task; put all of its words in one pair of quotes",
            )
        task.append(word)


def _is_number(word: str) -> bool:
    try:
        int(word)
    except ValueError:
        return False
    return True


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not _is_number(word) and " " not in word


def _find(word: str, in_task: bool) -> tuple[str, str | None] | None:
    """The long name of an option and the value in the same word; None for an option of the task."""
    name, equals, value = word.partition("=")
    given = value if equals else None
    if name in _BY_NAME:
        return _BY_NAME[name][-1], given
    matches = {_BY_NAME[known][-1] for known in _BY_NAME if known.startswith(name)}
    matches = {_ALIKE.get(key, key) for key in matches}
    if len(matches) > 1:
        matches.difference_update(_NEW)
    if len(matches) == 1:
        return matches.pop(), given
    if in_task and not _are_flags(word):
        return None
    if len(matches) > 1:
        raise _usage_error(f"`{name}` is ambiguous")
    if word[:2] in _BY_NAME:  # -i4
        return _BY_NAME[word[:2]][-1], word[2:]
    raise _usage_error(f"unknown option `{name}`", "words after -- belong to the task")


def _are_flags(word: str) -> bool:
    """Whether every letter is a short option, as in -sv or -vo."""
    flags = [_OPTIONS[_BY_NAME[f"-{letter}"]] for letter in word[1:] if f"-{letter}" in _BY_NAME]
    return len(flags) == len(word) - 1 and all(takes == _NONE for takes in flags[:-1])


def _usage_error(message: str, hint: str | None = None) -> UsageError:
    return UsageError(message, hint or USAGE.splitlines()[0].rstrip() + " ... [task ...]")


def _call(values: dict[str, list[str]], task: list[str]) -> Call:
    def number(key: str) -> tuple[int, ...]:
        return tuple(_number(key, text) for text in values.get(key, ()))

    counts = number("--gpu_count") + number("--num")
    count = counts[-1] if counts else 1
    if count < 1:
        raise _usage_error(
            f"`{count}` is not a valid number of GPUs", "a task with two GPUs: -gc 2"
        )
    # Only v2 accepts a list, which tells the versions apart if the name is abbreviated.
    for new, old in _ALIKE.items():
        if any(text.startswith("[") or "," in text for text in values.get(old, ())):
            values.setdefault(new, []).extend(values.pop(old))
    force = number("--forced_gpu") + _list("--force", values)
    out, err = values.get("--out"), values.get("--err")
    does_more = bool(task) or "--help" in values or "--status" in values
    if not does_more and not values.get("--init") and not values.get("--release_gpu"):
        for key, paths in (("-o", out), ("-e", err)):
            if paths:
                raise _usage_error(
                    f"`{key} {paths[0]}` is the output file, so there is no task",
                    f"schedule 'TASK' {key} FILE",
                )
    return Call(
        wants_help="--help" in values,
        init=number("--init"),
        release=number("--release_gpu") + number("--release"),
        status="--status" in values,
        task=_words(task),
        needs=max(count, len(set(force))),
        prefer=_without_repeats(number("--prefered_gpu") + _list("--prefer", values)),
        force=_without_repeats(force),
        force_text=values["--force"][0] if "--force" in values else None,
        out=out[0] if out and out[0] != STDOUT else None,
        err=err[0] if err else None,
        is_verbose="--verbose" in values,
        is_cx="--cx" in values,
        exits_zero="--exit-zero" in values,
        is_v2=_is_v2(values),
    )


def _is_v2(values: dict[str, list[str]]) -> bool:
    """Whether there are flags of v2, and none that exist in v1 only."""
    return any(key in values for key in _V2_FLAGS) and not any(key in values for key in _V1_FLAGS)


def _number(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _usage_error(f"`{key} {text}`: `{text}` is not an integer") from None


def _list(key: str, values: dict[str, list[str]]) -> tuple[int, ...]:
    """Parse `2`, `[1,3]` (the syntax of v2) or `1,3`."""
    texts = values.get(key, ())
    numbers = [part for text in texts for part in text.strip().strip("[]").split(",")]
    return tuple(_number(key, part.strip()) for part in numbers)


def _without_repeats(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers))


def _words(task: list[str]) -> tuple[str, ...]:
    """The words of the task: a single word is split by `shlex`, line by line."""
    if len(task) != 1:
        return tuple(task)
    import shlex

    try:
        return tuple(word for line in task[0].split("\n") for word in shlex.split(line))
    except ValueError as error:
        raise _usage_error(
            f"cannot split the task into words: {str(error).lower()}",
            "close the quotation mark, or pass the words unquoted",
        ) from None
