"""Makes the order that starts a claimed job: command, environment, log file."""

from __future__ import annotations

from collections.abc import Callable

from stoker.engine.daemon.interfaces import OrderHook
from stoker.engine.model import Context, Device, ReadyJob
from stoker.engine.snapshot_context import original_folder
from stoker.engine.store import attempts, contexts, profiles
from stoker.engine.store.database import Database
from stoker.engine.supervisor.logs import (
    job_folder,
    log_path,
    metrics_path,
    progress_path,
    requeue_path,
    stop_path,
)
from stoker.engine.supervisor.messages import Order
from stoker.engine.supervisor.thread_variables import SHARE, thread_variables
from stoker.features import ORDER_HOOKS, load
from stoker.settings import Settings
from stoker.text.commands.shell_words import plain_words
from stoker.text.cpu_list import format_cpu_list, parse_cpu_list
from stoker.text.limit_signal import parse_warning
from stoker.text.slurm.slurm_environment import MARK, array_variables, started_variables

_MAX_CACHED_CONTEXTS = 100


class OrderMaker:
    def __init__(
        self,
        db: Database,
        settings: Settings,
        log_for: Callable[[int, int], str | None] | None = None,
        folder_for: Callable[[int], str] | None = None,
        chunk: str | None = None,
    ) -> None:
        """`chunk`: the folder of a backend's chunk, if a worker starts the jobs."""
        self._db = db
        self._settings = settings
        self.hooks: list[OrderHook] = [load(row)(db, chunk) for row in ORDER_HOOKS.values()]
        self.log_for = log_for or self._own_log
        self.folder_for = folder_for or self._own_folder
        # With each context: whether its shell is plain, the variables for its threads, and the
        # folder of the submitter.
        self._contexts: dict[int, tuple[Context, bool, tuple[str, ...], str]] = {}

    def make(
        self,
        job: ReadyJob,
        claim: attempts.Claim,
        devices: tuple[Device, ...],
        threads: int | None = None,
        now: float = 0.0,
    ) -> tuple[Order, Context]:
        """Return the order and the context.

        `threads`: the share of the job; None: unknown. `now`: monotonic.
        """
        context, has_plain_shell, thread_names, folder = self._context(job.context)
        words = plain_words(job.argv[0]) if job.shell and has_plain_shell else None
        log = job.stdout or self.log_for(job.id, claim.number)
        env = _job_environment(
            job, claim.number, devices, claim.memory, self.folder_for(job.id), folder
        )
        if threads is not None:
            own = dict(job.variables)
            names = (
                thread_variables(own | dict(context.env))
                if own.keys() & set(thread_names)
                else thread_names
            )
            env[SHARE] = str(threads)
            env |= dict.fromkeys(names, str(threads))
        cpus = near_cpus(job, devices) if self._settings.bind else ""
        if cpus:
            env["STOKER_CPU_LIST"] = cpus
        request, has_limits = job.request, self._settings.limits
        grace, warm = job.settings.grace, job.settings.warm
        order = Order(
            attempt=claim.attempt,
            job=job.id,
            number=claim.number,
            argv=words or job.argv,
            shell=job.shell and words is None,
            context=job.context,
            env=env,
            devices=claim.devices,
            stdout=log,
            stderr=job.stderr,
            own_log=job.stdout is None,
            time_limit=job.time_limit,
            grace=self._settings.grace if grace is None else grace,
            settings=job.settings,
            folder=_folder_to_create(job, env),
            cpus=cpus,
            modules=profiles.modules_of(self._db, job.profile) if warm == "" else "",
            measures_memory=request.is_auto_host,
            # An estimate (`--mem auto`) is not a limit.
            memory_limit=request.host_memory if has_limits and not request.is_auto_host else None,
            cpu_limit=request.cpus if has_limits else 0,
            cgroup=(self._settings.cgroup or "") if has_limits else "",
        )
        for hook in self.hooks:
            order = hook.complete(order, job, now)
        return order, context

    def _context(self, id: int) -> tuple[Context, bool, tuple[str, ...], str]:
        known = self._contexts.get(id)
        if known is None:
            if len(self._contexts) > _MAX_CACHED_CONTEXTS:
                self._contexts.clear()
            context = contexts.load_context(self._db, id)
            # A start-up file or an exported function can redefine a plain command name.
            changed = any(
                key == "BASH_ENV" or key.startswith("BASH_FUNC_") for key, _ in context.env
            )
            names = thread_variables(dict(context.env))
            folder = original_folder(context)
            known = self._contexts[id] = (context, not changed, names, folder)
        return known

    def _own_folder(self, job: int) -> str:
        return job_folder(self._settings.state_dir, job)

    def _own_log(self, job: int, number: int) -> str:
        return log_path(self._settings.state_dir, job, number)


