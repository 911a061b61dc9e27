"""The program: its widgets, what they show, its keys, and what it reads."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from rich.console import Group
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Footer, Input, Label, Static
from textual.worker import Worker

from stoker.client.database_threads import DatabaseThreads
from stoker.client.live.live_state import LiveState, LiveStateReader
from stoker.client.live.state_watcher import StateWatcher
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.client.views.why import host_problems
from stoker.errors import Error
from stoker.features.results.terminal_plot import draw
from stoker.features.top.glyphs import ASCII, UNICODE, Glyphs, Span, clean
from stoker.features.top.gpu_tables import gpu_pairs, gpu_table
from stoker.features.top.job_actions import act
from stoker.features.top.job_text import (
    JOB_COLUMNS,
    SWEEP_COLUMNS,
    Job,
    facts,
    job_cells,
    sweep_cells,
    title,
)
from stoker.features.top.keys import help_text
from stoker.features.top.log_pane import LogPane
from stoker.features.top.readings import Details, Readings
from stoker.features.top.row_table import Row, RowTable
from stoker.settings import Settings
from stoker.states import FINAL, STARTED, SUBMITTED, WAITING
from stoker.text.plurals import plural

_TICK_SECONDS = 1.0  # durations on the screen
_LOG_SECONDS = 0.25  # between two looks at the size of the log
_SEARCH_FACTOR = 20.0  # a search is repeated after this multiple of its time
_EXAMPLES = "failed  3-9  tag:x  name:y  sweep:z  or part of a command"
_LEAST_COLUMNS, _LEAST_ROWS = 50, 12
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


class TopApp(App[int]):
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = os.path.join(os.path.dirname(__file__), "app.tcss")
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (_LEAST_COLUMNS, "-narrow"), (150, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-flat"), (_LEAST_ROWS, "-low"), (16, "-middle"), (30, "-tall"),
    ]  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "leave", priority=True, show=False),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("escape", "close", "back", key_display="Esc"),
        Binding("enter", "enter", "details", key_display="Enter"),
        Binding("c", "change('cancel')", "cancel"),
        Binding("h", "change('hold')", "hold"),
        Binding("h", "change('release')", "release"),
        Binding("r", "change('rerun')", "rerun"),
        Binding("plus", "change('raise')", "priority", key_display="+ -"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("tab", "focus_pane('log')", "log", key_display="Tab"),
        Binding("tab", "focus_pane('jobs')", "jobs", key_display="Tab"),
        Binding("m", "metric", "next metric"),
        Binding("1", "first_page", "jobs"),
        # The keys of changes that the state of the job does not allow: these say why.
        Binding("c", "try_change('cancel')", show=False),
        Binding("h", "try_change('hold')", show=False),
        Binding("r", "try_change('rerun')", show=False),
        Binding("plus", "try_change('raise')", show=False),
        Binding("minus", "try_change('lower')", show=False),
        Binding("1", "page('jobs')", show=False),
        Binding("2", "page('gpus')", show=False),
        Binding("3", "page('sweeps')", show=False),
        Binding("a", "search('all')", show=False),
        Binding("ctrl+l", "draw_again", show=False),
        Binding("ctrl+z", "suspend_process", show=False),
    ]

    def __init__(self, settings: Settings, *, glyphs: Glyphs = UNICODE, text: str = "") -> None:
        # The colors and the background of the terminal itself.
        super().__init__(ansi_color=True)
        # Its name in newer and in older versions of Textual.
        names = [name for name in ("ansi-dark", "textual-ansi") if name in self.available_themes]
        self.theme = names[0]
        self.animation_level = "none"
        self.main = TopScreen(classes="-ascii" if glyphs.is_ascii else None)
        self.host = os.uname().nodename
        self.glyphs = glyphs
        self.state: LiveState | None = None
        self.problems: list[str] = []  # of the daemon and the host
        self.error: str | None = None  # why the queue cannot be read
        self.is_in_details = False
        self.filter = ""
        self.matches: Sequence[int] | None = None  # None: no filter, or not searched yet
        self.rows: dict[int, dict[str, Any]] = {}  # jobs that match, as far as they were read
        self.details = Details()
        self.metric = 0  # the number of the metric in the curve
        self._before_help = ("jobs", False)  # the page, and whether it showed details
        self._shown: dict[Widget, object] = {}
        self._titles: dict[Widget, str] = {}
        self.job_table = RowTable(JOB_COLUMNS, self._job_cells, glyphs, "jobs_table")
        self.sweep_table = RowTable(SWEEP_COLUMNS, self._sweep_cells, glyphs, "sweeps_table")
        self.log_pane = LogPane(glyphs, "log")
        self._statics = {name: Static(id=name) for name in _STATICS}
        self._pages = ContentSwitcher(id="pages", initial="jobs")
        self._filter_line = Horizontal(id="filter")
        self._input = Input(placeholder=_EXAMPLES, compact=True, select_on_focus=False)
        self._input.cursor_blink = False
        self._input.disabled = True  # until the filter is opened
        self._readings = Readings(settings.state_dir)
        self._threads = DatabaseThreads(settings, creates=False)
        reader = LiveStateReader(self._readings.sweeps)
        self._watcher = StateWatcher(
            settings, reader, self._refresh(reader), self._failed, creates=False
        )
        self._is_open = True
        self._log_path: str | None = None  # while it may grow
        self._log_size = 0
        self._search_due = 0.0
        self._log_loader = Loader(self, self._read_log, 0.02)
        self._loaders = [
            self._log_loader,
            Loader(self, self._read_details, 0.1),
            Loader(self, self._read_rows, 0.02),
        ]
        self._search_loader = Loader(self, self._search)
        self._first_filter = text

    # -- start and end -------------------------------------------------------------------------

    def get_default_screen(self) -> Screen[None]:
        return self.main

    def compose(self) -> ComposeResult:
        statics = self._statics
        with Horizontal(id="head"):
            yield statics["tabs"]
            yield statics["counts"]
        yield statics["problems"]
        with self._pages:
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
        with self._filter_line:
            yield Label(" filter: ", markup=False)
            yield self._input
        yield statics["too_small"]

    def on_mount(self) -> None:
        self.set_interval(_TICK_SECONDS, self.show)
        self.set_interval(_LOG_SECONDS, self._look_at_log)
        self.app_resume_signal.subscribe(self, lambda _: self.action_draw_again())  # after `fg`
        if threading.current_thread() is threading.main_thread() and not self.is_headless:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, self.exit, 0)
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.exit, 128 + number)
        self.watch_queue()
        if self._first_filter:
            self.action_search(self._first_filter)
        self._focus()

    def watch_queue(self) -> None:
        threading.Thread(
            target=self._watcher.run, args=(lambda: self._is_open,), name="watcher", daemon=True
        ).start()

    def on_unmount(self) -> None:
        self._is_open = False
        self._watcher.wake()
        self._threads.close()

    # -- the watcher, in its thread ------------------------------------------------------------

    def _refresh(self, reader: LiveStateReader) -> Callable[[Queue], None]:
        before: list[LiveState | None] = [None]

        def refresh(queue: Queue) -> None:
            state = before[0] = reader.read(queue, before[0])
            self.call_later(self.take_state, state, _problems(queue, state))

        return refresh

    def _failed(self, error: Error) -> None:
        self.call_later(self.take_error, error)

    def take_state(self, state: LiveState, problems: list[str]) -> None:
        self.state, self.problems, self.error = state, problems, None
        if self.filter and time.monotonic() >= self._search_due:
            self._search_loader.request()
        self._changed()

    def take_error(self, error: Error) -> None:
        self.error = f"{error.message}: {error.hint}" if error.hint else error.message
        self.show()

    # -- what is shown -------------------------------------------------------------------------

    @property
    def page(self) -> str:
        """jobs, gpus, sweeps or help."""
        return str(self._pages.current)

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
        if not self._is_open or not screen.is_running:
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
        keys = (self.page, self.is_in_details, bool(self.filter), self.focused, self._changes())
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
                text = (
                    "no sweeps yet; start one: stoker sweep 'python train.py --lr {lr}' lr=0.1,0.01"
                )

        def curve() -> Text:
            if figure is None or not is_read or not columns:
                return Text(text, "dim")
            plot = draw(figure, columns, rows, color=True, ascii=self.glyphs.is_ascii)
            return Text.from_ansi(plot.rstrip("\n"), no_wrap=True)

        self._update(name, (figure if is_read else text, columns, rows), curve)

    def on_resize(self) -> None:
        self.call_after_refresh(self._resized)

    def _resized(self) -> None:
        self._focus()
        self.show()
        self.request_all()

    # -- keys ----------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            self.say("")  # a message stays until the next key
        await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        if self._filter_line.display and event.character is not None and event.is_printable:
            # Typed before the line had the focus; later ones do not come here.
            self._input.insert_text_at_cursor(event.character)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does something now: the footer shows those that do."""
        is_log_focused = self.focused is self.log_pane
        if self._filter_line.display:
            return action in ("close", "leave", "draw_again", "suspend_process")
        if action == "change":
            return parameters[0] in self._changes()
        if action == "enter":
            return self.page == "sweeps" or (self._is_list and self.job_id is not None)
        if action == "close":
            return self.page == "help" or self.is_in_details or bool(self.filter) or is_log_focused
        if action == "focus_pane":
            return self._is_list and is_log_focused == (parameters[0] == "jobs")
        if action == "filter":
            return self.page != "help"
        if action == "first_page":
            return self.page in ("gpus", "sweeps")
        if action == "metric":
            return self.page == "sweeps" or self.is_in_details
        if self.page == "help":
            return action not in ("page", "search", "try_change")
        return True

    @property
    def _is_list(self) -> bool:
        return self.page == "jobs" and not self.is_in_details

    def _changes(self) -> tuple[str, ...]:
        """What can be done with the selected job in its state."""
        job = self.job(self.job_id) if self.page == "jobs" else None
        if job is None:
            return ()
        if job["state"] in FINAL:
            return ("rerun",)
        if job["state"] in STARTED:
            return ("cancel",)
        return ("cancel", "release" if job["state"] == "held" else "hold", "raise", "lower")

    def _focus(self) -> None:
        """Focus the widget that the arrows move."""
        widgets: dict[str, Widget] = {
            "jobs": self.log_pane if self.is_in_details else self.job_table,
            "sweeps": self.sweep_table,
        }
        if not self._filter_line.display:
            self.main.set_focus(widgets.get(self.page) or self.main.query_one(f"#{self.page}"))

    def _go(self, page: str, *, is_in_details: bool = False) -> None:
        self._pages.current = page
        self.is_in_details = is_in_details
        self.main.set_class(is_in_details, "-details")
        self._focus()
        self._changed()

    def _changed(self) -> None:
        self.show()
        self.request_all()

    def action_leave(self) -> None:
        self.exit(0)

    def action_draw_again(self) -> None:
        self.refresh(layout=True)

    def action_help(self) -> None:
        if self.page != "help":
            self._before_help = (self.page, self.is_in_details)
            self._go("help")
        else:
            self.action_close()

    def action_first_page(self) -> None:
        self._go("jobs")

    def action_page(self, page: str) -> None:
        self._go(page)

    def action_close(self) -> None:
        if self._filter_line.display:
            self._close_filter()
        elif self.page == "help":
            self._go(self._before_help[0], is_in_details=self._before_help[1])
        elif self.is_in_details or self.focused is self.log_pane:
            self._go("jobs")
        else:
            self.action_search("")

    def action_enter(self) -> None:
        if self.page == "jobs":
            self._go("jobs", is_in_details=True)
        elif self.sweep_table.selected is not None:
            self.action_search(f"sweep:{self.sweep_table.selected}")

    def action_focus_pane(self, name: str) -> None:
        self.main.set_focus(self.log_pane if name == "log" else self.job_table)
        self.show()

    def action_metric(self) -> None:
        self.metric += 1
        self.request_all()

    def on_data_table_row_highlighted(self) -> None:
        self._changed()

    # -- the filter ----------------------------------------------------------------------------

    def action_search(self, text: str) -> None:
        """Filter the jobs; the list changes when the matches were found."""
        selected = self.job_table.selected
        self.filter, self.matches, self.rows = text.strip(), None, {}
        self.job_table.set_rows(())
        self._go("jobs")
        if self.filter:
            self._search_loader.request()
        else:
            self.job_table.select(selected)

    def take_matches(self, text: str, ids: Sequence[int]) -> None:
        """The jobs that match a filter; ignored if the filter has changed since."""
        if text == self.filter:
            self.matches = ids
            self._changed()

    def action_filter(self) -> None:
        self._go("jobs")
        self._filter_line.display = True
        self._input.disabled = False
        self._input.value = self.filter
        self._input.cursor_position = len(self.filter)
        self.main.set_focus(self._input)

    def _close_filter(self) -> None:
        self._filter_line.display = False
        self._input.disabled = True
        self._focus()
        self.show()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self._close_filter()
        self.action_search(message.value)

    # -- changes of jobs -----------------------------------------------------------------------

    def say(self, text: str, *, is_bad: bool = False) -> None:
        """Show a message in the last line, in place of the keys."""
        style = "red" if is_bad else "bold"
        self._update("message", (text, style), lambda: Text(f" {clean(text)}", style))
        self.main.set_class(bool(text), "-message")

    def action_change(self, action: str) -> None:
        self.action_try_change(action.replace("release", "hold"))

    def action_try_change(self, action: str) -> None:
        id = self.job_id
        if self.page != "jobs" or id is None:
            self.say("select a job first: 1 shows the jobs", is_bad=True)
            return
        job = self.job(id)
        if action != "cancel":
            self.in_background(partial(self.change, action, id))
        elif job is not None and job["state"] in FINAL:
            self.say(f"job {id} has already finished: {job['state']}", is_bad=True)
        else:
            name = "" if job is None else f" ({title(job)}, {job['state']})"

            def answered(is_yes: bool | None) -> None:
                if is_yes:
                    self.in_background(partial(self.change, "cancel", id))
                else:
                    self.say("nothing was changed")

            self.push_screen(Question(f"cancel job {id}{name}?"), answered)

    async def change(self, action: str, id: int) -> None:
        try:
            self.say(await self._threads.write(lambda queue: act(queue, action, id)))
        except Error as error:
            self.say(f"error: {error.message}", is_bad=True)
        self._watcher.wake()

    def in_background(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run a coroutine as a task; an unexpected exception in it ends the program."""
        worker: Worker[None] = self.run_worker(work)
        del worker

    # -- readings, each in a thread ------------------------------------------------------------

    def request_all(self) -> None:
        for loader in self._loaders:
            loader.request()

    async def _search(self) -> None:
        text = self.filter
        if not text:
            return
        start = time.monotonic()
        try:
            ids = await self._threads.read(lambda queue: self._readings.matches(queue, text))
        except Error as error:
            self.take_matches(text, ())
            self.say(f"error: {error.message}", is_bad=True)
        else:
            self.take_matches(text, ids)
        now = time.monotonic()
        self._search_due = now + _SEARCH_FACTOR * (now - start)

    async def _read_rows(self) -> None:
        """Read the visible jobs that are not part of the state."""
        state, ids = self.state, {*self.job_table.visible_rows, self.job_id}
        if state is None:
            return
        wanted = {int(id) for id in ids if id is not None and id not in state.jobs}
        if wanted:
            rows = await self._read(lambda queue: self._readings.rows(queue, wanted))
            if rows is not None and self.rows != rows:
                self.rows = rows
                self.show()

    async def _read_details(self) -> None:
        """Read the progress of visible jobs, and of the selected one why it waits and a curve."""
        id, row, number, state = self.job_id, self.curve_of, self.metric, self.state
        why_of = None if state is None or id in state.waits else id
        ids = {int(one) for one in self.job_table.visible_rows if self._is_running(int(one))}
        details = await self._read(
            lambda queue: self._readings.details(queue, ids, id, why_of, row, number)
        )
        if details is not None and details != self.details and row == self.curve_of:
            self.details = details
            self.show()

    def _is_running(self, id: int) -> bool:
        job = self.job(id)
        return job is not None and job["state"] in STARTED

    async def _read(self, read: Callable[[Queue], Any]) -> Any:
        """None if the queue cannot be read: the watcher reports why."""
        try:
            return await self._threads.read(read)
        except Error:
            return None

    # -- the log -------------------------------------------------------------------------------

    async def _read_log(self) -> None:
        log, id = self.log_pane, self.job_id
        if id is None or self.page != "jobs":
            self._log_path = None
            return
        if log.job != id:
            log.begin(id)
        has_more = True
        while has_more and log.job == id == self.job_id:
            try:
                answer, path = await self._log_part(id, log.wanted())
            except Error as error:
                log.error = error.message
                break
            if log.job != id:
                return
            log.error = None
            has_more = log.take(answer)
            self._log_path, self._log_size = None if log.is_over else path, answer["size"]
        earlier = log.earlier()
        if earlier is not None and log.job == id:
            answer, _ = await self._log_part(id, earlier)
            log.take_earlier(answer)
        self.show()

    async def _log_part(self, id: int, wanted: Any) -> tuple[dict[str, Any], str | None]:
        return await self._threads.read(lambda queue: self._readings.log(queue, id, wanted))

    def _look_at_log(self) -> None:
        """Read the log again when its file has grown."""
        with suppress(OSError):
            if self._log_path is not None and os.stat(self._log_path).st_size != self._log_size:
                self._log_loader.request()


class Loader:
    """Reads one thing at a time: a request during a reading repeats it afterwards.

    `pause`: seconds before each reading, in which a cursor that is moving goes on.
    """

    def __init__(
        self, app: TopApp, read: Callable[[], Coroutine[None, None, None]], pause: float = 0.0
    ) -> None:
        self._app = app
        self._read = read
        self._pause = pause
        self._is_wanted = self._is_reading = False

    def request(self) -> None:
        self._is_wanted = True
        if not self._is_reading:
            self._is_reading = True
            self._app.in_background(self._run)

    async def _run(self) -> None:
        try:
            while self._is_wanted:
                if self._pause:
                    await asyncio.sleep(self._pause)
                self._is_wanted = False
                await self._read()
        finally:
            self._is_reading = False


def waiting_count(state: LiveState) -> int:
    return sum(state.counts.get(name, 0) for name in (*WAITING, SUBMITTED))


def _problems(queue: Queue, state: LiveState) -> list[str]:
    """What the user must know before anything else."""
    found = []
    if state.daemon["pid"] is None and (state.running or state.queue):
        found.append(views.NO_DAEMON)
    found += host_problems(queue.db, queue.settings)
    if state.daemon["draining"]:
        found.append("drained: no job starts before `stoker daemon resume`")
    return found


def run_top(settings: Settings, text: str) -> int:
    """Show the dashboard until the user quits. `text`: the first filter. Returns the exit code."""
    from stoker.features.results.terminal_plot import knows_unicode

    for name in ("COLUMNS", "LINES"):  # the terminal knows its size, also after a change
        os.environ.pop(name, None)
    glyphs = UNICODE if knows_unicode(sys.stderr.encoding) else ASCII
    app = TopApp(settings, glyphs=glyphs, text=text)
    code = app.run(mouse=False)
    return app.return_code or 0 if code is None else code
