"""The screen: its widgets, and what they show."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Footer, Input, Label, Static

from stoker.client.live.live_state import LiveState
from stoker.features.results.terminal_plot import draw
from stoker.features.top.glyphs import Glyphs, Span, clean
from stoker.features.top.gpu_tables import gpu_pairs, gpu_table
from stoker.features.top.job_text import (
    JOB_COLUMNS,
    SWEEP_COLUMNS,
    Job,
    facts,
    job_cells,
    sweep_cells,
    title,
)
from stoker.features.top.log_pane import LogPane
from stoker.features.top.readings import Details
from stoker.features.top.row_table import Row, RowTable
from stoker.states import FINAL, STARTED, SUBMITTED, WAITING
from stoker.text.plurals import plural

KEYS = (
    ("Up Down, k j", "move the cursor, or scroll the log"),
    ("PgUp PgDn Home End", "move by a page, or to the first and last line"),
    ("Tab", "go from the list to the log and back"),
    ("Enter", "show a job with its log and a curve; on a sweep: list its jobs"),
    ("Esc", "go back, or end the filter"),
    ("1 2 3", "show jobs, GPUs or sweeps"),
    ("c", "cancel the job; asks first"),
    ("h", "hold a waiting job, or release a held one"),
    ("r", "rerun a finished job"),
    ("+ -", "raise or lower the priority of a waiting job by 1"),
    ("m", "show the curve of the next metric"),
    ("/", "filter: list the jobs that match"),
    ("a", "list all jobs, the newest first"),
    ("Ctrl-L", "draw the screen again"),
    ("Ctrl-Z", "suspend `stoker top`; `fg` continues it"),
    ("?", "show this help"),
    ("q, Ctrl-C", "quit; jobs go on"),
)

# The filter, in words; `stoker help selectors` has the rest.
FILTER_EXAMPLES = (
    ("7 or 3-9", "jobs by id"),
    ("failed", "jobs in a state; also waiting, active, final, all"),
    ("tag:x name:y sweep:z", "jobs with a tag or name, or of a sweep"),
    ("lr=0.1", "other words: a tag, a name, or a part of a command"),
)


def help_text() -> Text:
    text = Text.assemble(("Keys\n\n", "bold"))
    for keys, words in KEYS:
        text.append(f" {keys:20}", "bold").append(f"{words}\n")
    text.append("\nThe filter (/) takes the same words as stoker ls:\n\n", "bold")
    for keys, words in FILTER_EXAMPLES:
        text.append(f" {keys:22}", "bold").append(f"{words}\n")
    return text.append("\nClosing this program changes nothing: jobs run without it.")


_LEAST_COLUMNS, _LEAST_ROWS = 50, 12
_EXAMPLES = "failed  3-9  tag:x  name:y  sweep:z  or part of a command"
_STATICS = (
    "too_small", "tabs", "counts", "problems", "gpu_list", "empty", "facts", "curve", "gpu_details",
    "curves", "message",
)  # fmt: skip
_NO_SWEEPS = "no sweeps yet; start one: stoker sweep 'python train.py --lr {lr}' lr=0.1,0.01"
_TITLES = {"jobs": "Jobs", "gpus": "GPUs", "sweeps": "Sweeps"}


class Question(ModalScreen[bool], inherit_bindings=False):
    """A question in the last line; any key but y means no."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = Text.assemble((f" {text}", "bold reverse"), " y: yes, any other key: no")

    def compose(self) -> ComposeResult:
        yield Static(self._text)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.dismiss(event.key in ("y", "Y"))


class TopScreen(Screen[None], inherit_bindings=False):
    """Without Textual's own keys for moving the focus."""

    AUTO_FOCUS = ""


