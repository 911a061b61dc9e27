"""Jobs share a GPU under NVIDIA's MPS, with a fake control daemon and a fake driver."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from stoker.engine.devices.leases.holders import DeviceClaim
from stoker.engine.devices.leases.lease import try_take
from tests.engine.gpus.host import GpuHost, GpuLab
from tests.fake_mps import CONTROL, FakeMps
from tests.fake_nvml import GIB, MIB
from tests.lab import wait_until

_SHOW = 'echo "$CUDA_VISIBLE_DEVICES $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT $CUDA_MPS_PIPE_DIRECTORY"'


@pytest.fixture
def mps() -> Iterator[FakeMps]:
    fake = FakeMps()
    yield fake
    fake.close()


@pytest.fixture
def mps_lab(host: GpuHost, mps: FakeMps) -> Iterator[GpuLab]:
    lab = host.lab(**mps.env())
    yield lab
    lab.close()  # before the fake ends its processes


def test_jobs_share_a_gpu_under_one_control_daemon(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    gate = host.gate()
    options = ("--share", "mps", "-M", "3G", "--gpu-ids", "0")
    jobs = [mps_lab.start(gate, *options, size=2 * GIB) for _ in range(3)]
    assert mps_lab.places(*jobs) == [[0], [0], [0]]
    assert mps.starts() == [host.uuids[0]]
    assert all(mps_lab.job(job)["under_mps"] for job in jobs)
    gpu = mps_lab.gpu(0)
    assert gpu["mps"]["state"] == "running"
    assert gpu["other_processes"] == []
    assert gpu["memory_used_bytes"] == 6 * GIB + 66 * MIB
    assert "MPS is running" in mps_lab.ok("gpus")
    gate.open()
    assert mps_lab.wait(*jobs) == 0


def test_job_finds_the_control_daemon_and_its_memory_limit_in_its_environment(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    job = mps_lab.submit("--share", "mps:50", "-M", "3G", "--gpu-ids", "1",
                         f"{_SHOW}; echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")  # fmt: skip
    plain = mps_lab.submit(
        "--share",
        "mps",
        "--gpu-ids",
        "0",
        "echo ${CUDA_MPS_PINNED_DEVICE_MEM_LIMIT-none}"
        " ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-none} $CUDA_MPS_LOG_DIRECTORY",
    )
    assert mps_lab.wait(job, plain) == 0
    (uuid, limit, pipe), (percent,) = (line.split() for line in mps_lab.log(job).splitlines())
    assert (uuid, limit, percent) == (host.uuids[1], "0=3072M", "50")
    assert pipe.startswith(str(mps.run)) and pipe.endswith("/pipe")
    limit, percent, log = mps_lab.log(plain).split()
    assert (limit, percent) == ("none", "none")
    assert log.startswith(str(mps.run))


def test_folder_of_mps_is_private(mps_lab: GpuLab, mps: FakeMps) -> None:
    assert mps_lab.wait(mps_lab.submit("--share", "mps", "true")) == 0
    folders = [mps.run, *(path for path in mps.run.glob("**/*") if path.is_dir())]
    assert len(folders) == 4
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_folder_that_others_can_open_is_not_used(mps_lab: GpuLab, mps: FakeMps) -> None:
    mps.run.mkdir(mode=0o755)
    mps.run.chmod(0o755)
    job = mps_lab.submit("--share", "mps", "true")
    assert mps_lab.wait(job) == 0
    assert "is not a private folder of this user" in mps_lab.ok("show", str(job))
    assert mps.starts() == []


def test_gpu_serves_jobs_of_one_mode_at_a_time(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    gate, late = host.gate(), host.gate("late")
    on_first = ("-M", "3G", "--gpu-ids", "0")
    under_mps = mps_lab.start(gate, "--share", "mps", *on_first)
    plain = mps_lab.submit(*on_first, late.wait)
    assert mps_lab.wait(mps_lab.submit("--gpus", "0", "true")) == 0
    assert mps_lab.state(plain) == "queued"
    reason = mps_lab.why(plain)
    assert "serves jobs under MPS, and this job does not use MPS" in reason
    gate.open()
    late.wait_for(1)
    assert not mps_lab.job(plain)["under_mps"]
    waits = mps_lab.submit("--share", "mps", *on_first, "true")
    assert mps_lab.wait(mps_lab.submit("--gpus", "0", "true")) == 0
    assert mps_lab.state(waits) == "queued"
    assert "serves jobs without MPS, and this job uses MPS" in mps_lab.why(waits)
    late.open()
    assert mps_lab.wait(under_mps, plain, waits) == 0


def test_mps_stops_when_a_job_without_it_uses_the_gpu(mps_lab: GpuLab, mps: FakeMps) -> None:
    assert mps_lab.wait(mps_lab.submit("--share", "mps", "--gpu-ids", "0", "true")) == 0
    assert mps.state()["state"] == "ready"
    assert mps_lab.wait(mps_lab.submit("--exclusive", "--gpu-ids", "0", "true")) == 0
    mps.wait_for("stopped")
    wait_until(lambda: mps.processes() == {}, what="MPS has ended")


def test_mps_stops_when_it_is_idle(host: GpuHost, mps: FakeMps) -> None:
    lab = host.lab(**mps.env(idle="0.2"))
    gate = host.gate()
    job = lab.start(gate, "--share", "mps", "--gpu-ids", "0")
    mps.wait_for("ready")
    gate.open()
    assert lab.wait(job) == 0
    mps.wait_for("stopped")
    wait_until(lambda: mps.processes() == {}, what="MPS has ended")
    assert lab.wait(lab.submit("--share", "mps", "--gpu-ids", "0", "true")) == 0
    assert len(mps.starts()) == 2


def test_idle_mps_with_clients_of_another_program_is_not_stopped(
    host: GpuHost, mps: FakeMps
) -> None:
    lab = host.lab(**mps.env(idle="0.1"))
    mps.set_clients(os.getpid())
    assert lab.wait(lab.submit("--share", "mps", "true")) == 0
    assert lab.wait(lab.submit("--share", "mps", "sleep 1")) == 0
    assert mps.state()["state"] == "ready"
    assert len(mps.starts()) == 1


def test_job_runs_with_time_slices_where_the_program_is_missing(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    mps.uninstall()
    job = mps_lab.submit("--share", "mps", "--gpu-ids", "0", f"{_SHOW}x")
    assert mps_lab.wait(job) == 0
    assert mps_lab.log(job) == "0  x\n"
    assert not mps_lab.job(job)["under_mps"]
    shown = mps_lab.ok("show", str(job))
    assert shown.count("MPS is not used: `nvidia-cuda-mps-control` is not on the PATH") == 1
    mps_lab.ok("gpus", "share", "mps", "0")
    assert "`nvidia-cuda-mps-control` is not on the PATH" in mps_lab.ok("gpus")
    assert "is not on the PATH" in mps_lab.run("doctor").stdout


def test_job_runs_with_time_slices_where_mps_fails(mps_lab: GpuLab, mps: FakeMps) -> None:
    mps.fail("An instance of this daemon is already running")
    jobs = [mps_lab.submit("--share", "mps", "-M", "1G", "true") for _ in range(2)]
    assert mps_lab.wait(*jobs) == 0
    why = "failed with exit code 1: An instance of this daemon is already running"
    assert why in mps_lab.ok("show", str(jobs[0]))
    assert why in mps_lab.ok("gpus")
    assert why in mps_lab.run("doctor").stdout
    assert mps.processes() == {}


def test_job_runs_with_time_slices_where_mps_hangs(mps_lab: GpuLab, mps: FakeMps) -> None:
    mps.hang()
    job = mps_lab.submit("--share", "mps", "--gpu-ids", "0", "true")
    wait_until(lambda: "monitor" in str(mps.processes()), what="the monitor runs")
    other = mps_lab.submit("--gpu-ids", "1", "true")  # the loop does not wait for MPS
    assert mps_lab.wait(other) == 0
    assert mps_lab.state(job) == "queued"
    assert "waits for MPS to start" in mps_lab.why(job) or mps_lab.wait(job) == 0
    assert mps_lab.wait(job) == 0
    assert "did not answer within 10 seconds" in mps_lab.ok("show", str(job))
    wait_until(lambda: mps.processes() == {}, what="nothing is left")


def test_job_runs_with_time_slices_where_no_server_starts(mps_lab: GpuLab, mps: FakeMps) -> None:
    mps.refuse_servers()
    job = mps_lab.submit("--share", "mps", "true")
    assert mps_lab.wait(job) == 0
    assert "MPS is not used: its server did not start" in mps_lab.ok("show", str(job))
    wait_until(lambda: mps.processes() == {}, what="nothing is left")


def test_job_that_fails_because_the_server_died_runs_again(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    gate, marker = host.gate(), mps_lab.folder / "second"
    command = f"if test -e {marker}; then exit 0; fi; touch {marker}; {gate.wait}; exit 3"
    job = mps_lab.submit("--share", "mps", command)
    gate.wait_for(1)
    first = mps.wait_for("ready")
    mps.kill(first["server"])
    wait_until(lambda: mps.state()["deaths"] == 1, what="the death is noticed")
    gate.open()
    assert mps_lab.wait(job) == 0
    assert mps_lab.job(job)["attempts"] == 2
    assert "its MPS server failed" in mps_lab.ok("show", str(job))
    assert mps.wait_for("ready")["server"] != first["server"]
    assert "it was restarted once" in mps_lab.ok("gpus")


def test_job_that_always_fails_after_the_death_of_its_server_is_retried_a_few_times(
    mps_lab: GpuLab, mps: FakeMps
) -> None:
    text = "CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server"
    job = mps_lab.submit("--share", "mps", f"echo '{text}' >&2; exit 1")
    assert mps_lab.wait(job) == 1
    assert (mps_lab.job(job)["attempts"], mps_lab.job(job)["cause"]) == (4, "mps_failed")


def test_failure_of_a_job_whose_server_lives_is_its_own(mps_lab: GpuLab, mps: FakeMps) -> None:
    job = mps_lab.submit("--share", "mps", "exit 3")
    assert mps_lab.wait(job) == 3
    assert (mps_lab.job(job)["attempts"], mps_lab.job(job)["cause"]) == (1, "exit")


def test_control_daemon_that_was_killed_is_started_again(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    gate = host.gate()
    job = mps_lab.start(gate, "--share", "mps", "-M", "1G", "--gpu-ids", "0")
    first = mps.wait_for("ready")
    mps.kill(first["control"])
    wait_until(lambda: len(mps.starts()) == 2, what="another control daemon")
    second = mps.wait_for("ready")
    assert second["control"] != first["control"]
    more = mps_lab.submit("--share", "mps", "-M", "1G", "--gpu-ids", "0", "true")
    assert mps_lab.wait(more) == 0
    gate.open()
    assert mps_lab.wait(job) == 0


def test_killed_monitor_is_replaced_and_adopts_the_control_daemon(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    gate = host.gate()
    job = mps_lab.start(gate, "--share", "mps", "-M", "1G", "--gpu-ids", "0")
    first = mps.wait_for("ready")
    mps.kill(first["monitor"])
    more = mps_lab.submit("--share", "mps", "-M", "1G", "--gpu-ids", "0", "true")
    assert mps_lab.wait(more) == 0
    second = mps.wait_for("ready")
    assert second["monitor"] != first["monitor"]
    assert (second["control"], len(mps.starts())) == (first["control"], 1)
    gate.open()
    assert mps_lab.wait(job) == 0


def test_mps_outlives_a_killed_daemon_and_serves_the_next(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    gate = host.gate()
    options = ("--share", "mps", "-M", "1G", "--gpu-ids", "0")
    job = mps_lab.start(gate, *options)
    pid = mps_lab.daemon_pid()
    mps_lab.kill_daemon()
    wait_until(lambda: mps_lab.daemon_pid() not in (None, pid), what="another daemon")
    more = mps_lab.start(gate, *options)
    assert mps_lab.job(job)["state"] == "running"
    plain = mps_lab.submit("-M", "1G", "--gpu-ids", "0", "true")
    assert "serves jobs under MPS" in mps_lab.why(plain)
    assert len(mps.starts()) == 1
    gate.open()
    assert mps_lab.wait(job, more, plain) == 0


def test_leftover_control_daemon_is_ended_by_the_next_daemon(host: GpuHost, mps: FakeMps) -> None:
    lab = host.lab(**mps.env(idle="0.2"))
    gate = host.gate()
    job = lab.start(gate, "--share", "mps", "--gpu-ids", "0")
    state = mps.wait_for("ready")
    mps.kill(state["monitor"])
    lab.kill_daemon()
    gate.open()
    assert lab.wait(job) == 0
    wait_until(lambda: mps.processes() == {}, what="the leftovers have ended")
    assert mps.state()["state"] == "stopped"


def test_mps_stops_with_the_daemon_once_its_jobs_have_ended(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    gate = host.gate()
    mps_lab.start(gate, "--share", "mps", "--gpu-ids", "0")
    mps_lab.ok("daemon", "stop")
    control = mps.state()["control"]
    assert control in mps.processes()  # the job still uses it
    gate.open()
    wait_until(lambda: mps.processes() == {}, what="MPS has ended")


def test_job_uses_mps_on_a_gpu_that_is_set_up_for_it(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    mps_lab.ok("gpus", "share", "mps", "0")
    first = mps_lab.submit("--gpu-ids", "0", "true")
    own = mps_lab.submit("--gpu-ids", "0", "--share", "time", "true")
    alone = mps_lab.submit("--gpu-ids", "0", "--exclusive", "true")
    other = mps_lab.submit("--gpu-ids", "1", "true")
    several = mps_lab.submit("--gpus", "2", "true")
    jobs = [first, own, alone, other, several]
    assert mps_lab.wait(*jobs) == 0
    assert [mps_lab.job(job)["under_mps"] for job in jobs] == [True, False, False, False, False]
    assert mps_lab.gpu(0)["share"] == "mps"
    mps_lab.ok("gpus", "share", "time", "0")
    last = mps_lab.submit("--gpu-ids", "0", "true")
    assert mps_lab.wait(last) == 0
    assert not mps_lab.job(last)["under_mps"]
    wait_until(lambda: mps.processes() == {}, what="MPS has ended")


def test_setting_makes_jobs_share_all_gpus_under_mps(host: GpuHost, mps: FakeMps) -> None:
    lab = host.lab(**mps.env(), STOKER_GPU_SHARE="mps")
    job = lab.submit("true")
    assert lab.wait(job) == 0
    assert lab.job(job)["under_mps"]
    lab.close()


def test_foreground_run_uses_mps(host: GpuHost, mps_lab: GpuLab, mps: FakeMps) -> None:
    out = mps_lab.ok("run", "--share", "mps", "-M", "2G", "--gpu-ids", "0", _SHOW)
    assert out.split()[:2] == [host.uuids[0], "0=2048M"]
    wait_until(lambda: mps.processes() == {}, what="MPS has ended")


def test_gpu_that_another_user_computes_on_is_not_used_with_mps(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    host.fake.change(host.uuids[0], used=5 * GIB)  # a process that is not listed
    waits = mps_lab.submit("--share", "mps", "-M", "1G", "--gpu-ids", "0", "true")
    assert mps_lab.wait(mps_lab.submit("-M", "1G", "--gpu-ids", "0", "true")) == 0
    assert mps_lab.state(waits) == "queued"
    assert "MPS serves the jobs of one user" in mps_lab.why(waits)
    host.fake.change(host.uuids[0], used=0)
    assert mps_lab.wait(waits) == 0
    assert CONTROL in str(mps.processes())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--share", "mps", "--exclusive"), "`--share mps` and `--exclusive` exclude each other"),
        (("--share", "mps", "--gpus", "2"), "`--share mps` is for jobs with one GPU"),
        (("--share", "mps", "--gpu-ids", "0,1"), "`--share mps` is for jobs with one GPU"),
        (("--share", "mps", "--gpus", "0"), "`--share` needs `--gpus` 1 or more"),
        (("--share", "mps:0"), "`mps:0` is not a way to share a GPU"),
        (("--share", "both"), "`both` is not a way to share a GPU"),
    ],
)
def test_impossible_ways_to_share_are_refused(
    gpu_lab: GpuLab, words: tuple[str, ...], text: str
) -> None:
    refused = gpu_lab.run("submit", *words, "true")
    assert refused.returncode == 2
    assert text in refused.stderr


def test_simulated_gpu_has_no_mps(host: GpuHost, mps: FakeMps) -> None:
    lab = host.lab(**mps.env(), STOKER_DEVICES="1")
    job = lab.submit("--share", "mps", "true")
    assert lab.wait(job) == 0
    assert "MPS is not used: the GPU is simulated" in lab.ok("show", str(job))


def test_monitor_that_is_asked_to_stop_waits_for_jobs(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    gate = host.gate()
    job = mps_lab.start(gate, "--share", "mps", "--gpu-ids", "0")
    os.kill(mps.wait_for("ready")["monitor"], signal.SIGTERM)
    more = mps_lab.submit("--gpus", "0", "true")
    assert mps_lab.wait(more) == 0
    assert mps.state()["state"] == "ready"
    gate.open()
    assert mps_lab.wait(job) == 0
    mps.wait_for("stopped")


def test_sweep_and_job_file_pass_the_option_to_their_jobs(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    sweep = mps_lab.folder / "sweep.toml"
    sweep.write_text(
        "command = 'echo {x}'\n[params]\nx = [1, 2]\n"
        "[resources]\nshare = 'mps'\ngpu_mem = '1G'\ngpu_ids = [0]\n"
    )
    mps_lab.ok("sweep", str(sweep))
    script = mps_lab.folder / "job.sh"
    script.write_text("#!/bin/sh\n#stoker --share mps:30 --gpu-ids 0 -M 1G\ntrue\n")
    mps_lab.ok("submit", str(script))
    assert mps_lab.wait() == 0
    jobs = json.loads(mps_lab.ok("ls", "--state", "all", "--json"))["jobs"]
    shares = sorted((job["share"], job["under_mps"]) for job in jobs)
    assert shares == [("mps", True), ("mps", True), ("mps:30", True)]


def test_job_that_is_submitted_by_a_job_under_mps_does_not_inherit_its_variables(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    inner = (
        f"{sys.executable} -m stoker submit --gpu-ids 1 'echo ${{CUDA_MPS_PIPE_DIRECTORY-none}}'"
    )
    outer = mps_lab.submit("--share", "mps", "--gpu-ids", "0", inner)
    assert mps_lab.wait(outer) == 0
    assert mps_lab.wait(outer + 1) == 0
    assert mps_lab.log(outer + 1) == "none\n"


def test_dry_run_shows_how_a_job_would_share_its_gpu(mps_lab: GpuLab) -> None:
    words = ("--dry-run", "--share", "mps", "true")
    assert "1 GPU, shared with MPS" in mps_lab.ok("submit", *words)
    shown = json.loads(mps_lab.ok("submit", "--json", *words))["dry_run"]
    assert shown[0]["share"] == "mps"


def test_action_of_gpus_needs_one_way_to_share(gpu_lab: GpuLab) -> None:
    for words in (("0",), ("mps", "time", "0"), ()):
        refused = gpu_lab.run("gpus", "share", *words)
        assert refused.returncode == 2
        assert "`stoker gpus share` needs one of mps and time" in refused.stderr
    assert "no GPU given" in gpu_lab.run("gpus", "share", "mps").stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_gpu_that_another_user_has_leased_is_not_used_with_mps(
    host: GpuHost, mps_lab: GpuLab, mps: FakeMps
) -> None:
    assert mps_lab.wait(mps_lab.submit("--gpu-ids", "1", "true")) == 0  # creates the lease folder
    claim = DeviceClaim(host.uuids[0], "face:01:00.0", False, 80 * GIB, 5 * GIB)
    ready, answer = os.pipe()
    child = os.fork()
    if not child:  # another user, who holds a part of the memory
        os.environ["STOKER_LEASE_DIR"] = mps_lab.env["STOKER_LEASE_DIR"]
        os.setresuid(65534, 0, 0)
        lease = try_take([claim])
        os.write(answer, b"1" if lease is not None else b"0")
        signal.pause()
    try:
        assert os.read(ready, 1) == b"1"
        waits = mps_lab.submit("--share", "mps", "-M", "1G", "--gpu-ids", "0", "true")
        assert mps_lab.wait(mps_lab.submit("-M", "1G", "--gpu-ids", "0", "true")) == 0
        assert mps_lab.state(waits) == "queued"
        assert "and MPS serves the jobs of one user" in mps_lab.why(waits)
        assert mps.starts() == []
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert mps_lab.wait(waits) == 0
    assert mps_lab.job(waits)["under_mps"]
