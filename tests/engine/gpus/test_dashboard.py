"""`stoker top` on a host with GPUs: use, memory, jobs and other processes."""

from __future__ import annotations

from tests.cli.helpers import Terminal
from tests.engine.gpus.host import USER, GpuHost, GpuLab
from tests.fake_nvml import GIB


def test_dashboard_shows_use_memory_jobs_and_other_processes(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    pid = host.other_process(1, 20 * GIB)
    host.fake.change(host.uuids[0], util=97)
    gate = host.gate()
    gpu_lab.start(gate, "--name", "trains", size=30 * GIB)
    terminal = Terminal(gpu_lab, "top", columns=120)
    for text in ("H200", "97%", "30.0/79 GiB", "1 trains", f"{USER} 20 GiB"):
        terminal.read_until(text)
    terminal.write(b"2")
    terminal.read_until("job 1 trains, uses 30 GiB")
    terminal.read_until(f"other process: {USER} (pid {pid}) 20 GiB")
    terminal.write(b"q")
    assert terminal.close() == 0
    gate.open()
