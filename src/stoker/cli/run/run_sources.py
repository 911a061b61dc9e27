"""What `stoker run` runs, and on which GPUs: one command, or the lines of a file or pipe.

The third source, a sweep, is in run_sweep.py.
"""

from __future__ import annotations

import os
import stat
import time

from stoker.cli.job_lines import LineReader, open_lines
from stoker.cli.output import notice
from stoker.client.submit.job_identity import Occurrences
from stoker.client.submit.job_specs import JobSpecs
from stoker.engine.daemon.gpus.driver_monitor import find_gpus
from stoker.engine.daemon.gpus.fixed_gpus import FixedGpus
from stoker.engine.daemon.gpus.gpu_file import read_gpu_file
from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.gpus.monitored_gpus import MonitoredGpus
from stoker.engine.devices.device_names import parse_devices, visible_names
from stoker.engine.devices.discovery import as_device, has_driver, simulated
from stoker.engine.devices.driver_client import sample_once
from stoker.engine.model import Device, DeviceState, JobSpec
from stoker.engine.policy.eligible import is_named
from stoker.engine.store.resumable_jobs import FinishedJobs
from stoker.engine.store.submit import Submission
from stoker.errors import Impossible, UsageError
from stoker.settings import Settings, cpu_slots
from stoker.text.command_line import Parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.text.commands.job_file import JobLine


class WordSource:
    """A single command."""

    descriptor = None

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self.at_end = False
        self.skipped = 0

    @property
    def is_ready(self) -> bool:
        return not self.at_end

    def read(self) -> list[JobSpec]:
        self.at_end = True
        return [self._spec]

    def submit(self, submission: Submission, specs: list[JobSpec]) -> None:
        submission.add(specs, time.time())


class LineSource:
    """Lines of a file or pipe, without those that succeeded in an earlier run."""

    def __init__(self, path: str, maker: JobSpecs, finished: FinishedJobs | None) -> None:
        """`finished`: jobs that succeeded before; None for a run that cannot be resumed."""
        self._reader = LineReader(open_lines(path))
        # epoll refuses regular files, also as stdin (`run - < jobs.txt`).
        self._is_file = stat.S_ISREG(os.fstat(self._reader.descriptor).st_mode)
        self._maker = maker
        self._finished = finished
        self._occurrences = Occurrences()
        self.skipped = 0

    @property
    def descriptor(self) -> int | None:
        return None if self._is_file else self._reader.descriptor

    @property
    def at_end(self) -> bool:
        return self._reader.at_end

    @property
    def is_ready(self) -> bool:
        return not self._reader.at_end

    def submit(self, submission: Submission, specs: list[JobSpec]) -> None:
        submission.add(specs, time.time())

    def count_unread(self) -> int | None:
        """The number of jobs in the rest of the input; None if that is a pipe and unknown."""
        if not self._is_file:
            return None if not self.at_end else 0
        count = 0
        while not self.at_end:
            count += len(self.read())
        return count

    def read(self) -> list[JobSpec]:
        lines = self._reader.read()
        if self._finished is None:
            return [self._maker.line(line) for line in lines]
        return [spec for line in lines if (spec := self._unfinished(line)) is not None]

    def _unfinished(self, line: JobLine) -> JobSpec | None:
        """The job of a line, with a key that identifies it in later runs; None if it succeeded."""
        assert self._finished is not None
        job = self._maker.resumable_line(line)
        key = self._occurrences.next_key(job.identity)
        if self._finished.has(key, job.spec, job.declared_env):
            self.skipped += 1
            return None
        return job.spec._replace(dedupe=key)


_OPEN = DeviceState()


def gpus_of(parsed: Parsed, settings: Settings, tag_base: int) -> Gpus:
    """The GPUs that the run uses. Raises UsageError or Impossible for names of unknown GPUs."""
    named = parsed["devices"]
    if named is not None and not named.strip():
        raise UsageError("`--devices` is empty", "for jobs without a GPU: --gpus 0")
    if named is None and not settings.devices and os.environ.get("CUDA_VISIBLE_DEVICES"):
        named = visible_names(os.environ["CUDA_VISIBLE_DEVICES"])
        if not named:
            return FixedGpus(())
    if named is None:
        return _sampled(find_gpus(settings, tag_base), ())
    devices = parse_devices(named)
    if settings.devices:
        _check_known(devices, simulated(settings.devices))
        return FixedGpus(devices)
    if not has_driver():  # cannot be checked; they may be GPUs of another vendor
        return FixedGpus(devices)
    if any("," in device.visible for device in devices):
        # A pair such as 0+1 is one device for Stoker, but not for the driver.
        _check_known(devices, tuple(map(as_device, sample_once().gpus or ())))
        return FixedGpus(devices)
    # Inside a job, the GPUs of the job are already leased, and the run may use them.
    inherited = os.environ.get("STOKER_GPU_UUIDS", "").split(",")
    gpus = MonitoredGpus(tag_base, settings.leases, settings.gpus_by_uuid, inherited)
    gpus.use_only({device.visible: device.slots for device in devices})
    return _sampled(gpus, devices)


def check_gpu_file(path: str, gpus: Gpus) -> None:
    """Raise UsageError if the file of `--gpu-file` cannot be used when the run starts."""
    try:
        read_gpu_file(path)
    except OSError as error:
        raise UsageError(f"cannot read the GPU file `{path}`: {error.strerror}") from None
    except (ValueError, UsageError) as error:
        why = error.message if isinstance(error, UsageError) else "it is not UTF-8 text"
        raise UsageError(
            f"cannot use the GPU file `{path}`: {why}", "write 0,1 or one GPU per line"
        ) from None
    if not gpus.is_monitored:
        notice("warning: `--gpu-file` has no effect: the GPUs of this run cannot change")


def _sampled(gpus: Gpus, named: tuple[Device, ...]) -> Gpus:
    """The same GPUs, after a first sample of their state."""
    if isinstance(gpus, MonitoredGpus):
        gpus.update(sample_once(), {})
        if gpus.problem is not None:
            notice(f"no GPU can be used: {gpus.problem}")
        else:
            _check_known(named, gpus.devices)
    return gpus


def _check_known(named: tuple[Device, ...], known: tuple[Device, ...]) -> None:
    """Raise Impossible for an unknown GPU, if it is known which GPUs this host has."""
    for name in (name for device in named for name in device.visible.split(",")):
        if known and not any(is_named(device, (name,)) for device in known):
            names = ", ".join(device.visible for device in known)
            raise Impossible(f"there is no GPU `{name}` on this host", f"its GPUs: {names}")


def usable_devices(gpus: Gpus) -> tuple[Device, ...]:
    """The devices that jobs of this run may use."""
    return tuple(d for d in gpus.devices if gpus.states.get(d.number, _OPEN).closed_reason is None)


def max_parallel_jobs(gpus: Gpus, parsed: Parsed, settings: Settings) -> int:
    """How many jobs can run at the same time."""
    slots = sum(device.slots for device in gpus.devices)
    return slots or parsed["jobs"] or cpu_slots(settings)
