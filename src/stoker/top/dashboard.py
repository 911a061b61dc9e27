"""What the user looks at: tab, cursor, filter, question, messages. Keys change it.

It knows neither the terminal nor the database: `key` returns an effect that app.py carries out, and
app.py gives it what was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker.client.live_state import LiveState
from stoker.core.record import Record
from stoker.core.states import FINAL, SUBMITTED, WAITING
from stoker.results.figure import Figure
from stoker.top.job_lines import Job, Reported, title
from stoker.top.log_tail import LogTail
from stoker.top.row_list import Heading, Row, RowList
from stoker.top.spans import UNICODE, Glyphs

TABS = ("jobs", "gpus", "sweeps")
JOB, HELP = "job", "help"  # shown over a tab
LIST, LOG = "list", "log"  # what has the focus
RUNNING, QUEUE, MORE, RECENT = map(Heading, ("running", "waiting", "more", "recent"))
_PAGE = 10


class Act(Record):
    """Change a job: cancel, hold (or release), rerun, raise or lower."""

    action: str
    job: int


class Search(Record):
    """Find the jobs that match the filter; "" ends it."""

    text: str


class Question(Record):
    text: str
    act: Act


class OpenFilter(Record):
    """Let the user edit the filter."""


class Quit(Record):
    """End the program."""


class Redraw(Record):
    """Draw all cells again."""


class Suspend(Record):
    """Stop the program until the shell continues it."""


Effect = Act | Search | OpenFilter | Quit | Redraw | Suspend


class Dashboard:
    def __init__(self, host: str, glyphs: Glyphs = UNICODE) -> None:
        self.host = host
        self.glyphs = glyphs
        self.state: LiveState | None = None
        self.problems: list[str] = []  # of the daemon and the host
        self.error: str | None = None  # why the queue cannot be read
        self.tab = TABS[0]
        self.over: str | None = None
        self.focus = LIST
        self.jobs = RowList()
        self.sweeps = RowList()
        self.scrolled = 0  # lines of help, or of GPUs
        self.filter = ""
        self.matches: Sequence[int] | None = None  # None: no filter
        self.rows: dict[int, dict[str, Any]] = {}  # jobs that match, as far as they were read
        self.whys: dict[int, dict[str, Any]] = {}  # why the selected job waits, if it is not there
        self.reported: dict[int, Reported] = {}
        self.log = LogTail()
        self.metric = 0  # the number of the metric in the curve
        self.figure: Figure | None = None
        self.figure_of: Row | None = None
        self.question: Question | None = None
        self.message = ""
        self.is_message_bad = False
        self.page = _PAGE  # lines of the visible part of the list; frame.py sets it
        self.visible: tuple[int, ...] = ()  # jobs on the screen; frame.py sets it
        self.has_curve_room = False  # frame.py sets it

    # -- what was read -------------------------------------------------------------------------

    def take_state(self, state: LiveState, problems: list[str]) -> None:
        self.state, self.problems, self.error = state, problems, None
        self._set_rows()
        names: list[Row] = list(state.sweeps)
        self.sweeps.set_rows(names)

    def take_matches(self, text: str, ids: Sequence[int]) -> None:
        """The jobs that match a filter; ignored if the filter has changed since."""
        if text != self.filter:
            return
        is_new = self.matches is None
        self.matches = ids
        if is_new:
            self.jobs.restart()
        self._set_rows()

    def _set_rows(self) -> None:
        state = self.state
        if state is None:
            return
        if self.filter:
            self.jobs.set_rows(self.matches or ())
            return
        rows: list[Row] = []
        if state.running:
            rows += [RUNNING, *state.running]
        if state.queue:
            rows += [QUEUE, *state.queue]
            if waiting_count(state) > len(state.queue):
                rows.append(MORE)
        if state.recent:
            rows += [RECENT, *state.recent]
        self.jobs.set_rows(rows)

    def say(self, text: str, *, is_bad: bool = False) -> None:
        self.message, self.is_message_bad = text, is_bad

    # -- the selected job ----------------------------------------------------------------------

    @property
    def job_id(self) -> int | None:
        selected = self.jobs.selected
        return selected if isinstance(selected, int) else None

    def job(self, id: int) -> Job | None:
        """A job for display; None if it was not read yet."""
        state = self.state
        if state is not None and id in state.jobs:
            wait = state.waits.get(id)
            if wait is None:
                return state.jobs[id]
            return {
                **state.jobs[id],
                "why": wait.why,
                "why_short": wait.short,
                "starts_at": wait.starts_at,
            }
        row = self.rows.get(id)
        return row if row is None or id not in self.whys else {**row, **self.whys[id]}

    @property
    def is_log_shown(self) -> bool:
        return self.over == JOB or (self.over is None and self.tab == "jobs")

    @property
    def curve_of(self) -> Row | None:
        """The job (its id) or sweep (its name) whose curve is shown."""
        if self.over is None and self.tab == "sweeps":
            return self.sweeps.selected
        return self.job_id if self.is_log_shown else None

    # -- keys ----------------------------------------------------------------------------------

    def key(self, key: str) -> Effect | None:
        """Change the dashboard. Returns what is to be done outside of it."""
        self.message = ""
        if self.question is not None:
            question, self.question = self.question, None
            if key in ("y", "Y"):
                return question.act
            self.say("nothing was changed")
            return None
        if key in ("q", "ctrl+c"):
            return Quit()
        if key == "ctrl+l":
            return Redraw()
        if key == "ctrl+z":
            return Suspend()
        if key in _MOVES:
            self._move(key)
            return None
        if key == "question_mark":
            self.over, self.scrolled = (None, 0) if self.over == HELP else (HELP, 0)
        elif key == "escape":
            return self._back()
        elif self.over != HELP:
            return self._view_key(key)
        return None

    def _view_key(self, key: str) -> Effect | None:
        if key in ("1", "2", "3"):
            self.tab, self.over, self.focus, self.scrolled = TABS[int(key) - 1], None, LIST, 0
        elif key == "tab" and self.tab == "jobs" and self.over is None:
            self.focus = LOG if self.focus == LIST else LIST
        elif key == "enter":
            return self._enter()
        elif key == "m":
            self.metric += 1
        elif key == "slash":
            self.tab, self.over, self.focus = TABS[0], None, LIST
            return OpenFilter()
        elif key == "a":
            return self.search("all")
        elif key in _ACTS:
            return self._act(_ACTS[key])
        return None

    def _back(self) -> Effect | None:
        if self.over is not None:
            self.over = None
        elif self.focus == LOG:
            self.focus = LIST
        elif self.filter:
            return self.search("")
        return None

    def _enter(self) -> Effect | None:
        if self.over == JOB:
            return None
        if self.tab == "sweeps":
            name = self.sweeps.selected
            return None if name is None else self.search(f"sweep:{name}")
        if self.tab == "jobs" and self.job_id is not None:
            self.over = JOB
        return None

    def search(self, text: str) -> Search:
        """Filter the jobs; the list changes when the matches were found."""
        self.tab, self.over, self.focus = TABS[0], None, LIST
        self.filter, self.matches = text.strip(), None
        self.rows = {}
        selected = self.jobs.selected
        self.jobs.restart()
        if not self.filter:
            self._set_rows()
            if selected is not None:
                self.jobs.select(selected)
        return Search(self.filter)

    def _act(self, action: str) -> Effect | None:
        id = self.job_id
        if self.tab != "jobs" or id is None:
            self.say("select a job first: 1 shows the jobs", is_bad=True)
            return None
        act = Act(action, id)
        if action != "cancel":
            return act
        job = self.job(id)
        if job is not None and job["state"] in FINAL:
            self.say(f"job {id} has already finished: {job['state']}", is_bad=True)
            return None
        name = "" if job is None else f" ({title(job)}, {job['state']})"
        self.question = Question(f"cancel job {id}{name}?", act)
        return None

    def _move(self, key: str) -> None:
        delta = {"up": -1, "k": -1, "down": 1, "j": 1}.get(key, 0)
        if key in ("pageup", "pagedown"):
            delta = (self.page - 1 or 1) * (1 if key == "pagedown" else -1)
        if self.over == HELP or (self.over is None and self.tab == "gpus"):
            end = {"home": 0, "end": 1 << 20}.get(key)
            self.scrolled = max(0, self.scrolled + delta if end is None else end)
        elif self.over == JOB or (self.tab == "jobs" and self.focus == LOG):
            if key in ("home", "end"):
                (self.log.to_start if key == "home" else self.log.to_end)()
            else:
                self.log.scroll(delta)
        else:
            rows = self.sweeps if self.tab == "sweeps" else self.jobs
            if key in ("home", "end"):
                (rows.first if key == "home" else rows.last)()
            else:
                rows.move(delta)


_MOVES = ("up", "down", "k", "j", "pageup", "pagedown", "home", "end")
_ACTS = {"c": "cancel", "h": "hold", "r": "rerun", "plus": "raise", "minus": "lower"}


def waiting_count(state: LiveState) -> int:
    return sum(state.counts.get(one, 0) for one in (*WAITING, SUBMITTED))
