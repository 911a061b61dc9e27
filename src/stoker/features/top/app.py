"""The program: its keys, and what it reads."""

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

from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from stoker.client.database_threads import DatabaseThreads
from stoker.client.live.live_state import LiveState, LiveStateReader
from stoker.client.live.state_watcher import StateWatcher
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.client.views.why import host_problems
from stoker.errors import Error
from stoker.features.top.glyphs import ASCII, UNICODE, Glyphs
from stoker.features.top.job_actions import act
from stoker.features.top.job_text import title
from stoker.features.top.readings import Readings
from stoker.features.top.screen import Dashboard, Question
from stoker.settings import Settings
from stoker.states import FINAL, STARTED

_TICK_SECONDS = 1.0  # durations on the screen
_LOG_SECONDS = 0.25  # between two looks at the size of the log
_SEARCH_FACTOR = 20.0  # a search is repeated after this multiple of its time


class TopApp(Dashboard):
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
        super().__init__(glyphs)
        self.metric = 0  # the number of the metric in the curve
        self._before_help = ("jobs", False)  # the page, and whether it showed details
        self._readings = Readings(settings.state_dir)
        self._threads = DatabaseThreads(settings, creates=False)
        reader = LiveStateReader(self._readings.sweeps)
        self._watcher = StateWatcher(
            settings, reader, self._refresh(reader), self._failed, creates=False
        )
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
            target=self._watcher.run, args=(lambda: self.is_open,), name="watcher", daemon=True
        ).start()

    def on_unmount(self) -> None:
        self.is_open = False
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
        if self.filter_line.display and event.character is not None and event.is_printable:
            # Typed before the line had the focus; later ones do not come here.
            self.filter_input.insert_text_at_cursor(event.character)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does something now: the footer shows those that do."""
        is_log_focused = self.focused is self.log_pane
        if self.filter_line.display:
            return action in ("close", "leave", "draw_again", "suspend_process")
        if action == "change":
            return parameters[0] in self.possible_changes()
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

    def _focus(self) -> None:
        """Focus the widget that the arrows move."""
        widgets: dict[str, Widget] = {
            "jobs": self.log_pane if self.is_in_details else self.job_table,
            "sweeps": self.sweep_table,
        }
        if not self.filter_line.display:
            self.main.set_focus(widgets.get(self.page) or self.main.query_one(f"#{self.page}"))

    def _go(self, page: str, *, is_in_details: bool = False) -> None:
        self.pages.current = page
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
        if self.filter_line.display:
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
        self.filter_line.display = True
        self.filter_input.disabled = False
        self.filter_input.value = self.filter
        self.filter_input.cursor_position = len(self.filter)
        self.main.set_focus(self.filter_input)

    def _close_filter(self) -> None:
        self.filter_line.display = False
        self.filter_input.disabled = True
        self._focus()
        self.show()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self._close_filter()
        self.action_search(message.value)

    # -- changes of jobs -----------------------------------------------------------------------

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
