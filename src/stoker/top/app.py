"""The program: reads what the dashboard shows, draws it after each change, and passes keys on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, Label
from textual.worker import Worker

from stoker.client import views
from stoker.client.database_threads import DatabaseThreads
from stoker.client.file_watch import drain, watch_file
from stoker.client.live_state import LiveState, LiveStateReader
from stoker.client.queue import Queue
from stoker.client.state_watcher import StateWatcher
from stoker.client.wait_reasons import host_problems
from stoker.core.states import STARTED
from stoker.errors import Error
from stoker.settings import Settings
from stoker.top.dashboard import (
    Act,
    Dashboard,
    Effect,
    OpenFilter,
    Quit,
    Redraw,
    Search,
    Suspend,
)
from stoker.top.display import Display
from stoker.top.frame import Frame
from stoker.top.job_actions import act
from stoker.top.log_tail import LogTail
from stoker.top.readings import Readings
from stoker.top.spans import ASCII, UNICODE, Glyphs

_TICK_SECONDS = 1.0  # durations on the screen
_LOG_SECONDS = 0.1  # between two readings of a log that grows all the time
_SEARCH_FACTOR = 20.0  # a search is repeated after this multiple of its time
_EXAMPLES = "failed  3-9  tag:x  name:y  sweep:z  or part of a command"


class StateRead(Message):
    """The watcher has read a state."""

    def __init__(self, state: LiveState, problems: list[str]) -> None:
        super().__init__()
        self.state = state
        self.problems = problems


class ReadFailed(Message):
    """The watcher cannot read the queue."""

    def __init__(self, error: Error) -> None:
        super().__init__()
        self.error = error


class TopScreen(Screen[None], inherit_bindings=False):
    """All keys go to the dashboard, except while the filter is edited."""

    AUTO_FOCUS = None
    app: TopApp

    def on_key(self, event: events.Key) -> None:
        if self.app.press(event.key, event.character):
            event.stop()


class TopApp(App[int]):
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", priority=True, show=False),
        Binding("ctrl+q", "leave", priority=True, show=False),
    ]
    CSS = """
    Screen { layers: base filter; overflow: hidden; }
    #filter { layer: filter; dock: bottom; height: 1; display: none; }
    #filter Label { width: 10; }
    Input { width: 1fr; }
    """

    def __init__(self, settings: Settings, *, glyphs: Glyphs = UNICODE, text: str = "") -> None:
        # The colors and the background of the terminal itself.
        super().__init__(ansi_color=True)
        # Its name in newer and in older versions of Textual.
        names = [name for name in ("ansi-dark", "textual-ansi") if name in self.available_themes]
        self.theme = names[0]
        self.animation_level = "none"
        self.board = Dashboard(os.uname().nodename, glyphs)
        self._first_filter = text
        self._settings = settings
        self._frame = Frame(self.board)
        self._readings = Readings(settings.state_dir)
        self._threads = DatabaseThreads(settings, creates=False)
        reader = LiveStateReader(self._readings.sweeps)
        self._watcher = StateWatcher(
            settings, reader, self._refresh(reader), self._failed, creates=False
        )
        self._is_open = True
        self._is_filtering = False
        self._file_watch: int | None = None
        self._watched: str | None = None
        self._is_log_due = False
        self._search_due = 0.0
        self._figure_key: object = None
        self._log_loader = Loader(self, self._read_log, 0.02)
        self._loaders = [
            self._log_loader,
            Loader(self, self._read_reported, 0.1),
            Loader(self, self._read_figure, 0.1),
            Loader(self, self._read_rows, 0.0),
            Loader(self, self._read_why, 0.2),
        ]
        self._search_loader = Loader(self, self._search)

    # -- start and end -------------------------------------------------------------------------

    def get_default_screen(self) -> Screen[None]:
        return TopScreen()

    def compose(self) -> ComposeResult:
        yield Display()
        with Horizontal(id="filter"):
            yield Label(" filter: ", markup=False)
            filter_input = Input(placeholder=_EXAMPLES, compact=True, select_on_focus=False)
            filter_input.cursor_blink = False
            yield filter_input

    def on_mount(self) -> None:
        self.query_one(Input).disabled = True  # until the filter is opened
        self.set_interval(_TICK_SECONDS, self.draw)
        self.app_resume_signal.subscribe(self, self._draw_all)  # after Ctrl-Z and `fg`
        if threading.current_thread() is threading.main_thread() and not self.is_headless:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, self.exit, 0)
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.exit, 128 + number)
        watching = threading.Thread(
            target=self._watcher.run, args=(lambda: self._is_open,), name="watcher", daemon=True
        )
        watching.start()
        if self._first_filter:
            self._carry_out(self.board.search(self._first_filter))
        self.draw()

    def on_unmount(self) -> None:
        self._is_open = False
        self._watcher.wake()
        self._stop_watching()
        self._threads.close()

    def action_leave(self) -> None:
        self.exit(0)

    # -- the watcher, in its thread ------------------------------------------------------------

    def _refresh(self, reader: LiveStateReader) -> Callable[[Queue], None]:
        before: list[LiveState | None] = [None]

        def refresh(queue: Queue) -> None:
            state = before[0] = reader.read(queue, before[0])
            self.post_message(StateRead(state, _problems(queue, state)))

        return refresh

    def _failed(self, error: Error) -> None:
        self.post_message(ReadFailed(error))

    def on_state_read(self, message: StateRead) -> None:
        self.board.take_state(message.state, message.problems)
        if self.board.filter and time.monotonic() >= self._search_due:
            self._search_loader.request()
        self.draw()
        self._request_all()

    def on_read_failed(self, message: ReadFailed) -> None:
        error = message.error
        self.board.error = f"{error.message}: {error.hint}" if error.hint else error.message
        self.draw()

    # -- drawing -------------------------------------------------------------------------------

    def draw(self) -> None:
        if not self._is_open or not self.screen_stack:
            return
        found = self.query(Display)
        if found and found.first().size:
            display = found.first()
            columns, rows = display.size
            display.show(self._frame.lines(columns, rows, time.time()), columns)

    def _draw_all(self, *_: object) -> None:
        """Send all cells: the terminal shows something else."""
        self.query_one(Display).refresh()

    def on_display_resized(self) -> None:
        self.draw()
        self._request_all()

    # -- keys ----------------------------------------------------------------------------------

    def press(self, key: str, character: str | None) -> bool:
        """A key was pressed. Returns whether it was processed here, not by the line for filters."""
        if self._is_filtering:
            if key == "escape":
                self._close_filter()
            elif character is not None and character.isprintable():
                # Typed before the line had the focus; later ones do not come here.
                self.query_one(Input).insert_text_at_cursor(character)
            else:
                return False
            return True
        effect = self.board.key(key)
        if effect is not None:
            self._carry_out(effect)
        if not isinstance(effect, Quit):
            self.draw()
            self._request_all()
        return True

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Act):
            self.in_background(partial(self._act, effect))
        elif isinstance(effect, Search):
            self._search_loader.request()
        elif isinstance(effect, OpenFilter):
            self._open_filter()
        elif isinstance(effect, Quit):
            self.exit(0)
        elif isinstance(effect, Redraw):
            self._draw_all()
        elif isinstance(effect, Suspend):
            self.action_suspend_process()

    def in_background(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run a coroutine as a task; an unexpected exception in it ends the program."""
        worker: Worker[None] = self.run_worker(work)
        del worker

    async def _act(self, wanted: Act) -> None:
        try:
            text = await self._threads.write(lambda queue: act(queue, wanted.action, wanted.job))
            self.board.say(text)
        except Error as error:
            self.board.say(f"error: {error.message}", is_bad=True)
        self.draw()
        self._watcher.wake()

    def _open_filter(self) -> None:
        self._is_filtering = True
        self.query_one("#filter").display = True
        line = self.query_one(Input)
        line.disabled = False
        line.value = self.board.filter
        line.cursor_position = len(line.value)
        self.screen.set_focus(line)

    def _close_filter(self) -> None:
        self._is_filtering = False
        self.query_one("#filter").display = False
        self.screen.set_focus(None)
        self.query_one(Input).disabled = True
        self.draw()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self._carry_out(self.board.search(message.value))
        self._close_filter()

    # -- readings, each in a thread ------------------------------------------------------------

    def _request_all(self) -> None:
        for loader in self._loaders:
            loader.request()

    async def _search(self) -> None:
        text = self.board.filter
        if not text:
            return
        start = time.monotonic()
        try:
            ids = await self._threads.read(lambda queue: self._readings.matches(queue, text))
        except Error as error:
            self.board.take_matches(text, ())
            self.board.say(f"error: {error.message}", is_bad=True)
        else:
            self.board.take_matches(text, ids)
        now = time.monotonic()
        self._search_due = now + _SEARCH_FACTOR * (now - start)
        self.draw()
        self._request_all()

    async def _read_rows(self) -> None:
        """Read the visible jobs that are not part of the state."""
        board, state = self.board, self.board.state
        if state is None:
            return
        wanted = board.visible if board.job_id is None else (*board.visible, board.job_id)
        ids = {id for id in wanted if id not in state.jobs}
        if not ids:
            return
        try:
            rows = await self._threads.read(lambda queue: self._readings.rows(queue, ids))
        except Error:
            return  # the watcher reports why the queue cannot be read
        if board.rows != rows:
            board.rows = rows
            self.draw()

    async def _read_why(self) -> None:
        """Read why the selected job waits, if that is not part of the state."""
        board, id = self.board, self.board.job_id
        if id is None or board.state is None or id in board.state.waits:
            return
        try:
            why = await self._threads.read(lambda queue: self._readings.why(queue, id))
        except Error:
            return
        if board.whys != {id: why}:
            board.whys = {id: why}
            self.draw()

    async def _read_reported(self) -> None:
        board = self.board
        ids, selected = {id for id in board.visible if _is_running(board, id)}, board.job_id
        if selected is not None:
            ids.add(selected)
        if not ids:
            return
        try:
            found = await self._threads.read(
                lambda queue: self._readings.reported(queue, ids, selected)
            )
        except Error:
            return
        if any(board.reported.get(id) != one for id, one in found.items()):
            board.reported = found
            self.draw()

    async def _read_figure(self) -> None:
        board, row, number = self.board, self.board.curve_of, self.board.metric
        if row is None or not board.has_curve_room:
            return
        try:
            if isinstance(row, int):
                figure = await self._threads.read(
                    lambda queue: self._readings.job_figure(queue, row, number)
                )
            else:
                figure = await self._threads.read(
                    lambda queue: self._readings.sweep_figure(queue, row, number)
                )
        except Error:
            figure = None
        if row == board.curve_of and (figure != board.figure or row != board.figure_of):
            board.figure, board.figure_of = figure, row
            self.draw()

    # -- the log -------------------------------------------------------------------------------

    async def _read_log(self) -> None:
        board, id = self.board, self.board.job_id
        if id is None or not board.is_log_shown:
            self._stop_watching()
            return
        if board.log.job != id:
            self._stop_watching()
            board.log = LogTail(id)
        log = board.log
        has_more = True
        while has_more and log is board.log and board.job_id == id:
            wanted = log.wanted()
            try:
                answer, path = await self._log_part(id, wanted)
            except Error as error:
                log.error = error.message
                self.draw()
                return
            log.error = None
            has_more = log.take(answer)
            if not log.is_over:
                self._watch(path)
        earlier = log.earlier() if log.is_near_start else None
        if earlier is not None and log is board.log:
            answer, _ = await self._log_part(id, earlier)
            log.take_earlier(answer)
        self.draw()

    async def _log_part(self, id: int, wanted: Any) -> tuple[dict[str, Any], str | None]:
        return await self._threads.read(lambda queue: self._readings.log(queue, id, wanted))

    def _watch(self, path: str | None) -> None:
        """Read the log again when this file grows."""
        if path is None or path == self._watched or not os.path.exists(path):
            return
        self._stop_watching()
        self._file_watch, self._watched = watch_file(path), path
        if self._file_watch is not None:
            asyncio.get_running_loop().add_reader(self._file_watch, self._log_grew)

    def _stop_watching(self) -> None:
        if self._file_watch is not None:
            asyncio.get_running_loop().remove_reader(self._file_watch)
            os.close(self._file_watch)
        self._file_watch = self._watched = None

    def _log_grew(self) -> None:
        drain(self._file_watch)
        if not self._is_log_due:
            self._is_log_due = True
            asyncio.get_running_loop().call_later(_LOG_SECONDS, self._log_is_due)

    def _log_is_due(self) -> None:
        self._is_log_due = False
        if self._is_open:
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


def _is_running(board: Dashboard, id: int) -> bool:
    job = board.job(id)
    return job is not None and job["state"] in STARTED


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
    from stoker.results.terminal_plot import knows_unicode

    for name in ("COLUMNS", "LINES"):  # the terminal knows its size, also after a change
        os.environ.pop(name, None)
    glyphs = UNICODE if knows_unicode(sys.stderr.encoding) else ASCII
    app = TopApp(settings, glyphs=glyphs, text=text)
    code = app.run(mouse=False)
    return app.return_code or 0 if code is None else code