class Dashboard(App[int]):
    """The widgets and what they show of the data, which `TopApp` reads."""

    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = os.path.join(os.path.dirname(__file__), "app.tcss")
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (_LEAST_COLUMNS, "-narrow"), (150, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-flat"), (_LEAST_ROWS, "-low"), (16, "-middle"), (30, "-tall"),
    ]  # fmt: skip

    def __init__(self, glyphs: Glyphs) -> None:
        # The colors and the background of the terminal itself.
        super().__init__(ansi_color=True)
        # Its name in newer and in older versions of Textual.
        names = [name for name in ("ansi-dark", "textual-ansi") if name in self.available_themes]
        self.theme = names[0]
        self.animation_level = "none"
        self.main = TopScreen(classes="-ascii" if glyphs.is_ascii else None)
        self.host = os.uname().nodename
        self.glyphs = glyphs
        self.is_open = True
        self.state: LiveState | None = None
        self.problems: list[str] = []  # of the daemon and the host
        self.error: str | None = None  # why the queue cannot be read
        self.is_in_details = False
        self.filter = ""
        self.matches: Sequence[int] | None = None  # None: no filter, or not searched yet
        self.rows: dict[int, dict[str, Any]] = {}  # jobs that match, as far as they were read
        self.details = Details()
        self._shown: dict[Widget, object] = {}
        self._titles: dict[Widget, str] = {}
        self.job_table = RowTable(JOB_COLUMNS, self._job_cells, glyphs, "jobs_table")
        self.sweep_table = RowTable(SWEEP_COLUMNS, self._sweep_cells, glyphs, "sweeps_table")
        self.log_pane = LogPane(glyphs, "log")
        self._statics = {name: Static(id=name) for name in _STATICS}
        self.pages = ContentSwitcher(id="pages", initial="jobs")
        self.filter_line = Horizontal(id="filter")
        self.filter_input = Input(placeholder=_EXAMPLES, compact=True, select_on_focus=False)
        self.filter_input.cursor_blink = False
        self.filter_input.disabled = True  # until the filter is opened

    def get_default_screen(self) -> Screen[None]:
        return self.main

    def compose(self) -> ComposeResult:
        statics = self._statics
        with Horizontal(id="head"):
            yield statics["tabs"]
            yield statics["counts"]
        yield statics["problems"]
        with self.pages:
            with Container(id="jobs"):
                with Vertical(id="main"):
                    yield statics["gpu_list"]
                    yield self.job_table
                    yield statics["empty"]
                with Vertical(id="job"):
                    yield statics["facts"]
                    yield statics["curve"]
                    yield self.log_pane
            with VerticalScroll(id="gpus"):
                yield statics["gpu_details"]
            with Vertical(id="sweeps"):
                yield self.sweep_table
                yield statics["curves"]
            with VerticalScroll(id="help"):
                yield Static(help_text())
        yield statics["message"]
        yield Footer(show_command_palette=False, compact=True)
        with self.filter_line:
            yield Label(" filter: ", markup=False)
            yield self.filter_input
        yield statics["too_small"]

    @property
    def page(self) -> str:
        """jobs, gpus, sweeps or help."""
        return str(self.pages.current)

    @property
    def job_id(self) -> int | None:
        """The selected job."""
        selected = self.job_table.selected
        return selected if isinstance(selected, int) else None

    def job(self, id: int | None) -> Job | None:
        """A job for display; None if it was not read yet."""
        state = self.state
        if id is None:
            return None
        if state is not None and id in state.jobs:
            wait = state.waits.get(id)
            if wait is None:
                return state.jobs[id]
            reasons = {"why": wait.why, "why_short": wait.short, "starts_at": wait.starts_at}
            return {**state.jobs[id], **reasons}
        row = self.rows.get(id)
        return row if row is None or id != self.details.job else {**row, **self.details.why}

    @property
    def curve_of(self) -> Row | None:
        """The job (its id) or sweep (its name) whose curve is shown."""
        if self.page == "sweeps":
            return self.sweep_table.selected
        has_room = self.size.height >= 30 and (self.is_in_details or self.size.width >= 150)
        return self.job_id if self.page == "jobs" and has_room else None

    def now(self) -> float:
        return time.time()

    def show(self) -> None:
        """Show everything again that differs from what the widgets show."""
        state, screen = self.state, self.main
        if not self.is_open or not screen.is_running:
            return
        self._show_head()
        texts: list[str | None] = [self.error]  # the rest was true before
        if self.error is None:
            texts = [*self.problems, None if state is None else state.gpu_error]
        problems = "\n".join(f"! {clean(text)}" for text in texts if text)
        screen.set_class(bool(problems), "-problems")
        self._update("problems", problems, lambda: Text(problems, "yellow"))
        screen.set_class(self.is_in_details, "-details")
        if state is not None:
            self.sweep_table.set_rows(tuple(state.sweeps))
            live = (*state.running, *state.queue, *state.recent)
            self.job_table.set_rows((self.matches or ()) if self.filter else live)
        self._show_list()
        if state is not None:
            self._show_gpus(state)
        self.job_table.fill()
        self.sweep_table.fill()
        self._show_job()
        self._show_curve()
        view = (self.page, self.is_in_details, bool(self.filter))
        keys = (*view, self.focused, self.possible_changes())
        if self._shown.get(screen) != keys:
            self._shown[screen] = keys
            self.refresh_bindings()

    def _update(self, name: str, key: object, build: Callable[[], Any]) -> None:
        """Update a widget if what it shows (`key`) has changed."""
        widget = self._statics[name]
        if self._shown.get(widget) != key:
            self._shown[widget] = key
            widget.update(build())

    def _entitle(self, widget: Widget, title: str) -> None:
        if self._titles.get(widget) != title:
            self._titles[widget] = title
            widget.border_title = Content(f" {title} " if title else "")

    def _show_head(self) -> None:
        columns, rows = self.size
        small = f"the terminal is too small ({columns}x{rows}): stoker top needs "
        small += f"{_LEAST_COLUMNS}x{_LEAST_ROWS}; q quits"
        self._update("too_small", small, lambda: small)
        tabs = Text.assemble((" stoker top ", "bold"), " ")
        for number, (page, words) in enumerate(_TITLES.items(), 1):
            tabs.append(f" {number} {words} ", "reverse bold" if page == self.page else "")
            tabs.append(" ")
        if columns >= 70:
            tabs.append(f" {clean(self.host)} ", "dim")
        self._update("tabs", (self.page, columns), lambda: tabs)
        if self.state is not None:
            counts = self.state.counts
            running = sum(counts.get(state, 0) for state in STARTED)
            failed = counts.get("failed", 0) + counts.get("lost", 0)
            parts = (
                (f"{running:,} running", "green" if running else "dim"),
                (f"{waiting_count(self.state):,} waiting", ""),
                (f"{failed:,} failed", "red" if failed else "dim"),
                (f"{counts.get('done', 0):,} done", "dim"),
            )
            line = Text(", ").join(Text(*part) for part in parts)
            self._update("counts", parts, lambda: line)

    def _show_list(self) -> None:
        """The heading of the list, and a sentence if it is empty."""
        state, filter = self.state, clean(self.filter)
        heading = "Jobs"
        texts: tuple[str, ...] = ()
        if self.filter:
            count = "searching" if self.matches is None else plural(len(self.matches), "job")
            heading = f"Jobs that match {filter}: {count}"
            if self.matches is None:
                texts = (f"searching{self.glyphs.ellipsis}",)
            elif not self.matches:
                texts = (f"no job matches {filter}", "Esc ends the filter")
        elif state is None:
            texts = () if self.error else (f"reading the queue{self.glyphs.ellipsis}",)
        elif not (state.running or state.queue or state.recent):
            texts = (
                "no jobs yet", "submit one in another terminal: stoker submit python train.py"
            )  # fmt: skip
        elif (more := waiting_count(state) - len(state.queue)) > 0:
            heading += f": {plural(more, 'more waiting job')}, press a to list all jobs"
        self._entitle(self.job_table, heading)
        self._update("empty", texts, lambda: Text("\n".join(texts)))
        self.main.set_class(bool(texts), "-empty")

    def _job_cells(self, row: Row) -> Sequence[Span]:
        id = int(row)
        job = self.job(id)
        if job is None:
            return [(str(id), "dim"), *[("", "")] * (len(JOB_COLUMNS) - 1)]
        return job_cells(job, self.details.reported.get(id), self.now(), self.glyphs)

    def _sweep_cells(self, row: Row) -> Sequence[Span]:
        assert self.state is not None
        return sweep_cells(self.state.sweeps[str(row)], self.glyphs)

    def _show_gpus(self, state: LiveState) -> None:
        titles = {id: title(state.jobs[id]) for id in state.running if id in state.jobs}
        columns = self._statics["gpu_list"].size.width
        most = max(2, (self.size.height - 3) // (3 if self.size.width >= 150 else 5))
        key = (state.gpus, titles, columns, most)

        def few() -> Any:
            if not state.gpus:
                return Text("no GPUs on this host; jobs without a GPU run on its cores", "dim")
            if len(state.gpus) > most:
                return gpu_pairs(state.gpus, titles, most, self.glyphs)
            return gpu_table(state.gpus, titles, columns, self.glyphs)

        self._update("gpu_list", key, few)
        if self.page == "gpus":
            backends = [
                Text.assemble(
                    f"\nbackend {clean(backend['name'])} ({clean(backend['kind'])}):"
                    f" {backend['summary']}",
                    (f"; {clean(backend['problem'])}" if backend["problem"] else "", "yellow"),
                )
                for backend in state.backends
            ]

            def all_gpus() -> Group:
                gpus = gpu_table(
                    state.gpus, titles, self.size.width, self.glyphs, is_detailed=True
                )  # fmt: skip
                return Group(gpus if state.gpus else few(), *backends)

            self._update("gpu_details", (*key, state.backends, self.size), all_gpus)

    def _show_job(self) -> None:
        """The facts and the log of the selected job."""
        id = self.job_id
        job = self.job(id)
        columns = self._statics["facts"].size.width
        if id is None or job is None:
            self._update("facts", None, lambda: Text("no job is selected", "dim"))
            self.log_pane.say(() if id is None else (f"reading{self.glyphs.ellipsis}",))
            self._entitle(self.log_pane, "Log" if id is None else f"Log of job {id}")
            return
        minute = int(self.now()) if job["state"] in STARTED else int(self.now() // 60)
        self._update(
            "facts", (job, self.details.reported.get(id), columns, minute),
            lambda: facts(job, self.details.reported.get(id), self.now(), columns, self.glyphs),
        )  # fmt: skip
        self.log_pane.say(self._log_notes(id, job))
        self._entitle(self.log_pane, self.log_pane.title(id))

    def _log_notes(self, id: int, job: Job) -> tuple[str, ...]:
        """What to show in place of a log."""
        log = self.log_pane
        if log.job == id and log.error is not None:
            return (log.error,)
        if log.job != id or log.attempt is None:
            return (f"reading{self.glyphs.ellipsis}",)
        if log.attempt:
            empty = "it printed nothing" if log.is_over else "it has printed nothing yet"
            return () if log.texts else (empty,)
        if job["state"] in FINAL:
            return ("it never started", clean(job["result"]))
        reasons = clean(job.get("why") or "").split("; ")
        return (f"it has not started (state: {job['state']})", *filter(None, reasons))

    def _show_curve(self) -> None:
        row, figure = self.curve_of, self.details.figure
        is_read = row is not None and self.details.figure_of == row
        self.main.set_class(is_read and figure is not None, "-curve")
        name = "curves" if self.page == "sweeps" else "curve"
        widget = self._statics[name]
        columns, rows = widget.content_size
        text = ""
        if name == "curves":
            self._entitle(widget, "" if row is None else f"Sweep {clean(row)}")
            text = "no trial has reported a metric" if is_read else f"reading{self.glyphs.ellipsis}"
            if row is None:
                text = _NO_SWEEPS

        def curve() -> Text:
            if figure is None or not is_read or not columns:
                return Text(text, "dim")
            plot = draw(figure, columns, rows, color=True, ascii=self.glyphs.is_ascii)
            return Text.from_ansi(plot.rstrip("\n"), no_wrap=True)

        self._update(name, (figure if is_read else text, columns, rows), curve)

    def possible_changes(self) -> tuple[str, ...]:
        """What can be done with the selected job in its state."""
        job = self.job(self.job_id) if self.page == "jobs" else None
        if job is None:
            return ()
        if job["state"] in FINAL:
            return ("rerun",)
        if job["state"] in STARTED:
            return ("cancel",)
        return ("cancel", "release" if job["state"] == "held" else "hold", "raise", "lower")

    def say(self, text: str, *, is_bad: bool = False) -> None:
        """Show a message in the last line, in place of the keys."""
        style = "red" if is_bad else "bold"
        self._update("message", (text, style), lambda: Text(f" {clean(text)}", style))
        self.main.set_class(bool(text), "-message")


def waiting_count(state: LiveState) -> int:
    return sum(state.counts.get(name, 0) for name in (*WAITING, SUBMITTED))
