"""`Queue`: the jobs of one user on one host. All changes of interfaces go through it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from stoker.core.formats.plurals import plural
from stoker.core.formats.sizes import format_size
from stoker.core.model import Context, Dependency, Device, Request
from stoker.core.policy.eligible import is_eligible, is_named
from stoker.core.states import ACTIVE, WAITING
from stoker.daemon.start import ensure_daemon, wake_daemon
from stoker.daemon.status import known_devices, known_resources
from stoker.errors import Impossible, NoPermission, TryLater, UsageError
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.store import job_queries
from stoker.store.database import open_database
from stoker.store.submit import CHUNK, Receipt, Submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.client.removal import Removal

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
        self.db = open_database(self.settings.state_dir)

    def close(self) -> None:
        self.db.close()

    # -- submit ------------------------------------------------------------------------------

    def submission(self, token: str | None = None) -> Submission:
        """A new submit; with a token, it can be repeated and adds nothing twice."""
        return Submission(self.db, token=token)

    def ensure_daemon(self) -> bool:
        """Wake the daemon, or start one. Returns whether a daemon was started."""
        return ensure_daemon(self.settings)

    def devices(self) -> tuple[Device, ...]:
        return known_devices(self.db, self.settings)

    def files_dir(self, backend: str) -> str:
        """The folder for files of jobs on a backend; "" is this host."""
        if backend:
            from stoker.store import backends

            row = backends.backend(self.db, backend)
            if row is not None and row.folder is not None:
                return row.folder
        return self.settings.state_dir

    # -- change ------------------------------------------------------------------------------

    def select(self, words: Iterable[str]) -> list[int]:
        """The ids of the jobs that selectors match, sorted and without duplicates.

        Raises NotFound if a selector names no job.
        """
        from stoker.core.formats.selectors import parse_selector

        ids: dict[int, None] = {}
        for word in words:
            for part in word.split(",") if not word.startswith("name:") else [word]:
                ids.update(dict.fromkeys(job_queries.select(self.db, parse_selector(part))))
        return sorted(ids)

    def cancel(self, ids: list[int], grace: float | None = None) -> tuple[int, int]:
        """Cancel jobs: waiting ones now, running ones with SIGTERM and, after `grace`, SIGKILL.

        Returns how many were cancelled and how many are being stopped.
        """
        from stoker.store import changes

        if grace is not None and not 0 <= grace < float("inf"):
            raise UsageError(
                f"invalid grace period {grace!r}", "give a number of seconds, 0 or more"
            )
        try:
            result = changes.cancel(self.db, ids, time.time(), grace)
        except (TryLater, NoPermission):
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
        seconds = b"-" if grace is None else b"%f" % grace
        running = [row.id for row in job_queries.jobs(self.db, ids) if row.state in ACTIVE]
        return sum(
            wake_daemon(self.settings.state_dir, b"stop %d %s" % (id, seconds)) for id in running
        )

    def hold(self, ids: list[int]) -> int:
        from stoker.store import changes

        count = changes.hold(self.db, ids, time.time())
        self.wake_daemon()
        return count

    def release(self, ids: list[int]) -> int:
        from stoker.store import changes

        count = changes.release(self.db, ids, time.time())
        self.ensure_daemon()
        return count

    def failed_jobs(self) -> list[int]:
        """Failed and lost jobs, and jobs cancelled because of them, that were not rerun yet."""
        from stoker.store import reruns

        return reruns.failed(self.db)

    def rerun(self, ids: list[int], held: bool = False) -> list[int]:
        from stoker.store import changes

        new = changes.rerun(self.db, ids, time.time(), held)
        self.ensure_daemon()
        return new

    def set_priority(self, ids: list[int], priority: int) -> int:
        from stoker.store import changes

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
        after: tuple[Dependency, ...] | None = None,
    ) -> None:
        """Change a job that has not started; see `store/edits.py`."""
        from stoker.store.edits import edit

        if request is not None:
            from stoker.client.job_options import as_flag

            if request.backend:
                from stoker.client.backend_requests import check_nodes, find_backend

                check_nodes(request, find_backend(self.db, request.backend))
            else:
                from stoker.client.host_requests import check_host_possible

                check_possible(request, self.devices(), as_flag)
                check_host_possible(request, known_resources(self.db, self.settings), as_flag)
        edit(self.db, job, values, time.time(), request, cwd=cwd, env=env, after=after)
        self.wake_daemon()

    # -- devices, tags, removal ----------------------------------------------------------------

    def change_device_settings(self, uuid: str, **values: object) -> None:
        """Change a GPU: `drained`, `slots`, `share`, or `quarantine=None` to end its quarantine."""
        from stoker.store import changes

        changes.change_device_settings(self.db, uuid, values)
        self.wake_daemon()

    def tag(self, ids: list[int], add: list[str], remove: list[str]) -> None:
        from stoker.store import changes

        changes.tag(self.db, ids, add, remove, time.time())

    def remove(self, ids: list[int]) -> list[int]:
        """Remove finished jobs with their logs. Returns the ids of the removed jobs."""
        removal = self.removal()
        removal.remove(ids)
        return removal.jobs

    def removal(self, on_progress: Callable[[int], None] | None = None) -> Removal:
        """A removal in batches. `on_progress` is called with the number of removed jobs."""
        from stoker.client.removal import Removal

        return Removal(self.db, on_progress)

    def finished_runs(self, before: float | None) -> list[str]:
        """Folders of finished foreground runs, all or those last changed before a time."""
        from stoker.supervisor import locks

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

        from stoker.supervisor import locks

        removed = 0
        for run in runs:
            if locks.holder(run, locks.RUN_LOCK) is None:  # not resumed in the meantime
                shutil.rmtree(run, ignore_errors=True)
                removed += 1
        return removed

    def set_draining(self, draining: bool) -> None:
        """Stop starting jobs (True), or start jobs again (False)."""
        from stoker.store import changes

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


def output_path(path: str | None, cwd: str) -> str | None:
    """The absolute path of an output file. Raises UsageError if it is not a regular file."""
    if path is None:
        return None
    from stoker.supervisor.regular_files import output_problem

    path = os.path.join(cwd, path)
    kind = output_problem(path)
    if kind is not None:
        raise UsageError(
            f"cannot write the output of a job to `{path}`: it is {kind}",
            "give the path of a regular file, or /dev/null",
        )
    return path


def current_context(
    settings: Settings, cwd: str | None = None, extra: Iterable[tuple[str, str]] = ()
) -> Context:
    """The folder, environment, umask and shell of this process, for a job."""
    env = dict(os.environ)
    env.pop("_", None)  # set by shells to the path of `stoker`
    if "STOKER_JOB_ID" in env:  # submitted by a job, whose variables are not for this one
        for key in [key for key in env if key.startswith(_OF_ONE_JOB)]:
            del env[key]
        from stoker.core.formats.slurm_environment import MARK, SRUN_FOLDER
        from stoker.supervisor.thread_variables import remove_thread_variables

        remove_thread_variables(env)
        if "PET_MASTER_PORT" in env and env["PET_MASTER_PORT"] == env.get("MASTER_PORT"):
            for key in ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT"):
                env.pop(key, None)  # of the job, from Stoker (supervisor/distributed.py)
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
