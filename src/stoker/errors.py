"""Everything Stoker can say no with.

    Error                 exit  JSON code
    ├── UsageError           2  usage         the words on the command line make no sense
    ├── NotFound             1  not_found     no such job
    ├── Conflict             1  conflict      the job is not in a state that allows this
    ├── Impossible          65  impossible    no machine state would ever let this job run
    ├── Unavailable         69  unavailable   the daemon cannot be started or does not answer
    ├── Broken              70  broken        our own state cannot be used; nothing was changed
    │   ├── Damaged         70  broken        ... and it is the file that is at fault
    │   └── Upgraded        70  broken        ... a newer release migrated it meanwhile
    ├── OutputFailed        74  output        stdout cannot be written; a change was made and stays
    ├── TryLater            75  try_later     full disk, busy database: the same call may work later
    ├── NoPermission        77  no_permission the state folder is not ours or not safe
    └── TimedOut           124  timed_out     a wait was given up (as timeout(1) does)

An error is one lower-case sentence that names the value, and where it helps a hint that says what
to type. A failed *job* is not an error of ours and never raises.
"""

from __future__ import annotations


class Error(Exception):
    """Base of all errors that are shown to a user without a traceback."""

    exit_code = 1
    code = "error"

    def __init__(self, message: str, hint: str | None = None, field: str | None = None) -> None:
        """`field`: the option or the part of a form that the message is about."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field

    def __str__(self) -> str:
        """With the hint: those who catch it in Python see nothing else of it."""
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.hint), {"field": self.field}


class about:
    """`with about("cwd"):` errors from inside are about this field, unless they name one."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, Error) and error.field is None:
            error.field = self._field


class UsageError(Error):
    exit_code = 2
    code = "usage"


class NotFound(Error):
    exit_code = 1
    code = "not_found"


class Conflict(Error):
    exit_code = 1
    code = "conflict"


class Impossible(Error):
    exit_code = 65
    code = "impossible"


class Unavailable(Error):
    exit_code = 69
    code = "unavailable"


class Broken(Error):
    exit_code = 70
    code = "broken"


class Damaged(Broken):
    """What `stoker doctor --repair` is for."""


class Upgraded(Broken):
    """The queue was migrated by a newer release while this process had it open."""


class OutputFailed(Error):
    """Raised after the text went to stderr instead. The command must not be repeated."""

    exit_code = 74
    code = "output"


class TryLater(Error):
    exit_code = 75
    code = "try_later"


class NoPermission(Error):
    exit_code = 77
    code = "no_permission"


class TimedOut(Error):
    exit_code = 124
    code = "timed_out"
