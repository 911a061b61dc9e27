"""Gather the state of the code in the folders of new jobs, once per folder."""

from __future__ import annotations

import os
import time

from stoker.engine.model import Context
from stoker.engine.snapshot_context import original_folder
from stoker.features.code.repository import find_repository
from stoker.features.code.store import NewCode, prepare
from stoker.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.features.code.state_reader import CodeState

# A program that submits thousands of jobs one by one reads the state of its code once a second.
_REUSE_SECONDS = 1.0


class _Known(Record):
    at: float  # monotonic
    state: CodeState | None
    code: NewCode | None


class CodeGatherer:
    """Reads states of code, and keeps them for a moment."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}  # by folder

    def of_command(self, context: Context, words: tuple[str, ...]) -> NewCode | None:
        """Like `of`, with the files that the words of a command name and git does not track."""
        from stoker.features.code.state_reader import read_files, with_untracked

        cwd = os.path.abspath(original_folder(context))
        known = self._read(context)
        if known.state is None:
            state = read_files(cwd, words)
        else:
            state = with_untracked(known.state, cwd, words)
            if state is known.state:
                return known.code
        return None if state is None else prepare(state)

    def of(self, context: Context) -> NewCode | None:
        """The code in the folder of a context, to be stored; None if it is in no git repository."""
        return self._read(context).code

    def state_of(self, context: Context) -> CodeState | None:
        """The state of the code in the folder of a context; None if it is in no git repository."""
        return self._read(context).state

    def _read(self, context: Context) -> _Known:
        cwd = os.path.abspath(original_folder(context))
        known = self._known.get(cwd)
        if known is None or time.monotonic() - known.at > _REUSE_SECONDS:
            at = time.monotonic()
            state = _read(cwd)
            known = self._known[cwd] = _Known(at, state, None if state is None else prepare(state))
        return known


def _read(cwd: str) -> CodeState | None:
    if find_repository(cwd) is None:
        return None
    from stoker.features.code.state_reader import read_state

    return read_state(cwd)
