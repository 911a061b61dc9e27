"""`Queue`: the jobs of one user on one host. All changes of interfaces go through it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from stoker.engine.daemon.start import ensure_daemon, wake_daemon
from stoker.engine.daemon.status import known_devices, known_resources
from stoker.engine.model import AfterSelector, Context, Dependency, Device, Request
from stoker.engine.policy.eligible import is_eligible, is_named
from stoker.engine.snapshot_context import SNAPSHOT_DIR, SNAPSHOT_OF, is_inside
from stoker.engine.store.database import open_database
from stoker.engine.store.submit import CHUNK, Receipt, Submission
from stoker.errors import Impossible, NoPermission, TryLater, Unavailable, UsageError
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.states import ACTIVE, WAITING
from stoker.text.plurals import plural
from stoker.text.sizes import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.client.removal import Removal
    from stoker.features.code.code_gatherer import CodeGatherer
    from stoker.features.code.snapshots import Snapshots
    from stoker.features.notes.store import Note

_RECORD_SECONDS = 10.0  # how long a daemon may take to record what a restart of the host ended

# Variables that belong to one job; other variables with the prefix STOKER_ are settings.
_OF_ONE_JOB = (
    "STOKER_JOB_", "STOKER_ATTEMPT", "STOKER_ARRAY_", "STOKER_GPU", "STOKER_SUBMIT_DIR",
    "STOKER_OUTPUT_DIR", "STOKER_CHECKPOINT_DIR", "STOKER_METRICS", "STOKER_STOP_FILE",
    "STOKER_REQUEUE_FILE", "STOKER_PARAM", "STOKER_SWEEP", "STOKER_TRIAL", "STOKER_DEADLINE",
    "STOKER_WARN_", "STOKER_PROGRESS_FILE", "STOKER_CPU_LIST", "CUDA_MPS_",
)  # fmt: skip


__all__ = ["CHUNK", "Queue", "Receipt", "check_possible", "current_context", "output_path"]


class Queue:
    """Submit, select and change jobs; views.py, wait_reasons.py and finish_watch.py read them."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or load_settings()
        prepare_state_dir(self.settings)
        self._code: CodeGatherer | None = None
        self._snapshots: Snapshots | None = None
        self.db = open_database(self.settings.state_dir)

    def close(self) -> None:
        self.db.close()

    @property
    def code(self) -> CodeGatherer:
        """Reads the state of the code of new jobs."""
        if self._code is None:
            from stoker.features.code.code_gatherer import CodeGatherer

            self._code = CodeGatherer()
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
    def snapshots(self) -> Snapshots:
        """Takes snapshots of the code of new jobs."""
        if self._snapshots is None:
            from stoker.features.code.snapshots import Snapshots

            self._snapshots = Snapshots(self.settings, self.files_dir)
        return self._snapshots

    def ensure_daemon(self) -> bool:
        """Wake the daemon, or start one. Returns whether a daemon was started."""
        return ensure_daemon(self.settings)

    def devices(self) -> tuple[Device, ...]:
        return known_devices(self.db, self.settings)

    def files_dir(self, backend: str) -> str:
        """The folder for files of jobs on a backend; "" is this host."""
        if backend:
            from stoker.features.backends import store as backends

            return backends.files_dir(self.db, backend) or self.settings.state_dir
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
        from stoker.features.code.rerun_code import check_same_code, places_now

        self.record_restart()
        try:
            if same_code:
                check_same_code(self.db, ids)
                places = None
            else:
                places = places_now(self.db, ids, self.code, self.snapshots)
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
                from stoker.features.backends.backend_requests import check_nodes, find_backend

                check_nodes(request, find_backend(self.db, request.backend))
            else:
                from stoker.client.submit.host_requests import check_host_possible

                check_possible(request, self.devices(), as_flag)
                check_host_possible(request, known_resources(self.db, self.settings), as_flag)

    def set_array_limit(self, array: int, most: int | None) -> None:
        """Change how many jobs of an array run at once; None: no limit."""
        from stoker.engine.store.edits import set_array_limit

        set_array_limit(self.db, array, most)
        self.wake_daemon()

    # -- devices, notes, removal ---------------------------------------------------------------

    def change_device_settings(self, uuid: str, **values: object) -> None:
        """Change a GPU: `drained`, `slots`, `share`, or `quarantine=None` to end its quarantine."""
        from stoker.engine.store import changes

        changes.change_device_settings(self.db, uuid, values)
        self.wake_daemon()

    def tag(
        self,
        ids: list[int],
        add: Iterable[str],
        remove: Iterable[str],
        sweeps: Iterable[str] = (),
    ) -> int:
        """Add tags to jobs and sweeps and remove them; returns how many of these changed.

        Raises NotFound for an unknown sweep.
        """
        from stoker.features.notes import store as notes

        add, remove = list(add), list(remove)
        known = self._sweeps(sweeps)
        with self.db.transaction():
            changed = sum(
                bool(notes.change_tags(self.db, notes.SWEEP, sweep, add, remove)) for sweep in known
            )
        return changed + notes.tag_jobs(self.db, ids, add, remove, time.time())

    def star(self, ids: list[int], starred: bool = True, sweeps: Iterable[str] = ()) -> int:
        """Add stars to jobs and sweeps, or remove them; returns how many changed.

        Raises NotFound for an unknown sweep.
        """
        from stoker.features.notes import store as notes

        known = self._sweeps(sweeps)
        with self.db.transaction():
            changed = notes.set_star(self.db, notes.SWEEP, known, starred)
            return changed + notes.set_star(self.db, notes.JOB, ids, starred)

    def set_note(self, target: int | str, text: str, *, is_continued: bool = False) -> Note:
        """Replace the note of a job (by id) or a sweep (by name); see `features/notes/store.py`.

        Raises NotFound, and UsageError for a note that is too long or contains a NUL byte.
        """
        from stoker.features.notes import store as notes
        from stoker.features.notes.client import check_note, owner

        text = check_note(text)
        kind, id = owner(self.db, target)
        with self.db.transaction():
            return notes.set_note(self.db, kind, id, text, time.time(), is_continued=is_continued)

    def _sweeps(self, names: Iterable[str]) -> list[int]:
        from stoker.features.sweeps import store as sweeps

        return [sweeps.get(self.db, name).id for name in names]

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


