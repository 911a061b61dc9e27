"""Queues of different users, foreground runs and orphaned jobs respect each other's leases."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.engine.daemon.gpus.process_owners import user_name
from stoker.engine.devices.leases.lease import first_waiters
from tests.engine.gpus.host import USER, GpuHost, GpuLab, hold_memory
from tests.fake_nvml import GIB
from tests.helpers import Gate
from tests.other_user import OTHER, busy_other_user

_PLANTED = ["link", "fifo", "folder"]


def _run(lab: GpuLab, *args: str) -> subprocess.Popen[str]:
    return lab.popen("run", *args)


def test_two_queues_of_one_host_never_share_a_whole_gpu(host: GpuHost) -> None:
    first, second = host.lab(), host.lab()
    gate, later = host.gate(), host.gate("later")
    jobs = [first.start(gate), second.start(gate)]
    assert sorted([*first.places(jobs[0]), *second.places(jobs[1])]) == [[0], [1]]
    waits = second.submit(later.wait)
    others = [lab.submit("--gpus", "0", "true") for lab in (first, second)]
    assert (first.wait(others[0]), second.wait(others[1])) == (0, 0)
    assert second.state(waits) == "queued"
    gate.open()
    later.wait_for()
    later.open()
    assert second.wait(waits) == 0


def test_gpu_of_another_queue_is_used_as_soon_as_it_is_released(host: GpuHost) -> None:
    """A waiting queue is notified when the lease is free; it does not poll."""
    first, second = host.lab(), host.lab()
    gate = host.gate()
    first.start(gate, "--gpus", "2")
    waits = second.submit("--gpus", "2", "echo at last")
    second.wait_until(lambda: "leased to" in second.why(waits))
    gate.open()
    assert second.wait(waits) == 0
    assert second.log(waits) == "at last\n"


def test_holder_of_a_lease_is_shown(host: GpuHost) -> None:
    first, second = host.lab(), host.lab()
    gate = host.gate()
    job = first.start(gate, "--gpu-ids", "0")
    first.start(gate, "-M", "20G", "--gpu-ids", "1")
    pid = first.daemon_pid()
    shown = second.ok("gpus")
    assert f"all memory leased to {USER} (pid {pid})" in shown
    assert f"20 GiB leased to {USER} (pid {pid})" in shown
    whole, part = second.gpus()
    assert whole["holders"] == [{"uid": os.getuid(), "pid": pid, "amount_bytes": None}]
    assert part["holders"] == [{"uid": os.getuid(), "pid": pid, "amount_bytes": 20 * GIB}]
    assert f"leased to {USER} (pid {pid})" in whole["state"]
    assert first.gpu(0)["jobs"][0]["id"] == job


def test_queues_share_a_gpu_by_memory_and_never_overcommit_it(
    host: GpuHost,
) -> None:
    first, second = host.lab(), host.lab()
    gate = host.gate()
    first.start(gate, "-M", "40G", "--gpu-ids", "0")
    second.start(gate, "-M", "30G", "--gpu-ids", "0")
    waits = [lab.submit("-M", "20G", "--gpu-ids", "0", "true") for lab in (first, second)]
    others = [lab.submit("--gpus", "0", "true") for lab in (first, second)]
    assert (first.wait(others[0]), second.wait(others[1])) == (0, 0)
    assert [lab.state(job) for lab, job in zip((first, second), waits, strict=True)] == [
        "queued",
        "queued",
    ]
    gate.open()
    assert (first.wait(waits[0]), second.wait(waits[1])) == (0, 0)


def test_why_counts_memory_that_another_queue_has_leased_but_not_used(host: GpuHost) -> None:
    first, second = host.lab(), host.lab()
    gate = host.gate()
    first.start(gate, "-M", "60G", "--gpu-ids", "0")
    part = second.submit("-M", "30G", "--gpu-ids", "0", "true")
    whole = second.submit("--gpu-ids", "0", "true")
    other = second.submit("--gpus", "0", "true")
    assert second.wait(other) == 0
    for job in (part, whole):
        assert f"60 GiB leased to {USER}" in second.why(job)
        assert second.state(job) == "queued"
    gate.open()
    assert second.wait(part, whole) == 0


def test_memory_used_by_a_leased_job_of_another_queue_is_not_counted_twice(
    host: GpuHost,
) -> None:
    first, second = host.lab(), host.lab()
    gate = host.gate()
    first.start(gate, "-M", "40G", "--gpu-ids", "0", size=38 * GIB)
    job = second.start(gate, "-M", "39G", "--gpu-ids", "0")
    assert second.places(job) == [[0]]


def test_burst_from_two_queues_never_overcommits_a_gpu(host: GpuHost) -> None:
    labs = [host.lab(), host.lab()]
    gate = host.gate()
    for lab in labs:
        lines = lab.folder / "burst.txt"
        lines.write_text(f"{hold_memory(gate, 24 * GIB)}\n" * 8)
        lab.ok("submit", "-q", "-M", "25G", "--file", str(lines))
    gate.wait_for(6)
    host.wait_for_sample()
    assert len(gate.arrived()) == 6
    for gpu in labs[0].gpus():
        assert gpu["memory_used_bytes"] <= gpu["memory_bytes"]
    gate.open()
    assert [lab.wait() for lab in labs] == [0, 0]


def test_queue_that_waits_for_a_whole_gpu_is_not_overtaken_by_sharing_jobs(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = host.lab(), host.lab()
    monkeypatch.setenv("STOKER_LEASE_DIR", first.env["STOKER_LEASE_DIR"])
    gate, whole, late = host.gate(), host.gate("whole"), host.gate("late")
    first.start(gate, "-M", "30G", "--gpu-ids", "0", size=20 * GIB)
    waits = second.submit("--gpu-ids", "0", whole.wait)
    place = [(host.uuids[0], "", False)]
    second.wait_until(lambda: [one.pid for one in first_waiters(place)] == [second.daemon_pid()])
    passes = first.submit("-M", "30G", "--gpu-ids", "0", late.wait)
    assert first.wait(first.submit("--gpu-ids", "1", "true")) == 0
    assert late.arrived() == []
    gate.open()
    whole.wait_for()
    assert late.arrived() == []
    whole.open()
    late.wait_for()
    late.open()
    assert (first.wait(passes), second.wait(waits)) == (0, 0)


def test_queues_that_need_several_gpus_do_not_deadlock(host: GpuHost) -> None:
    labs = [host.lab(), host.lab()]
    for lab in labs:
        lines = lab.folder / "jobs.txt"
        lines.write_text("true #stoker --gpus 2\ntrue #stoker --gpu-mem 50G\n" * 4)
        lab.ok("submit", "-q", "--file", str(lines))
    assert [lab.wait() for lab in labs] == [0, 0]
    assert [set(lab.states().values()) for lab in labs] == [{"done"}, {"done"}]


def test_foreground_run_and_queue_respect_each_other(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate, other = host.gate(), host.gate("other")
    running = _run(gpu_lab, "--devices", "0", "sh", "-c", gate.wait)
    gate.wait_for()
    job = gpu_lab.start(other)
    assert gpu_lab.places(job) == [[1]]
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    gpu_lab.wait_until(lambda: f"leased to {USER} (pid {running.pid})" in gpu_lab.why(waits))
    gate.open()
    running.communicate()
    assert running.returncode == 0
    assert gpu_lab.wait(waits) == 0


def test_foreground_run_waits_for_a_gpu_that_the_queue_uses(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate, other = host.gate(), host.gate("other")
    gpu_lab.start(gate, "--gpu-ids", "0")
    running = _run(
        gpu_lab, "--devices", "0", "sh", "-c", f"echo $CUDA_VISIBLE_DEVICES; {other.wait}"
    )
    assert gpu_lab.wait(gpu_lab.submit("--gpu-ids", "1", "true")) == 0
    assert other.arrived() == []
    gate.open()
    other.wait_for()
    other.open()
    assert running.communicate()[0] == "0\n"


def test_leases_can_be_turned_off(host: GpuHost) -> None:
    first, second = host.lab(), host.lab(STOKER_LEASES="0")
    gate = host.gate()
    first.start(gate, "--gpus", "2")
    job = second.start(gate, "--gpus", "2")
    assert second.places(job) == [[0, 1]]
    assert [len(gpu["holders"]) for gpu in second.gpus()] == [1, 1]


def test_job_without_a_lease_counts_as_another_process(host: GpuHost) -> None:
    first, second = host.lab(STOKER_LEASES="0"), host.lab()
    gate = host.gate()
    first.start(gate, "-M", "10G", "--gpu-ids", "0", size=9 * GIB)
    job = second.submit("true")
    assert second.wait(job) == 0
    assert second.places(job) == [[1]]
    waits = second.submit("--gpu-ids", "0", "true")
    assert second.wait(second.submit("true")) == 0
    assert second.state(waits) == "queued"


def test_job_keeps_its_gpu_when_daemon_and_runner_are_killed(host: GpuHost) -> None:
    first, second = host.lab(), host.lab()
    gate = host.gate()
    job = first.start(gate, "--gpu-ids", "0", size=GIB)
    daemon, runner = first.daemon_pid(), first.runner_pid()
    assert daemon is not None and runner is not None
    os.kill(daemon, signal.SIGSTOP)
    os.kill(runner, signal.SIGKILL)
    os.kill(daemon, signal.SIGKILL)
    waits = second.submit("--gpu-ids", "0", "true")
    assert second.wait(second.submit("--gpu-ids", "1", "true")) == 0
    assert second.state(waits) == "queued"
    [holder] = second.gpu(0)["holders"]
    assert holder["amount_bytes"] is None
    first.ok("daemon", "start")
    first.wait_until(lambda: first.state(job) == "running")  # after its recovery
    assert second.state(waits) == "queued"
    gate.open()
    assert second.wait(waits) == 0


def test_lease_lasts_until_the_last_process_of_the_job_exits(host: GpuHost) -> None:
    first, second = host.lab(), host.lab()
    gate = host.gate()
    job = first.submit(
        "--keep-children", "--gpu-ids", "0", f"setsid sh -c '{_with_double_quotes(gate)}' &"
    )
    [child] = gate.wait_for()
    assert first.wait(job) == 0
    waits = second.submit("--gpu-ids", "0", "true")
    assert second.wait(second.submit("--gpu-ids", "1", "true")) == 0
    assert second.state(waits) == "queued"
    os.kill(child, signal.SIGKILL)
    assert second.wait(waits) == 0


def _with_double_quotes(gate: Gate) -> str:
    return gate.wait.replace("'", '"')


def test_planted_lease_file_blocks_only_its_gpu(host: GpuHost, gpu_lab: GpuLab) -> None:
    leases = Path(gpu_lab.env["STOKER_LEASE_DIR"])
    leases.mkdir(mode=0o1777)
    leases.chmod(0o1777)
    os.mkfifo(leases / host.uuids[0])
    jobs = [gpu_lab.submit(*options, "true") for options in ((), ("--gpus", "0"), ())]
    daemon = gpu_lab.daemon_pid()
    assert gpu_lab.wait(*jobs) == 0
    assert gpu_lab.places(*jobs) == [[1], [], [1]]
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    assert gpu_lab.wait(gpu_lab.submit("true")) == 0
    gpu_lab.wait_until(lambda: "is not a file" in gpu_lab.daemon_log())
    (leases / host.uuids[0]).unlink()
    assert gpu_lab.wait(waits) == 0
    assert gpu_lab.daemon_pid() == daemon


@pytest.mark.parametrize("kind", [*_PLANTED, *(["unreadable"] if os.getuid() else [])])
@pytest.mark.parametrize("ending", ["", ".gate"])
def test_views_name_a_planted_lease_file(
    host: GpuHost, gpu_lab: GpuLab, kind: str, ending: str
) -> None:
    leases = Path(gpu_lab.env["STOKER_LEASE_DIR"])
    leases.mkdir(mode=0o1777)
    leases.chmod(0o1777)
    path = leases / f"{host.uuids[0]}{ending}"
    match kind:
        case "link":
            path.symlink_to("/etc/passwd")
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "unreadable":
            path.touch(0o000)
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    assert f"cannot be leased: the lease file `{path}` is " in gpu_lab.why(waits)
    assert "cannot be leased" in gpu_lab.ok("gpus")
    assert "cannot be leased" in gpu_lab.ok()
    done = gpu_lab.run("doctor")
    assert f"bad   GPU 0: cannot be leased: the lease file `{path}` is " in done.stdout
    assert f"hint: ask user {os.getuid()} to remove it: {path}" in done.stdout


@pytest.mark.parametrize("ending", ["", ".gate"])
def test_views_name_a_process_that_locks_a_gpu_without_a_lease(
    host: GpuHost, gpu_lab: GpuLab, ending: str, tmp_path: Path
) -> None:
    assert gpu_lab.wait(gpu_lab.submit("--gpu-ids", "0", "true")) == 0  # makes the files
    path = Path(gpu_lab.env["STOKER_LEASE_DIR"], f"{host.uuids[0]}{ending}")
    descriptor = os.open(path, os.O_RDONLY)  # the other user has no access to folders of tests
    out = os.open(tmp_path / "pid", os.O_RDWR | os.O_CREAT)

    def hold(begin: Callable[[], None]) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(out, str(os.getpid()).encode())
        begin()
        signal.pause()

    with busy_other_user(hold):
        os.close(descriptor)
        pid = int(os.pread(out, 20, 0))
        words = f"its lease is locked by {user_name(OTHER)} (pid {pid})"
        waits = gpu_lab.submit("--gpu-ids", "0", "true")
        assert words in gpu_lab.why(waits)
        assert words in gpu_lab.gpu(0)["state"]
        assert gpu_lab.gpu(1)["state"] == "free"
        assert f"bad   GPU 0: {words}" in gpu_lab.run("doctor").stdout
        assert gpu_lab.state(waits) == "queued"
    os.close(out)
    assert gpu_lab.wait(waits) == 0


def test_unsafe_lease_folder_blocks_only_gpu_jobs(host: GpuHost, gpu_lab: GpuLab) -> None:
    leases = Path(gpu_lab.env["STOKER_LEASE_DIR"])
    leases.mkdir()
    leases.chmod(0o777)
    waits = gpu_lab.submit("true")
    assert gpu_lab.wait(gpu_lab.submit("--gpus", "0", "true")) == 0
    gpu_lab.wait_until(lambda: "users can remove each other's files" in gpu_lab.daemon_log())
    assert gpu_lab.state(waits) == "queued"
    daemon = gpu_lab.daemon_pid()
    leases.chmod(0o1777)
    assert gpu_lab.wait(waits) == 0
    assert gpu_lab.daemon_pid() == daemon
