"""Draw the dashboard as lines, for a terminal of any size."""

from __future__ import annotations

from stoker.core.formats.log_lines import styled
from stoker.core.formats.plurals import plural
from stoker.core.states import FINAL, STARTED
from stoker.results.terminal_plot import draw
from stoker.top import job_lines, sweep_lines
from stoker.top.dashboard import (
    HELP,
    JOB,
    LIST,
    LOG,
    QUEUE,
    RECENT,
    RUNNING,
    TABS,
    Dashboard,
    waiting_count,
)
from stoker.top.gpu_lines import gpu_detail_lines, gpu_lines, gpu_pairs
from stoker.top.keys import FILTER_EXAMPLES, KEYS
from stoker.top.row_list import Row, RowList, is_heading
from stoker.top.spans import (
    Line,
    Span,
    clean,
    fit_line,
    line_width,
    log_line,
    width,
    with_style,
    wrap,
)
from stoker.top.table import Cells, Column, column_widths, header, table_line

LEAST_COLUMNS, LEAST_ROWS = 50, 12
_SIDE_COLUMNS = 150  # from this width on, the log is beside the list
_PLOT_ROWS = 8  # the smallest curve that shows something
_TITLES = {"jobs": "Jobs", "gpus": "GPUs", "sweeps": "Sweeps"}