def check_possible(
    request: Request,
    devices: tuple[Device, ...],
    named: Callable[..., str],
    *,
    is_masked: bool = False,
) -> None:
    """Raise Impossible, with a hint, for a request that this host can never satisfy.

    `named`: the name of an option, see `job_options.OptionNames`; `is_masked`: the ids of the
    request are from CUDA_VISIBLE_DEVICES, not from an option.
    """
    if not request.gpus:
        return
    requests = f"the job requests {plural(request.gpus, 'GPU')}"
    if request.gpus > len(devices):
        has = plural(len(devices), "GPU") if devices else "no GPU"
        raise Impossible(
            f"{requests}, but this host has {has}",
            f"use {named('gpus', len(devices))}"
            + (" or fewer" if devices else ", a job without a GPU"),
            "gpus",
        )
    for field, names in (("gpu_ids", request.ids), ("prefer", request.prefer)):
        for name in names:
            if not any(is_named(device, (name,)) for device in devices):
                known = ", ".join(device.visible for device in devices)
                raise Impossible(
                    f"there is no GPU `{name}` on this host", f"its GPUs: {known}", field
                )
    fitting = sum(is_eligible(request, device) for device in devices)
    if fitting >= request.gpus:
        return
    hint = f"GPUs on this host: {_models(devices)}"
    listed = sum(is_named(device, request.ids) for device in devices)
    if request.ids and listed < request.gpus:
        source = "`CUDA_VISIBLE_DEVICES`" if is_masked else named("gpu_ids")
        raise Impossible(f"{requests}, but {source} lists {listed}", hint, "gpu_ids")
    without_memory = request._replace(memory=None)
    most = sorted((d.memory for d in devices if is_eligible(without_memory, d)), reverse=True)
    if request.memory is not None and len(most) >= request.gpus:
        largest = f"{most[request.gpus - 1] >> 30}G"
        hint = f"use {named('gpu_mem', largest)} or less; {hint}"
    among = f" among {','.join(request.ids)}" if request.ids else ""
    wanted = _wanted(request)
    raise Impossible(
        f"{requests}{among} with {' and '.join(wanted.values())}, "
        f"but {_matching(fitting, has_memory='gpu_model' not in wanted and not among)}",
        hint,
        next(iter(wanted)),
    )


