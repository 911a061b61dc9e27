"""Check the dependencies of a job file before any of its jobs is queued."""

from __future__ import annotations

from stoker.engine.model import AfterSelector, JobSpec
from stoker.engine.store.database import Database
from stoker.engine.store.needed_jobs import needed_jobs
from stoker.errors import Error


class AfterChecker:
    """Raises the errors that the store would raise, with the number of the line.

    A line may wait for jobs of earlier lines, by name or tag.
    """

    def __init__(self, db: Database, base: JobSpec) -> None:
        self._db = db
        self._words: set[str] = set()
        self._add_words(base)

    def check(self, line: int, spec: JobSpec) -> None:
        others = [one for one in spec.after if not self._is_earlier_line(one)]
        try:
            needed_jobs(self._db, others)
        except Error as error:
            text = f"line {line}: `--after`: {error.message}"
            raise type(error)(text, error.hint) from None
        self._add_words(spec)

    def _add_words(self, spec: JobSpec) -> None:
        for kind, words in (("name", (spec.name,) if spec.name else ()), ("tag", spec.tags)):
            for word in words:
                self._words |= {word, f"{kind}:{word}"}

    def _is_earlier_line(self, item: object) -> bool:
        if not isinstance(item, AfterSelector) or not item.in_file:
            return False
        return item.text.startswith("@") or item.text in self._words
