"""A host with a driver of our own making, and what tests do on it.

host = GpuHost(folder, library, "NVIDIA H200", "NVIDIA H200")
lab = host.lab()                      # one user's queue; another call makes another one's
job = lab.submit("-M", "30G", tenant(gate, 5 * GIB))
"""

from __future__ import annotations

import getpass
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.helpers import Gate
from tests.fake_nvml import GIB, FakeNvml
from tests.lab import Lab, wait_until

H200, A100 = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"
USER = getpass.getuser()
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."


class GpuHost:
    """Cards, a folder for leases, and as many queues as somebody wants."""

    def __init__(self, folder: Path, library: Path, *models: str, total: int = 80 * GIB) -> None:
        self.folder = folder
        self.fake = FakeNvml(folder / "nvml", library, count_calls=True)
        self.cards = self.fake.cards(*models, total=total)
        for number, card in enumerate(self.cards):  # a bus that no real host has
            self.fake.change(card, pci=f"face:{number + 1:02x}:00.0")
        self._labs: list[GpuLab] = []
        self._strangers: list[subprocess.Popen[bytes]] = []

    def lab(self, **env: str) -> GpuLab:
        folder = self.folder / f"lab{len(self._labs)}"
        folder.mkdir()
        ours = {"STOKER_NVML": "1", "STOKER_LEASE_DIR": str(self.folder / "leases")}
        self._labs.append(GpuLab(folder, **(self.fake.env() | ours | env)))
        return self._labs[-1]

    def gate(self, name: str = "gate") -> Gate:
        return Gate(self.folder, name)

    def stranger(self, card: int, memory: int | None, kind: str = "compute") -> int:
        """A process on a card that Stoker knows nothing of; its PID."""
        process = subprocess.Popen(["sleep", "600"])
        self._strangers.append(process)
        self.fake.add_process(self.cards[card], process.pid, memory, kind)
        return process.pid

    def end_stranger(self, pid: int) -> None:
        process = next(one for one in self._strangers if one.pid == pid)
        process.kill()
        process.wait()

    def wait_for_look(self) -> None:
        """Until a daemon has seen the driver as it is now; no command may run meanwhile."""
        calls = self.fake.calls("nvmlEventSetWait_v2")  # once in every sample
        # The first may have begun before, the third shows that the second was heard.
        wait_until(lambda: self.fake.calls("nvmlEventSetWait_v2") >= calls + 3, what="samples")

    def close(self) -> None:
        for lab in self._labs:
            lab.close()
        for process in self._strangers:
            process.kill()
            process.wait()


class GpuLab(Lab):
    def gpus(self) -> list[dict[str, Any]]:
        cards: list[dict[str, Any]] = json.loads(self.ok("gpus", "--json"))["gpus"]
        return cards

    def gpu(self, index: int) -> dict[str, Any]:
        return next(card for card in self.gpus() if card["index"] == index)

    def places(self, *ids: int) -> list[list[int]]:
        """The cards that each job runs or ran on; all jobs when none is named."""
        jobs = json.loads(self.ok("ls", "--state", "all", "-n", "1000", "--json"))["jobs"]
        found = {job["id"]: [device["index"] for device in job["devices"]] for job in jobs}
        return [found[id] for id in ids or sorted(found)]

    def start(self, gate: Gate, *options: str, size: int = 0) -> int:
        """A job that is on its card now and stays there until the gate opens."""
        arrived = len(gate.arrived())
        job = self.submit(*options, tenant(gate, size) if size else gate.wait)
        gate.wait_for(arrived + 1)
        return job

    def stay_awake(self, gate: Gate) -> int:
        """A CPU job, when the cards have been seen; while it runs, they are looked at often."""
        assert self.wait(self.submit("true")) == 0
        return self.start(gate, "--gpus", "0")

    def why(self, id: int) -> str:
        return self.ok("why", str(id))

    def has_started(self, id: int) -> bool:
        return self.state(id) in ("running", "done", "failed")

    def daemon_log(self) -> str:
        return (self.state_dir / "daemon.log").read_text()


def on_card(size: int) -> str:
    """Shell text: have memory on each of your cards, as a CUDA program would by allocating."""
    return (
        f'for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , " "); do echo "$gpu {size}"; done'
        ' > "$FAKE_NVML_PROCS/$$"'
    )


def tenant(gate: Gate, size: int) -> str:
    return f"{on_card(size)}; {gate.wait}"


def failing(text: str, code: int = 1) -> str:
    """Shell text: say this and fail."""
    return f"echo '{text}' >&2; exit {code}"
