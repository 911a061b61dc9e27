"""A host with a fake driver, and helpers for tests on it.

host = GpuHost(folder, library, "NVIDIA H200", "NVIDIA H200")
lab = host.lab()                      # the queue of one user; each call creates another queue
job = lab.submit("-M", "30G", hold_memory(gate, 5 * GIB))
"""

from __future__ import annotations

import getpass
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.fake_nvml import GIB, FakeNvml
from tests.helpers import Gate
from tests.lab import Lab, wait_until

H200, A100 = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"
USER = getpass.getuser()
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."


class GpuHost:
    """GPUs, a folder for leases, and any number of queues."""

    def __init__(self, folder: Path, library: Path, *models: str, total: int = 80 * GIB) -> None:
        self.folder = folder
        self.fake = FakeNvml(folder / "nvml", library, count_calls=True)
        self.uuids = self.fake.set_gpus(*models, total=total)
        for number, uuid in enumerate(self.uuids):  # PCI addresses that no real host has
            self.fake.change(uuid, pci=f"face:{number + 1:02x}:00.0")
        self._labs: list[GpuLab] = []
        self._other_processes: list[subprocess.Popen[bytes]] = []

    def lab(self, **env: str) -> GpuLab:
        folder = self.folder / f"lab{len(self._labs)}"
        folder.mkdir()
        ours = {"STOKER_NVML": "1", "STOKER_LEASE_DIR": str(self.folder / "leases")}
        self._labs.append(GpuLab(folder, **(self.fake.env() | ours | env)))
        return self._labs[-1]

    def gate(self, name: str = "gate") -> Gate:
        return Gate(self.folder, name)

    def other_process(self, gpu: int, memory: int | None, kind: str = "compute") -> int:
        """Start a process on a GPU that does not belong to Stoker; its PID."""
        process = subprocess.Popen(["sleep", "600"])
        self._other_processes.append(process)
        self.fake.add_process(self.uuids[gpu], process.pid, memory, kind)
        return process.pid

    def end_other_process(self, pid: int) -> None:
        process = next(one for one in self._other_processes if one.pid == pid)
        process.kill()
        process.wait()

    def wait_for_sample(self) -> None:
        """Wait until a daemon has a sample of the current state; no command may run meanwhile."""
        calls = self.fake.calls("nvmlEventSetWait_v2")  # once in every sample
        # The first may have started before; the third shows that the second was processed.
        wait_until(lambda: self.fake.calls("nvmlEventSetWait_v2") >= calls + 3, what="samples")

    def close(self) -> None:
        for lab in self._labs:
            lab.close()
        for process in self._other_processes:
            process.kill()
            process.wait()


class GpuLab(Lab):
    def gpus(self) -> list[dict[str, Any]]:
        gpus: list[dict[str, Any]] = json.loads(self.ok("gpus", "--json"))["gpus"]
        return gpus

    def gpu(self, index: int) -> dict[str, Any]:
        return next(gpu for gpu in self.gpus() if gpu["index"] == index)

    def places(self, *ids: int) -> list[list[int]]:
        """The GPUs of the last attempt of each job; of all jobs if no id is given."""
        jobs = json.loads(self.ok("ls", "--state", "all", "-n", "1000", "--json"))["jobs"]
        found = {job["id"]: [device["index"] for device in job["devices"]] for job in jobs}
        return [found[id] for id in ids or sorted(found)]

    def start(self, gate: Gate, *options: str, size: int = 0) -> int:
        """Start a job that uses its GPU until the gate opens."""
        arrived = len(gate.arrived())
        job = self.submit(*options, hold_memory(gate, size) if size else gate.wait)
        gate.wait_for(arrived + 1)
        self.wait_until(lambda: self.state(job) == "running", what=f"job {job} running")
        return job

    def stay_awake(self, gate: Gate) -> int:
        """Start a CPU job after the first sample; while it runs, GPUs are sampled often."""
        assert self.wait(self.submit("true")) == 0
        return self.start(gate, "--gpus", "0")

    def why(self, id: int) -> str:
        return self.ok("why", str(id))

    def has_started(self, id: int) -> bool:
        return self.state(id) in ("running", "done", "failed")

    def daemon_log(self) -> str:
        return (self.state_dir / "daemon.log").read_text()


def allocate(size: int) -> str:
    """A shell command that holds memory on each GPU of its job, like a CUDA allocation."""
    return (
        f'for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , " "); do echo "$gpu {size}"; done'
        ' > "$FAKE_NVML_PROCS/$$"'
    )


def hold_memory(gate: Gate, size: int) -> str:
    """A shell command that holds GPU memory until the gate opens."""
    return f"{allocate(size)}; {gate.wait}"


def failing(text: str, code: int = 1) -> str:
    """A shell command that prints this to stderr and fails."""
    return f"echo '{text}' >&2; exit {code}"
