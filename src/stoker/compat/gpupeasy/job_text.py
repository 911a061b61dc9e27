"""The batch format of GPUPeasy: `name ;; outfile ;; command ;;; ...`

Line ends and runs of spaces count as one space. The command is split like in a shell, without
expansions.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from stoker.record import Record

# `;;` also ends a branch of a `case` in shell code.
_CASE = re.compile(r"\bcase\b.*\bin\b", re.DOTALL)


class TextJob(Record):
    """One job of a text; `error` holds the error if it is not valid."""

    name: str
    out: str
    argv: tuple[str, ...]
    error: str | None = None

    def as_json(self) -> dict[str, object]:
        return {"jobName": self.name, "outFile": self.out, "jobCommand": self.argv}


def jobs_in(text: str) -> Iterator[TextJob]:
    """
    >>> [job.argv for job in jobs_in("a;;a.out;;echo 'x  y';;; b ;; b.out ;;\\n ls\\n -l")]
    [('echo', 'x y'), ('ls', '-l')]
    >>> next(jobs_in("only;;two")).error
    'Malformed job: only;;two'
    >>> next(jobs_in('a;;b;;echo "')).error
    'Error in job: a: No closing quotation'
    """
    for part in one_line(text).split(";;;"):
        if part.strip():
            yield _job(part.strip())


def _job(text: str) -> TextJob:
    fields = [field.strip() for field in text.split(";;")]
    fields = [field for field in fields if field]
    if len(fields) != 3:
        return TextJob("", "", (), f"Malformed job: {text}")
    name, out, command = fields
    try:
        return TextJob(name, out, split_command(command))
    except ValueError as error:
        return TextJob(name, out, (), error_in(name, str(error)))


def error_in(name: str, why: str) -> str:
    return f"Error in job: {name}: {why}"


def one_line(text: str) -> str:
    """
    >>> one_line(" a\\r\\n   b ")
    'a b'
    """
    return re.sub(" +", " ", text.strip().replace("\n", " ").replace("\r", " "))


def split_command(text: str) -> tuple[str, ...]:
    """Split a command like a shell. Raises ValueError with a message if a quote is not closed.

    >>> split_command("python -c ' print(1)' ''")
    ('python', '-c', 'print(1)', '')
    """
    return tuple(word.strip() for word in shlex.split(text))


def has_fields(text: str) -> bool:
    """Whether `;;` separates fields in this text, and not the branches of a `case`.

    >>> has_fields("a ;; a.out ;; echo 1"), has_fields("case $1 in a) echo 1;; esac")
    (True, False)
    """
    return ";;" in text and not _CASE.search(text)
