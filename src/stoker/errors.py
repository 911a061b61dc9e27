"""The errors of Stoker, with their exit codes and JSON codes.

    Error                 exit  JSON code
    ├── UsageError           2  usage         the command line or a value on it is not valid
    ├── NotFound             1  not_found     no such job
    ├── Conflict             1  conflict      the job is not in a state that allows this
    ├── Impossible          65  impossible    this host can never run the job
    ├── Unavailable         69  unavailable   the daemon cannot be started or does not answer
    ├── Broken              70  broken        the database cannot be used; nothing was changed
    │   ├── Damaged         70  broken        ... because the file is damaged
    │   └── Upgraded        70  broken        ... because a newer release migrated it
    ├── OutputFailed        74  output        stdout cannot be written; the change was made
    ├── TryLater            75  try_later     full disk, busy database: the same call may work later
    ├── NoPermission        77  no_permission the state folder has another owner or is not private
    └── TimedOut           124  timed_out     a timeout expired (the exit code of timeout(1))

An error is one lower-case sentence that names the value. Where it helps, a hint says what to type.
A failed *job* is not an error and raises nothing.
"""

from __future__ import annotations


class Error(Exception):
    """Base of all errors that are shown to a user without a traceback."""

    exit_code = 1
    code = "error"

    def __init__(self, message: str, hint: str | None = None, field: str | None = None) -> None:
        """`field`: the option or form field that the message is about."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field

    def __str__(self) -> str:
        """The message with its hint, because a Python traceback shows only this text."""
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.hint), {"field": self.field}


class about:
    """`with about("cwd"):` sets the field of errors raised inside, unless they name one."""

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


class Invalid(UsageError):
    """The value of an option has the wrong type or size.

    The message continues the name of the option: "must be 1 or more, not 0". The caller, who knows
    how the user wrote it, puts the name before it: `--jobs`, `jobs` or a field of a form.
    """


def name_option(name: str, error: Error, field: str | None = None) -> UsageError:
    """The error of an option value as an error that names the option."""
    separator = " " if isinstance(error, Invalid) else ": "
    return UsageError(f"{name}{separator}{error.message}", error.hint, field)


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
    """The database file is damaged; `stoker doctor --repair` repairs it."""


class Upgraded(Broken):
    """A newer release migrated the database while this process had it open."""


class OutputFailed(Error):
    """Raised after the text was written to stderr instead. Do not repeat the command."""

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