def _wanted(request: Request) -> dict[str, str]:
    """What the GPUs of a request must have, by option."""
    wanted: dict[str, str] = {}
    if request.memory is not None:
        wanted["gpu_mem"] = f"{format_size(request.memory)} of shareable memory"
    if request.min_memory is not None:
        wanted["min_gpu_mem"] = f"{format_size(request.min_memory)} of memory"
    if request.model is not None:
        wanted["gpu_model"] = f"`{request.model}` in the model name"
    return wanted


def _matching(count: int, *, has_memory: bool) -> str:
    """How many GPUs match; `has_memory`: the request is only about memory."""
    if has_memory:
        if not count:
            return "no GPU on this host has that much memory"
        have = "has" if count == 1 else "have"
        return f"only {plural(count, 'GPU')} on this host {have} that much memory"
    if not count:
        return "no such GPU is on this host"
    return f"only {count} such GPU{'s are' if count > 1 else ' is'} on this host"


def _models(devices: tuple[Device, ...]) -> str:
    """`2 x NVIDIA H200 (141 GiB), 1 x NVIDIA A100 (80 GiB)`"""
    counts: dict[str, int] = {}
    for device in devices:
        memory = f" ({format_size(device.memory)})" if device.memory else ""
        model = f"{device.model or 'GPU'}{memory}"
        counts[model] = counts.get(model, 0) + 1
    return ", ".join(f"{count} x {model}" for model, count in sorted(counts.items()))


def output_path(path: str | None, cwd: str, *, is_elsewhere: bool = False) -> str | None:
    """The absolute path of an output file. Raises UsageError if it cannot be written.

    `is_elsewhere`: it is written on the node of a backend.
    """
    if path is None:
        return None
    from stoker.engine.supervisor.regular_files import output_problem

    path = os.path.join(cwd, path)
    kind = output_problem(path)
    if kind is not None:
        raise UsageError(
            f"cannot write the output of a job to `{path}`: it is {kind}",
            "give the path of a regular file, or /dev/null",
        )
    if not is_elsewhere:
        _check_output_folder(path)
    return path


def _check_output_folder(path: str) -> None:
    """Raise UsageError if the folder of an output file does not exist and cannot be created."""
    folder = os.path.dirname(path.partition("%")[0])  # patterns are expanded at the start
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    problem = None
    if not os.path.isdir(folder):
        problem = f"`{folder}` is not a folder"
    elif not os.path.exists(path) and not os.access(folder, os.W_OK | os.X_OK):
        problem = f"you may not write to `{folder}`"
    if problem is not None:
        raise UsageError(
            f"cannot write the output of a job to `{path}`: {problem}",
            "give another path; folders that do not exist are created",
        )


def current_context(
    settings: Settings, cwd: str | None = None, extra: Iterable[tuple[str, str]] = ()
) -> Context:
    """The folder, environment, umask and shell of this process, for a job."""
    env = dict(os.environ)
    env.pop("_", None)  # set by shells to the path of `stoker`
    if SNAPSHOT_DIR in env and not is_inside(cwd or os.getcwd(), env[SNAPSHOT_DIR]):
        # Submitted by a job that runs in a snapshot, for another folder.
        env.pop(SNAPSHOT_DIR)
        env.pop(SNAPSHOT_OF, None)
    if "STOKER_JOB_ID" in env:  # submitted by a job, whose variables are not for this one
        for key in [key for key in env if key.startswith(_OF_ONE_JOB)]:
            del env[key]
        from stoker.engine.supervisor.thread_variables import remove_thread_variables
        from stoker.text.slurm.slurm_environment import MARK, SRUN_FOLDER

        remove_thread_variables(env)
        if "PET_MASTER_PORT" in env and env["PET_MASTER_PORT"] == env.get("MASTER_PORT"):
            for key in ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT"):
                env.pop(key, None)  # of the job, from Stoker (engine/supervisor/distributed.py)
        if env.get(MARK[0]) == MARK[1]:  # set by Stoker, not by a real Slurm
            for key in [key for key in env if key.startswith(("SLURM_", "SLURMD_"))]:
                del env[key]
            folders = env.get("PATH", "").split(":")
            env["PATH"] = ":".join(f for f in folders if os.path.basename(f) != SRUN_FOLDER)
    env.update(extra)
    mask = os.umask(0o077)
    os.umask(mask)
    shell = settings.shell or env.get("SHELL") or "/bin/sh"
    if not os.access(shell, os.X_OK):
        shell = "/bin/sh"
    return Context(cwd or os.getcwd(), tuple(sorted(env.items())), mask, shell)
