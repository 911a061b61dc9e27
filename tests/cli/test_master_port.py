"""Jobs with several GPUs have a port of their own for distributed training."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from tests.helpers import Gate
from tests.lab import Lab

_SHOW = "echo $MASTER_ADDR $MASTER_PORT $PET_MASTER_ADDR $PET_MASTER_PORT"


def _found(lab: Lab, job: int) -> tuple[dict[str, object], str]:
    """What may explain a missing port."""
    return lab.job(job), (lab.state_dir / "daemon.log").read_text()


def test_two_jobs_with_two_gpus_have_different_ports(new_lab: Callable[..., Lab]) -> None:
    four_gpus = new_lab(devices=4)
    gate = Gate(four_gpus.folder, "gate")
    jobs = [four_gpus.submit("--gpus", "2", f"{_SHOW}; {gate.wait}") for _ in range(2)]
    gate.wait_for(2)
    gate.open()
    four_gpus.wait(*jobs)
    logs = [four_gpus.log(job).split() for job in jobs]
    assert all(len(log) == 4 for log in logs), _found(four_gpus, jobs[0])
    for address, port, torchrun_address, torchrun_port in logs:
        assert address == torchrun_address == "127.0.0.1"
        assert port == torchrun_port and port.isdigit()
    assert logs[0][1] != logs[1][1]


def test_job_keeps_the_port_of_its_submitter(new_lab: Callable[..., Lab]) -> None:
    four_gpus = new_lab(devices=4)
    job = four_gpus.submit("--gpus", "2", "--env", "MASTER_PORT=12345", _SHOW)
    four_gpus.wait(job)
    assert four_gpus.log(job).split() == ["12345"]


def test_job_with_one_gpu_has_no_port(new_lab: Callable[..., Lab]) -> None:
    four_gpus = new_lab(devices=4)
    job = four_gpus.submit("--gpus", "1", "echo port=$MASTER_PORT")
    four_gpus.wait(job)
    assert four_gpus.log(job) == "port=\n"


def test_job_that_a_job_submits_gets_its_own_port(new_lab: Callable[..., Lab]) -> None:
    four_gpus = new_lab(devices=4)
    inner = four_gpus.folder / "inner"
    stoker = shlex.join(four_gpus.command)
    command = f"echo $MASTER_PORT; {stoker} submit -q --gpus 2 'echo $MASTER_PORT' > {inner}"
    outer = four_gpus.submit("--gpus", "2", command)
    four_gpus.wait(outer)
    job = int(inner.read_text())
    four_gpus.wait(job)
    assert four_gpus.log(job).strip().isdigit(), _found(four_gpus, job)
    assert four_gpus.log(job) != four_gpus.log(outer)