def near_cpus(job: ReadyJob, devices: tuple[Device, ...]) -> str:
    """The CPUs near the devices of a job, as a list; "" if it is not bound to them.

    A job is not bound with --no-bind, if the CPUs near one of its devices are not known, and if it
    reserves more cores than are near.
    """
    if job.settings.no_bind or not devices or not all(device.cpus for device in devices):
        return ""
    if len({device.cpus for device in devices}) == 1 and not job.request.cpus:
        return devices[0].cpus  # the usual case needs no parsing
    near = {cpu for device in devices for cpu in parse_cpu_list(device.cpus)}
    return "" if job.request.cpus > len(near) else format_cpu_list(near)


def _folder_to_create(job: ReadyJob, env: dict[str, str]) -> str:
    """The folder to create before the start; it is removed after the end if it is empty."""
    settings = job.settings
    if settings.restartable or settings.retries or settings.signal is not None:
        return env["STOKER_CHECKPOINT_DIR"]
    return env["STOKER_OUTPUT_DIR"]


def _job_environment(
    job: ReadyJob,
    number: int,
    devices: tuple[Device, ...],
    memory: int | None,
    folder: str,
    submit_dir: str,
) -> dict[str, str]:
    """CUDA's view of the devices, and Stoker's own names (see docs/job-variables.md)."""
    visible = ",".join(device.visible for device in devices)
    env = {
        "CUDA_VISIBLE_DEVICES": visible,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": visible or "void",
        # Not ROCR_VISIBLE_DEVICES as well: HIP would index into the GPUs that it leaves.
        "HIP_VISIBLE_DEVICES": visible,
        "STOKER_JOB_ID": str(job.id),
        "STOKER_JOB_NAME": job.name or "",
        "STOKER_ATTEMPT": str(number),
        "STOKER_GPUS": visible,
        "STOKER_GPU_UUIDS": ",".join(device.uuid for device in devices if device.uuid),
        "STOKER_SUBMIT_DIR": submit_dir,
        "STOKER_OUTPUT_DIR": folder,
        "STOKER_CHECKPOINT_DIR": f"{folder}/checkpoints",
        "STOKER_METRICS": metrics_path(folder),
        "STOKER_PROGRESS_FILE": progress_path(folder),
        "STOKER_STOP_FILE": stop_path(folder),
        "STOKER_REQUEUE_FILE": requeue_path(folder),
    }
    if memory is not None:
        env["STOKER_GPU_MEM_MIB"] = str(memory >> 20)
    if job.batch is not None:
        index = job.batch_index if job.array_index is None else job.array_index
        env["STOKER_ARRAY_ID"] = str(job.batch)
        env["STOKER_ARRAY_INDEX"] = str(index)
    if job.sweep is not None:
        env["STOKER_SWEEP_ID"] = str(job.sweep)
    if job.settings.signal is not None:
        warning = parse_warning(job.settings.signal)
        env["STOKER_WARN_SECONDS"] = str(warning.seconds)
        env["STOKER_WARN_SIGNAL"] = str(warning.signal)
    if job.variables:
        env.update(job.variables)
        if MARK in job.variables:
            gpus = (device.visible for device in devices)
            env |= started_variables(job.id, job.name or "", number, gpus)
        if job.array_index is not None:
            env |= array_variables(job.variables, job.batch or job.id, job.array_index)
    return env
