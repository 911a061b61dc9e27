"""The sweep driver: runs adaptive search, early stopping and targets of sweeps.

The daemon keeps this process alive while such a sweep is active. It has no state outside the
database: each round it loads the trials, sends finished ones to the search, requests as many new
points as may run, and adds them as trials with jobs in one transaction. If it is killed, the next
one continues from the database.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import sys
import time

from stoker.client.live.change_feed import ChangeFeed
from stoker.engine.backoff import Backoff
from stoker.engine.daemon.start import wake_daemon
from stoker.engine.model import JobSpec
from stoker.engine.store import changes, events, job_queries, meta
from stoker.engine.store.database import Database, open_database
from stoker.engine.store.device_settings import load_devices
from stoker.engine.supervisor import job_processes, kill_processes
from stoker.engine.supervisor.parent_death import die_with_parent
from stoker.engine.supervisor.process_table import read_process
from stoker.errors import Error, NotFound, Unavailable
from stoker.features.results.curve_reader import curve_of
from stoker.features.results.reports.reports import (
    JobFiles,
    collect,
    has_stop,
    report_sizes,
    source_of,
    stored_collector,
)
from stoker.features.results.reports.summary import Collector
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control.driver_process import PAUSE_FILE
from stoker.features.sweeps.control.lifecycle import SEARCH_PYTHON, load
from stoker.features.sweeps.control.trials import Trials
from stoker.features.sweeps.search.search_client import (
    KnownTrial,
    SearchClient,
    SearchDied,
    command_of,
)
from stoker.features.sweeps.spec.spec import ADAPTIVE, SweepSpec, known_goal, stop_seconds
from stoker.features.sweeps.store import SweepRow, TrialRow
from stoker.settings import Settings, cpu_slots, load_settings
from stoker.states import ACTIVE, FINAL, WAITING
from stoker.testing.failpoints import failpoint
from stoker.text.limit_signal import parse_warning

# How often the reports of running trials are read for early stopping.
_POLL_SECONDS = 1.0
# Stop the sweep if this many successful trials have not reported the metric.
_MIN_TRIALS_WITHOUT_METRIC = 5
_FIRST_PAUSE = 1.0


class DrivenSweep:
    """Drives one sweep."""

    def __init__(self, db: Database, settings: Settings, row: SweepRow) -> None:
        self._db = db
        self._settings = settings
        self._places = JobFiles(settings.state_dir)
        self._row = row
        _, spec, base = load(db, row.name)
        self._spec: SweepSpec = spec
        self._base: JobSpec = base
        self._search: SearchClient | None = None
        self._numbers: set[int] = set()  # trials that the search knows
        self._reported: dict[int, float] = {}  # trial -> last step sent to the search
        self._sizes: dict[int, tuple[int, ...]] = {}  # trial -> sizes of its files at that time
        self._stop_requests: dict[int, float] = {}  # job -> when its stop file was seen (monotonic)

    def close(self) -> None:
        if self._search is not None:
            self._search.close()
            self._search = None

    @property
    def watches_curves(self) -> bool:
        return self._spec.early_stop is not None

    def advance(self) -> bool:
        """Run one round; return False if nothing is left to do for this sweep."""
        trials = sweeps.trials(self._db, self._row.id)
        needs_search = self._spec.method in ADAPTIVE or self.watches_curves
        search = self._started_search(trials) if needs_search else None  # else it has a target only
        self._send_results(search, trials)
        if search is not None and self.watches_curves:
            for trial in trials:
                if trial.state == "running":
                    self._check_early_stop(search, trial)
        has_open_trials = any(trial.state in (*WAITING, *ACTIVE) for trial in trials)
        if self._has_reached_target():
            return self._stop("a trial reached the target")
        if search is None or self._spec.method not in ADAPTIVE:
            return has_open_trials
        problem = self._metric_problem(trials)
        if problem is not None:
            return self._stop(problem)
        return self._add_trials(search, trials) or has_open_trials

    # -- search --------------------------------------------------------------------------------

    def _started_search(self, trials: list[TrialRow]) -> SearchClient:
        """Return the search process; restart it if there are trials that it does not know."""
        if self._search is not None and any(t.number not in self._numbers for t in trials):
            self.close()
        if self._search is None:
            self._reported.clear()  # the new process has no values of unfinished trials
            self._sizes.clear()
            self._search = SearchClient(
                self._spec,
                [self._known_trial(t) for t in trials],
                command=command_of(json.loads(self._row.base).get(SEARCH_PYTHON)),
            )
            self._numbers = {trial.number for trial in trials}
        return self._search

    def _known_trial(self, trial: TrialRow) -> KnownTrial:
        params = {name: data for name, (data, _) in json.loads(trial.point).items()}
        if not trial.reported:
            return KnownTrial(trial.number, params, "running", None, ())
        return KnownTrial(
            trial.number, params, *self._result(trial), tuple(self._unreported(trial))
        )

    def _result(self, trial: TrialRow) -> tuple[str, float | None]:
        """The state (done, failed or stopped) and the metric of a finished trial."""
        source = source_of(trial)
        collector = stored_collector(trial)
        if collector is None:
            if source is None:
                return "failed", None
            collector = collect(self._places, source, Collector())
        stat = collector.summary.get(self._spec.metric.name) if self._spec.metric else None
        value = stat.last if stat is not None else None
        number = float(value) if isinstance(value, (int, float)) else None
        if has_stop(self._places, trial):
            return "stopped", number
        if trial.state != "done" or number is None or not math.isfinite(number):
            return "failed", None
        return "done", number

    def _send_results(self, search: SearchClient | None, trials: list[TrialRow]) -> None:
        """Send finished trials to the search and store their reports."""
        sent, reports = [], []
        for trial in trials:
            if trial.reported or trial.state not in FINAL:
                continue
            source = source_of(trial)
            assert source is not None
            collector = collect(self._places, source, Collector())
            reports.append((trial.number, source.job, collector.to_json()))
            if search is not None:
                result = self._result(trial._replace(reports=reports[-1][2]))
                search.tell(trial.number, *result, self._unreported(trial))
            sent.append(trial.number)
        if sent:
            with self._db.transaction():
                sweeps.save_reports(self._db, self._row.id, reports)
                sweeps.mark_reported(self._db, self._row.id, sent)

    # -- more trials ---------------------------------------------------------------------------

    def _add_trials(self, search: SearchClient, trials: list[TrialRow]) -> bool:
        """Add trials up to the number that may run at a time; False if there are no more."""
        wanted = self._spec.total_trials
        left = None if wanted is None else wanted - len(trials)
        if left is not None and left <= 0:
            return False
        open_trials = sum(1 for trial in trials if trial.state in (*WAITING, *ACTIVE))
        room = self._parallel_trials() - open_trials
        count = room if left is None else min(room, left)
        if count <= 0:
            return True
        proposed = search.ask(count)
        failpoint("driver.after_ask")
        store = Trials(
            self._db,
            self._settings.state_dir,
            self._row.id,
            self._spec._replace(name=self._row.name),
            self._base,
        )
        if len(store.add([one.point for one in proposed])) == len(proposed):
            self._numbers.update(one.number for one in proposed)
        else:
            self.close()  # another process added some of them: restart from the database
        wake_daemon(self._settings.state_dir)
        return bool(proposed)  # none if the space is exhausted

    def _metric_problem(self, trials: list[TrialRow]) -> str | None:
        """Why the search cannot learn: often a typo in the metric's name, or a NaN loss."""
        done = [trial for trial in trials if trial.reported and trial.state == "done"]
        if len(done) < _MIN_TRIALS_WITHOUT_METRIC or self._spec.metric is None:
            return None
        if any(self._result(trial)[0] == "done" for trial in done):
            return None
        name = self._spec.metric.name
        values = [str(self._last(trial)) for trial in done if self._last(trial) is not None]
        if values:
            return f"{len(done)} trials succeeded, but `{name}` was never a number: {values[-1]}"
        return f"{len(done)} trials succeeded, but none reported `{name}`"

    def _last(self, trial: TrialRow) -> object:
        """The last reported value of the metric; None if there is none."""
        collector = stored_collector(trial)
        if collector is None or self._spec.metric is None:
            return None
        stat = collector.summary.get(self._spec.metric.name)
        return stat.last if stat is not None else None

    def _parallel_trials(self) -> int:
        """How many trials may run or wait at a time."""
        if self._spec.max_parallel is not None:
            return self._spec.max_parallel
        devices = load_devices(self._db)
        if self._base.request.gpus and devices:
            return max(1, sum(device.slots for device in devices) // self._base.request.gpus)
        return cpu_slots(self._settings)

    def _has_reached_target(self) -> bool:
        metric = self._spec.metric
        if metric is None or metric.target is None:
            return False
        for trial in sweeps.trials(self._db, self._row.id):  # with the reports just stored
            collector = stored_collector(trial)
            stat = collector.summary.get(metric.name) if collector is not None else None
            if stat is not None and isinstance(stat.last, (int, float)):
                gain = metric.target - stat.last
                if (gain if known_goal(metric) == "min" else -gain) >= 0:
                    return True
        return False

    def _stop(self, why: str) -> bool:
        with self._db.transaction():
            sweeps.stop(self._db, self._row.id, why, time.time())
        wake_daemon(self._settings.state_dir)
        return False

    # -- early stopping ------------------------------------------------------------------------

    def _check_early_stop(self, search: SearchClient, trial: TrialRow) -> None:
        """Send new values of a running trial to the search, and stop the trial if it says so."""
        source = source_of(trial)
        if source is None:
            return
        stop_file = self._places.stop_file(source.job, source.files_dir)
        if os.path.exists(stop_file):
            self._end_stopped_trial(source.job)
            return
        sizes = report_sizes(self._places, source)
        if sizes == self._sizes.get(trial.number):
            return
        self._sizes[trial.number] = sizes
        for step, value in self._unreported(trial):
            self._reported[trial.number] = step
            if search.report(trial.number, step, value):
                self._stop_trial(source.job, stop_file)
                return

    def _unreported(self, trial: TrialRow) -> list[tuple[int, float]]:
        """The part of a trial's curve that was not sent to the search yet."""
        source, metric = source_of(trial), self._spec.metric
        if source is None or metric is None or not self.watches_curves:
            return []
        last = self._reported.get(trial.number, -math.inf)
        curve = curve_of(self._places, source, metric.name)
        return [(int(step), value) for step, value in curve if step > last]

    def _stop_trial(self, job: int, stop_file: str) -> None:
        """Request a stop: `should_stop()` becomes true, and the job gets its warning signal."""
        os.close(os.open(stop_file, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        with self._db.transaction():
            events.record_event(self._db, job, time.time(), "stopped_early", "by its sweep")
        if self._base.settings.signal is not None:
            row = job_queries.job(self._db, job)
            if row.pid is not None and row.attempt is not None:
                base = meta.tag_base(self._db)
                warning = parse_warning(self._base.settings.signal)
                shell = None if warning.is_for_shell else self._base.context.shell
                for pid in job_processes.programs(row.pid, shell):
                    process = read_process(pid)
                    if process is not None and job_processes.owner_of(pid, base) == row.attempt:
                        kill_processes.send(process, warning.signal)

    def _end_stopped_trial(self, job: int) -> None:
        """Cancel a trial that still runs `kill_after` seconds after it was asked to stop."""
        seconds = stop_seconds(self._spec)
        requested_at = self._stop_requests.setdefault(job, time.monotonic())
        if seconds is not None and time.monotonic() >= requested_at + seconds:
            changes.cancel(self._db, [job], time.time())
            wake_daemon(self._settings.state_dir)


Key = tuple[int, str, str, int]


class Driver:
    """Drives all sweeps of one queue that need it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._db = open_database(settings.state_dir)
        self._sweeps: dict[Key, DrivenSweep] = {}
        self._backoffs: dict[Key, Backoff] = {}

    def work(self) -> None:
        """Run rounds until no sweep needs a driver any more."""
        changes_feed = ChangeFeed(self._settings.state_dir)
        try:
            while self._round():
                self._clear_pause_file()
                changes_feed.wait(self._timeout())
            self._clear_pause_file()
        finally:
            changes_feed.close()
            for sweep in self._sweeps.values():
                sweep.close()
            self._db.close()

    def _timeout(self) -> float | None:
        watches = any(sweep.watches_curves for sweep in self._sweeps.values())
        due = [one.due_at - time.monotonic() for one in self._backoffs.values() if one.failures]
        return min([_POLL_SECONDS] * watches + [max(0.0, at) for at in due], default=None)

    def _clear_pause_file(self) -> None:
        """Remove the file in which the daemon recorded failures of earlier drivers."""
        try:
            os.unlink(os.path.join(self._settings.state_dir, PAUSE_FILE))
        except FileNotFoundError:
            pass

    def _round(self) -> bool:
        rows = sweeps.driven(self._db)
        wanted = {(row.id, row.spec, row.base, row.context): row for row in rows}
        for key in [key for key in self._sweeps if key not in wanted]:
            self._sweeps.pop(key).close()  # finished, stopped, or started again
        for key in [key for key in self._backoffs if key not in wanted]:
            del self._backoffs[key]
        for key, row in wanted.items():
            backoff = self._backoffs.setdefault(key, Backoff(self._first_pause()))
            if not backoff.is_due(time.monotonic()):
                continue
            try:
                if key not in self._sweeps:
                    self._sweeps[key] = DrivenSweep(self._db, self._settings, row)
                if not self._sweeps[key].advance():
                    self._finish(row)
                if backoff.failures:
                    backoff.succeeded()
                    self._note_pause(row, None)
            except SearchDied as error:
                self._try_later(key, row, error.message)
            except (Unavailable, NotFound) as error:
                self._stop_sweep(row, error)
            except OSError as error:  # for example a full disk; other sweeps continue
                self._try_later(key, row, f"{error.strerror or error}")
        return bool(rows)

    def _first_pause(self) -> float:
        return min(_FIRST_PAUSE, self._settings.retry_delay)

    def _try_later(self, key: Key, row: SweepRow, why: str) -> None:
        """Restart the search from the database: the first time at once, then with backoff."""
        sweep = self._sweeps.pop(key, None)
        if sweep is not None:
            sweep.close()
        backoff, now = self._backoffs[key], time.monotonic()
        backoff.failed(now)
        if backoff.is_paused:
            times = f"the search failed {backoff.failures} times in a row"
            self._note_pause(row, f"{times} ({why}); next attempt in {backoff.due_at - now:.0f} s")

    def _note_pause(self, row: SweepRow, why: str | None) -> None:
        with self._db.transaction():
            sweeps.note_pause(self._db, row.id, why)

    def _finish(self, row: SweepRow) -> None:
        with self._db.transaction():
            sweeps.end_driving(self._db, row.id, row.spec)
        wake_daemon(self._settings.state_dir)  # it sends the notification that the sweep finished

    def _stop_sweep(self, row: SweepRow, error: Error) -> None:
        """Stop the sweep and record the reason; running jobs continue."""
        hint = f" ({error.hint})" if error.hint else ""
        with self._db.transaction():
            if sweeps.by_name(self._db, row.name) is not None:
                sweeps.stop(self._db, row.id, f"{error.message}{hint}", time.time())
        wake_daemon(self._settings.state_dir)


def main(parent: int) -> None:
    die_with_parent(parent)  # the next daemon starts its own driver
    settings = load_settings()
    path = os.path.join(settings.state_dir, "driver.lock")
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # two drivers would add the same points
    try:
        Driver(settings).work()
    except Error as error:
        print(f"error: {error.message}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main(int(sys.argv[1]))
