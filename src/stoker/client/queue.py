"""`Queue`: the jobs of one user on one host. All changes of interfaces go through it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from stoker.engine.daemon.start import ensure_daemon, wake_daemon
from stoker.engine.daemon.status import known_devices, known_resources
from stoker.engine.model import AfterSelector, Context, Dependency, Device, Request
from stoker.engine.store.database import open_database
from stoker.engine.store.submit import CHUNK, Receipt, Submission
from stoker.errors import NoPermission, TryLater, Unavailable, UsageError
from stoker.features import call
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.states import ACTIVE, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.client.removal import Removal

_RECORD_SECONDS = 10.0  # how long a daemon may take to record what a restart of the host ended

__all__ = ["CHUNK", "Queue", "Receipt"]


class Queue:
    """Submit, select and change jobs; views.py, wait_reasons.py and finish_watch.py read them."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or load_settings()
        prepare_state_dir(self.settings)
        self._code: Any = None
        self._snapshots: Any = None
        self.db = open_database(self.settings.state_dir)

    def close(self) -> None:
        self.db.close()

    @property
    def code(self) -> Any:
        """Reads the state of the code of new jobs (features/code/code_gatherer.py)."""
        if self._code is None:
            self._code = call("code_gatherer")
        return self._code

    # -- submit ------------------------------------------------------------------------------

    def submission(self, token: str | None = None) -> Submission:
        """A new submit; with a token, it can be repeated and adds nothing twice."""
        return Submission(
            self.db,
            token=token,
            code_of=lambda context: self.code.of(context),
            snapshots=lambda: self.snapshots,
        )

    def release_snapshots(self) -> None:
        """The jobs of the snapshots that were taken are in the database, or will not be."""
        if self._snapshots is not None:
            self._snapshots.release()

    @property
    def snapshots(self) -> Any:
        """Takes snapshots of the code of new jobs (features/code/snapshots.py)."""
        if self._snapshots is None:
            self._snapshots = call("snapshots", self.settings, self.files_dir)
        return self._snapshots

    def ensure_daemon(self) -> bool:
        """Wake the daemon, or start one. Returns whether a daemon was started."""
        return ensure_daemon(self.settings)

    def devices(self) -> tuple[Device, ...]:
        return known_devices(self.db, self.settings)

    def files_dir(self, backend: str) -> str:
        """The folder for files of jobs on a backend; "" is this host."""
        if backend:
            folder: str | None = call("files_dir", self.db, backend)
            return folder or self.settings.state_dir
        return self.settings.state_dir

    # -- change ------------------------------------------------------------------------------

    def select(self, words: Iterable[str]) -> list[int]:
        """The ids of the jobs that selectors match, sorted and without duplicates.

        Raises NotFound if a selector names no job.
        """
        from stoker.engine.store import job_queries
        from stoker.text.selectors import parse_selector, split_words

        ids: dict[int, None] = {}
        for word in split_words(words):
            ids.update(dict.fromkeys(job_queries.select(self.db, parse_selector(word))))
        return sorted(ids)

    def record_restart(self) -> None:
        """Let a daemon record which jobs a restart of the host has ended, so that they can change.

        Without a daemon, they would still count as running.
        """
        from stoker.engine.store.interrupted_jobs import interrupted

        if not interrupted(self.db):
            return
        try:
            self.ensure_daemon()
        except Unavailable:
            return
        deadline = time.monotonic() + _RECORD_SECONDS
        while interrupted(self.db) and time.monotonic() < deadline:
            time.sleep(0.02)

    def cancel(self, ids: list[int], grace: float | None = None) -> tuple[int, int]:
        """Cancel jobs: waiting ones now, running ones with SIGTERM and, after `grace`, SIGKILL.

        Returns how many were cancelled and how many are being stopped.
        """
        from stoker.engine.store import changes

        if grace is not None and not 0 <= grace < float("inf"):
            raise UsageError(
                f"invalid grace period {grace!r}", "give a number of seconds, 0 or more"
            )
        self.record_restart()
        try:
            result = changes.cancel(self.db, ids, time.time(), grace)
        except (TryLater, NoPermission):
            from stoker.engine.store import job_queries

            stopping = self._stop_without_record(ids, grace)
            if not stopping or any(row.state in WAITING for row in job_queries.jobs(self.db, ids)):
                raise
            return 0, stopping
        # Only running jobs need a daemon that stops them.
        if result[1]:
            self.ensure_daemon()
        else:
            self.wake_daemon()
        return result

    def _stop_without_record(self, ids: list[int], grace: float | None) -> int:
        """Ask the daemon directly to stop running jobs, when the disk is full or read-only.

        Returns the number of jobs. The daemon keeps the cancellation in memory until it can be
        recorded.
        """
        from stoker.engine.store import job_queries

        seconds = b"-" if grace is None else b"%f" % grace
        running = [row.id for row in job_queries.jobs(self.db, ids) if row.state in ACTIVE]
        return sum(
            wake_daemon(self.settings.state_dir, b"stop %d %s" % (id, seconds)) for id in running
        )

    def hold(self, ids: list[int]) -> int:
        from stoker.engine.store import changes

        self.record_restart()
        count = changes.hold(self.db, ids, time.time())
        self.wake_daemon()
        return count

    def release(self, ids: list[int]) -> int:
        from stoker.engine.store import changes

        self.record_restart()
        count = changes.release(self.db, ids, time.time())
        self.ensure_daemon()
        return count

    def failed_jobs(self) -> list[int]:
        """Failed and lost jobs, and jobs cancelled because of them, that were not rerun yet."""
        from stoker.engine.store import reruns

        self.record_restart()
        return reruns.failed(self.db)

    def rerun(
        self,
        ids: list[int],
        held: bool = False,
        same_code: bool = False,
        token: str | None = None,
    ) -> list[int]:
        """Submit finished jobs again; returns the new ids. Calls with the same token submit once.

        A job with a snapshot gets a new one of its folder as it is now. With `same_code`, it runs
        in the same snapshot, and a job without one raises Conflict if its code has changed.
        """
        from stoker.engine.store import changes

        self.record_restart()
        try:
            places = call("rerun_places", self, ids, same_code)
            new = changes.rerun(self.db, ids, time.time(), held, places, token)
        finally:
            self.release_snapshots()
        self.ensure_daemon()
        return new

    def set_priority(self, ids: list[int], priority: int) -> int:
        from stoker.engine.store import changes

        self.record_restart()
        count = changes.set_priority(self.db, ids, priority, time.time())
        self.wake_daemon()
        return count

    def edit(
        self,
        job: int,
        values: dict[str, object],
        request: Request | None = None,
        *,
        cwd: str | None = None,
        env: tuple[tuple[str, str], ...] = (),
        after: tuple[Dependency | AfterSelector, ...] | None = None,
    ) -> None:
        """Change a job that has not started; see `engine/store/edits.py`."""
        from stoker.engine.store.edits import edit

        self.check_changes(request)
        code = None if cwd is None else self.code.of(Context(cwd, (), 0, ""))
        self.record_restart()
        edit(self.db, job, values, time.time(), request, cwd=cwd, env=env, after=after, code=code)
        self.wake_daemon()

    def check_changes(
        self,
        request: Request | None,
        after: tuple[Dependency | AfterSelector, ...] | None = None,
    ) -> None:
        """Raise what `edit` raises for a request or dependencies that are not possible."""
        if after:
            from stoker.engine.store.needed_jobs import needed_jobs

            needed_jobs(self.db, after)
        if request is not None:
            from stoker.client.submit.job_options import as_flag

            if request.backend:
                call("check_backend_request", self.db, request)
            else:
                from stoker.client.submit.host_requests import check_host_possible, check_possible

                check_possible(request, self.devices(), as_flag)
                check_host_possible(request, known_resources(self.db, self.settings), as_flag)

    def set_array_limit(self, array: int, most: int | None) -> None:
        """Change how many jobs of an array run at once; None: no limit."""
        from stoker.engine.store.edits import set_array_limit

        set_array_limit(self.db, array, most)
        self.wake_daemon()

    # -- devices, removal ----------------------------------------------------------------------

    def change_device_settings(self, uuid: str, **values: object) -> None:
        """Change a GPU: `drained`, `slots`, `share`, or `quarantine=None` to end its quarantine."""
        from stoker.engine.store import changes

        changes.change_device_settings(self.db, uuid, values)
        self.wake_daemon()

    def remove(self, ids: list[int]) -> list[int]:
        """Remove finished jobs with their logs. Returns the ids of the removed jobs."""
        removal = self.removal()
        removal.remove(ids)
        return removal.jobs

    def removal(self, on_progress: Callable[[int], None] | None = None) -> Removal:
        """A removal in batches. `on_progress` is called with the number of removed jobs."""
        from stoker.client.removal import Removal

        self.record_restart()
        return Removal(self.db, on_progress)

    def finished_runs(self, before: float | None) -> list[str]:
        """Folders of finished foreground runs, all or those last changed before a time."""
        from stoker.engine.supervisor import locks

        place = os.path.join(self.settings.state_dir, "runs")
        names = os.listdir(place) if os.path.isdir(place) else []
        runs = [os.path.join(place, name) for name in sorted(names)]
        return [
            run
            for run in runs
            if (before is None or os.stat(run).st_mtime < before)
            and locks.holder(run, locks.RUN_LOCK) is None
        ]

    def remove_runs(self, runs: list[str]) -> int:
        """Remove records and logs of foreground runs. Returns how many were removed."""
        import shutil

        from stoker.engine.supervisor import locks

        removed = 0
        for run in runs:
            if locks.holder(run, locks.RUN_LOCK) is None:  # not resumed in the meantime
                shutil.rmtree(run, ignore_errors=True)
                removed += 1
        return removed

    def set_draining(self, draining: bool) -> None:
        """Stop starting jobs (True), or start jobs again (False)."""
        from stoker.engine.store import changes

        changes.set_draining(self.db, draining)
        self.wake_daemon()

    def wake_daemon(self) -> bool:
        """Make a running daemon read the changes; False if none is running."""
        return wake_daemon(self.settings.state_dir)