class Frame:
    """Draws one dashboard; keeps the last drawn curve, which is expensive."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._glyphs = dashboard.glyphs
        self._now = 0.0
        self._plot_key: object = None
        self._plot: list[Line] = []

    def lines(self, columns: int, rows: int, now: float) -> list[Line]:
        """Exactly `rows` lines of exactly `columns` columns. `now`: seconds since the epoch."""
        self._now = now
        if columns < LEAST_COLUMNS or rows < LEAST_ROWS:
            text = (
                f"the terminal is too small ({columns}x{rows}): "
                f"stoker top needs {LEAST_COLUMNS}x{LEAST_ROWS}; q quits"
            )
            return self._filled([((row, ""),) for row in wrap(text, columns)], columns, rows)
        self._dashboard.visible = ()
        self._dashboard.has_curve_room = False
        top = [self._header(columns), *self._notices(columns)]
        top = self._filled(top, columns, len(top))
        body = self._filled(self._body(columns, rows - len(top) - 1), columns, rows - len(top) - 1)
        return [*top, *body, fit_line(self._footer(columns), columns, self._glyphs)]

    def _filled(self, lines: list[Line], columns: int, rows: int) -> list[Line]:
        lines = lines[:rows] + [()] * (rows - len(lines))
        return [fit_line(line, columns, self._glyphs) for line in lines]

    # -- first and last lines ------------------------------------------------------------------

    def _header(self, columns: int) -> Line:
        board = self._dashboard
        left: list[Span] = [(" stoker top ", "bold"), (" ", "")]
        for number, tab in enumerate(TABS, 1):
            is_current = tab == board.tab and board.over != HELP
            left += [
                (f" {number} {_TITLES[tab]} ", "reverse bold" if is_current else ""),
                (" ", ""),
            ]
        if board.state is None:
            return tuple(left)
        right = self._counts(columns - line_width(tuple(left)) - 1)
        host = clean(board.host)
        room = columns - line_width(tuple(left)) - line_width(right) - 1
        middle = f" {host} " if width(host) + 2 <= room else ""
        return (*left, (middle, "dim"), (" " * (room - width(middle)), ""), *right, (" ", ""))

    def _counts(self, room: int) -> Line:
        """The number of jobs by state, as many of them as fit."""
        assert self._dashboard.state is not None
        counts = self._dashboard.state.counts
        running = sum(counts.get(state, 0) for state in STARTED)
        failed = counts.get("failed", 0) + counts.get("lost", 0)
        parts: list[Span] = [
            (f"{running:,} running", "green" if running else "dim"),
            (f"{waiting_count(self._dashboard.state):,} waiting", ""),
            (f"{failed:,} failed", "red" if failed else "dim"),
            (f"{counts.get('done', 0):,} done", "dim"),
        ]
        while parts and line_width(tuple(parts)) + 2 * len(parts) - 2 > room:
            parts.pop()
        spaced: list[Span] = []
        for span in parts:
            spaced += [(", ", "dim"), span] if spaced else [span]
        return tuple(spaced)

    def _notices(self, columns: int) -> list[Line]:
        board = self._dashboard
        texts = list(board.problems)
        if board.state is not None and board.state.gpu_error is not None:
            texts.append(board.state.gpu_error)
        if board.error is not None:
            texts = [board.error]  # the rest was true before
        lines: list[Line] = []
        for text in texts[:3]:
            rows = wrap(clean(text), columns - 4)
            rows = [*rows[:1], " ".join(rows[1:])] if len(rows) > 1 else rows
            lines += [(("  ! ", "yellow bold"), (row, "yellow")) for row in rows]
        return lines

    def _footer(self, columns: int) -> Line:
        board = self._dashboard
        if board.question is not None:
            answers = " y: yes, any other key: no"
            return ((f" {board.question.text}", "bold reverse"), (answers, ""))
        if board.message:
            return ((f" {clean(board.message)}", "red" if board.is_message_bad else "bold"),)
        hints = self._hints()
        ends = [("?", "help"), ("q", "quit")]
        while hints and _hint_width([*hints, *ends]) > columns:
            hints.pop()
        spans: list[Span] = []
        for key, words in [*hints, *ends]:
            spans += [(" ", ""), (key, "bold"), (f" {words} ", "dim")]
        return tuple(spans)

    def _hints(self) -> list[tuple[str, str]]:
        """Keys and what they do now, the most important first."""
        board = self._dashboard
        arrows = board.glyphs.arrows
        if board.over == HELP:
            return [("Esc", "back"), (arrows, "scroll")]
        if board.tab == "gpus" and board.over is None:
            return [("1", "jobs"), (arrows, "scroll")]
        if board.tab == "sweeps" and board.over is None:
            return [("1", "jobs"), ("Enter", "list its jobs"), ("m", "next metric")]
        if board.over == JOB:
            start = [("Esc", "back"), (arrows, "scroll"), *self._changes(), ("m", "next metric")]
        elif board.focus == LOG:
            return [("Tab", "jobs"), (arrows, "scroll"), ("End", "follow"), *self._changes()]
        elif board.filter:
            start = [("Esc", "end filter"), ("Enter", "details"), *self._changes(), ("/", "filter")]
        elif board.job_id is None:
            start = [("/", "filter")]
        else:
            start = [("Enter", "details"), *self._changes(), ("/", "filter"), ("Tab", "log")]
        return start

    def _changes(self) -> list[tuple[str, str]]:
        """The keys that change the selected job in its state."""
        id = self._dashboard.job_id
        job = None if id is None else self._dashboard.job(id)
        if job is None:
            return []
        if job["state"] in FINAL:
            return [("r", "rerun")]
        if job["state"] in STARTED:
            return [("c", "cancel")]
        held = job["state"] == "held"
        return [("c", "cancel"), ("h", "release" if held else "hold"), ("+ -", "priority")]

    # -- tabs ----------------------------------------------------------------------------------

    def _body(self, columns: int, rows: int) -> list[Line]:
        board = self._dashboard
        if board.over == HELP:
            return self._scrolled(_help_lines(), rows)
        if board.state is None:
            waits = "" if board.error is not None else "reading the queue" + board.glyphs.ellipsis
            return [(), ((f"  {waits}", "dim"),)]
        if board.over == JOB:
            return self._job(columns, rows, facts=12 if rows >= 30 else 6)
        if board.tab == "gpus":
            return self._gpus(columns, rows)
        if board.tab == "sweeps":
            return self._sweeps(columns, rows)
        return self._jobs(columns, rows)

    def _jobs(self, columns: int, rows: int) -> list[Line]:
        if columns >= _SIDE_COLUMNS:
            left = max(84, columns * 55 // 100)
            main = self._filled(self._main(left, rows), left, rows)
            side = self._job(columns - left - 1, rows, facts=8)
            side = self._filled(side, columns - left - 1, rows)
            between = ((self._glyphs.upright, "dim"),)
            return [(*a, *between, *b) for a, b in zip(main, side, strict=True)]
        log = max(6, rows * (2 if rows >= 36 else 1) // (5 if rows >= 36 else 3))
        if rows < 14:
            return self._main(columns, rows)
        main = self._filled(self._main(columns, rows - log), columns, rows - log)
        return [*main, *self._log(columns, log)]

    def _main(self, columns: int, rows: int) -> list[Line]:
        """GPUs and the list of jobs."""
        gpus = self._few_gpus(columns, max(2, rows // 3 - 1))
        board = self._dashboard
        name = "Jobs"
        if board.filter:
            found = "searching" if board.matches is None else plural(len(board.matches), "job")
            name = f"Jobs that match {clean(board.filter)}: {found}"
        lines = [*gpus, self._rule(name, "", columns, is_focused=board.focus == LIST)]
        height = rows - len(lines) - 1
        if not board.jobs.rows:
            return [*lines, *self._no_jobs(columns)]
        cells: dict[int, Cells] = {}
        shown = board.jobs.window(height)
        board.page = height
        for index in shown:
            row = board.jobs.rows[index]
            if isinstance(row, int):
                job = board.job(row)
                cells[index] = (
                    _unread(row)
                    if job is None
                    else job_lines.job_cells(job, board.reported.get(row), self._now, self._glyphs)
                )
        board.visible = tuple(
            row for index in shown if isinstance(row := board.jobs.rows[index], int)
        )
        return [*lines, *self._table(job_lines.COLUMNS, board.jobs, shown, cells, columns, LIST)]

    def _table(
        self,
        layout: tuple[Column, ...],
        rows: RowList,
        shown: range,
        cells: dict[int, Cells],
        columns: int,
        focus: str,
    ) -> list[Line]:
        """The heading and the visible rows, with the cursor."""
        glyphs = self._glyphs
        widths = column_widths(layout, list(cells.values()), columns - 2)
        lines: list[Line] = [(("  ", ""), *header(layout, widths, glyphs))]
        has_focus = self._dashboard.focus == focus
        for index in shown:
            row = rows.rows[index]
            if is_heading(row):
                lines.append(self._heading(row))
                continue
            is_cursor = index == rows.index
            line: Line = (
                (f"{glyphs.marker} " if is_cursor else "  ", "bold"),
                *table_line(cells[index], layout, widths, glyphs),
            )
            if is_cursor:
                line = with_style(
                    fit_line(line, columns, glyphs), "reverse" if has_focus else "bold"
                )
            lines.append(line)
        return lines

    def _heading(self, row: Row) -> Line:
        state = self._dashboard.state
        assert state is not None
        if row == "#more":
            more = waiting_count(state) - len(state.queue)
            return (
                (f"       {plural(more, 'more waiting job')}; press a to list all jobs", "dim"),
            )
        running = sum(state.counts.get(one, 0) for one in STARTED)
        texts: dict[Row, str] = {
            RUNNING: f"RUNNING {running:,}",
            QUEUE: f"WAITING {waiting_count(state):,}",
            RECENT: "FINISHED LATELY",
        }
        return ((f"  {texts[row]}", "bold dim"),)

    def _no_jobs(self, columns: int) -> list[Line]:
        board = self._dashboard
        if not board.filter:
            texts = ["no jobs yet", "submit one in another terminal: stoker submit python train.py"]
        elif board.matches is None:
            texts = ["searching" + board.glyphs.ellipsis]
        else:
            texts = [f"no job matches {clean(board.filter)}", "Esc ends the filter"]
        return [(), *(((f"  {text}", "dim"),) for text in texts)]

    def _few_gpus(self, columns: int, most: int) -> list[Line]:
        """The GPUs, at most `most` lines; the rest is counted."""
        state = self._dashboard.state
        assert state is not None
        if not state.gpus:
            return [((" no GPUs on this host; jobs without a GPU run on its cores", "dim"),)]
        lines = gpu_lines(state.gpus, self._titles(), columns - 1, self._glyphs)
        if len(state.gpus) > most:
            lines = gpu_pairs(state.gpus, self._titles(), columns - 1, self._glyphs)
        if len(lines) > most + 1:
            # A line of pairs has one GPU of each half.
            hidden = len(state.gpus) - min(2 * most, len(state.gpus))
            lines = [*lines[:most], ((f"{plural(hidden, 'more GPU')} (press 2)", "dim"),)]
        return [((" ", ""), *line) for line in lines]

    def _titles(self) -> dict[int, str]:
        state = self._dashboard.state
        assert state is not None
        return {id: job_lines.title(state.jobs[id]) for id in state.running if id in state.jobs}

    def _gpus(self, columns: int, rows: int) -> list[Line]:
        state = self._dashboard.state
        assert state is not None
        if not state.gpus:
            lines = self._few_gpus(columns, 2)
        else:
            lines = gpu_detail_lines(state.gpus, self._titles(), columns - 1, self._glyphs)
            lines = [((" ", ""), *line) for line in lines]
        for one in state.backends:
            words = f" backend {clean(one['name'])} ({clean(one['kind'])}): {one['summary']}"
            problem = f"; {clean(one['problem'])}" if one["problem"] else ""
            lines += [(), ((words, ""), (problem, "yellow"))]
        return self._scrolled(lines, rows, fixed=1)

    def _scrolled(self, lines: list[Line], rows: int, fixed: int = 0) -> list[Line]:
        """A window on lines; the first `fixed` ones stay."""
        board = self._dashboard
        board.page = rows - fixed
        board.scrolled = max(0, min(board.scrolled, len(lines) - rows))
        return [*lines[:fixed], *lines[fixed + board.scrolled :]]

    def _sweeps(self, columns: int, rows: int) -> list[Line]:
        board = self._dashboard
        state = board.state
        assert state is not None
        if not state.sweeps:
            text = "no sweeps yet; start one: stoker sweep 'python train.py --lr {lr}' lr=0.1,0.01"
            return [(), ((f"  {text}", "dim"),)]
        height = min(len(board.sweeps.rows), max(3, rows // 3))
        shown = board.sweeps.window(height)
        board.page = height
        cells: dict[int, Cells] = {
            index: sweep_lines.sweep_cells(
                state.sweeps[str(board.sweeps.rows[index])], self._glyphs
            )
            for index in shown
        }
        lines = self._table(sweep_lines.COLUMNS, board.sweeps, shown, cells, columns, LIST)
        name = board.sweeps.selected
        if name is None:
            return lines
        lines.append(self._rule(f"Sweep {clean(name)}", "", columns))
        room = rows - len(lines)
        board.has_curve_room = True
        if board.figure_of != name or board.figure is None:
            reading = board.figure_of != name
            text = (
                f"reading{self._glyphs.ellipsis}" if reading else "no trial has reported a metric"
            )
            return [*lines, ((f"  {text}", "dim"),)]
        return [*lines, *self._curve(columns, room)]

    # -- one job -------------------------------------------------------------------------------

    def _job(self, columns: int, rows: int, facts: int) -> list[Line]:
        """Facts, curve and log of the selected job."""
        board = self._dashboard
        id = board.job_id
        job = None if id is None else board.job(id)
        if id is None or job is None:
            return [(("  no job is selected", "dim"),)]
        lines = job_lines.fact_lines(
            job, board.reported.get(id), self._now, columns - 1, self._glyphs
        )[:facts]
        lines = [((" ", ""), *line) for line in lines]
        room = rows - len(lines)
        board.has_curve_room = room >= 2 * _PLOT_ROWS + 1
        if board.has_curve_room and board.figure is not None and board.figure_of == id:
            height = max(_PLOT_ROWS, min(18, room * 2 // 5))
            lines += [self._rule("", "", columns), *self._curve(columns, height)]
        return [*lines, *self._log(columns, rows - len(lines))]

    def _curve(self, columns: int, rows: int) -> list[Line]:
        figure = self._dashboard.figure
        key = (id(figure), columns, rows)
        if figure is not None and key != self._plot_key:
            text = draw(figure, columns - 2, rows, color=True, ascii=self._glyphs.is_ascii)
            self._plot_key, self._plot = key, []
            for row in text.rstrip("\n").split("\n"):
                spans, _ = styled(row, {})
                self._plot.append(((" ", ""), *log_line(spans)))
            self._plot += [()] * (rows - len(self._plot))
        return self._plot

    def _log(self, columns: int, rows: int) -> list[Line]:
        board = self._dashboard
        log, id = board.log, board.job_id
        job = None if id is None else board.job(id)
        if id is None or rows < 2:
            return []
        is_read = log.job == id and log.attempt is not None
        right = ""
        if is_read and log.attempt:
            right = "" if log.is_over else "live"
            if not log.is_following:
                right = f"{plural(log.below, 'line')} below, End follows"
        is_focused = board.focus == LOG or board.over == JOB
        lines = [self._rule(f"Log of job {id}", right, columns, is_focused=is_focused)]
        if is_read and log.attempt and log.lines:
            shown = log.view(columns - 2, rows - 1)
            return [*lines, *(((" ", ""), *line) for line in shown)]
        return [*lines, *self._no_log(job, is_read, columns)]

    def _no_log(self, job: job_lines.Job | None, is_read: bool, columns: int) -> list[Line]:
        log = self._dashboard.log
        if log.error is not None and job is not None and log.job == job["id"]:
            texts = [log.error]
        elif job is None or not is_read:
            texts = ["reading" + self._glyphs.ellipsis]
        elif log.attempt:
            texts = ["it printed nothing" if log.is_over else "it has printed nothing yet"]
        elif job["state"] in FINAL:
            texts = ["it never started", str(job["result"])]
        else:
            texts = [
                f"it has not started (state: {job['state']})",
                *str(job.get("why") or "").split("; "),
            ]
        rows = [row for text in texts if text for row in wrap(clean(text), columns - 3)]
        return [((f" {row}", "dim"),) for row in rows]

    def _rule(self, name: str, right: str, columns: int, *, is_focused: bool = False) -> Line:
        rule = self._glyphs.rule
        left: list[Span] = [(rule, "dim")]
        if name:
            left.append((f" {name} ", "bold cyan" if is_focused else ""))
        end = f" {right} {rule}" if right else ""
        used = line_width(tuple(left)) + len(end)
        if used > columns:
            return fit_line(tuple(left), columns, self._glyphs)
        return (*left, (rule * (columns - used), "dim"), (end, "dim"))


def _unread(id: int) -> list[Span]:
    return [(str(id), "dim"), ("", ""), ("", ""), ("", ""), ("", ""), ("", "")]


def _hint_width(hints: list[tuple[str, str]]) -> int:
    return sum(len(key) + len(words) + 3 for key, words in hints)


def _help_lines() -> list[Line]:
    lines: list[Line] = [((" Keys", "bold"),), ()]
    lines += [((f"  {keys:20}", "bold"), (words, "")) for keys, words in KEYS]
    lines += [(), ((" The filter (/) takes the same words as stoker ls:", "bold"),), ()]
    lines += [((f"  {words:22}", "bold"), (meaning, "")) for words, meaning in FILTER_EXAMPLES]
    lines += [(), ((" Closing this program changes nothing: jobs run without it.", ""),)]
    return lines
