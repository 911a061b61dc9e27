"""Processes that have lost every other link to their job, in its first instant.

Cgroups find all of them. Without cgroups, those are found that write to the log of a job, or that
no other job can have started.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.engine.supervisor.job_cgroups import JobCgroups
from tests.helpers import is_alive
from tests.lab import Lab, wait_until

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="su and mount namespaces need root")
# Each becomes an orphan in its own session, without the tag and the environment of its job.
FORMS = {
    "prlimit": "/bin/sh -c \"exec prlimit --locks=unlimited setsid env -i /bin/sh -c '{} &'\"",
    "su": "su - nobody -s /bin/sh -c 'ulimit -x unlimited; setsid {} &'",
    "runuser": "runuser -l nobody -s /bin/sh -c 'ulimit -x unlimited; setsid {} &'",
}
SILENT = " >/dev/null 2>&1 </dev/null"
KINDS = [
    "prlimit", pytest.param("su", marks=needs_root), pytest.param("runuser", marks=needs_root),
]  # fmt: skip


@pytest.fixture
def cgroups(tmp_path: Path) -> None:
    made = JobCgroups.create(str(tmp_path), 0xFA1AFE1)
    is_possible = (tmp_path / "cgroups").exists()
    made.close()
    if not is_possible:
        pytest.skip("this user cannot create cgroups here (needs a delegated cgroup v2, or root)")


@pytest.fixture
def no_cgroups(lab: Lab) -> None:
    """Start the daemon where no cgroup is mounted."""
    script = 'umount --all --lazy --types cgroup2 && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh"]
    subprocess.run(
        [*command, sys.executable, "-m", "stoker", "daemon", "start"], env=lab.env, check=True
    )
    assert not (lab.state_dir / "cgroups").exists()


@pytest.fixture
def place() -> Iterator[Path]:
    """A world-writable folder, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="stoker-lost-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def _lost(place: Path, form: str, output: str = SILENT) -> tuple[str, Path]:
    """(command that starts a process without a link to its job, file with its PID)"""
    file, script = place / "pid", place / "sleep.sh"
    script.write_text(f"echo $$ > {file}.new; mv {file}.new {file}; exec sleep 300\n")
    return FORMS[form].format(f"/bin/sh {script}") + output, file


def _pid(file: Path) -> int:
    wait_until(file.exists)
    return int(file.read_text())


@pytest.mark.usefixtures("cgroups")
@pytest.mark.parametrize("form", KINDS)
def test_cancel_kills_a_process_that_is_known_only_by_its_cgroup(
    lab: Lab, place: Path, form: str
) -> None:
    other = lab.submit("--gpus", "0", "sleep 300")
    command, file = _lost(place, form)
    job = lab.submit("--gpus", "0", f"{command}\nsleep 300")
    pid = _pid(file)
    assert is_alive(pid)
    lab.ok("cancel", "--now", str(job))
    lab.wait(job)
    assert lab.state(job) == "cancelled"
    assert not is_alive(pid)
    lab.wait_until(lambda: lab.state(other) == "running")


@pytest.mark.usefixtures("cgroups")
@pytest.mark.parametrize("form", KINDS)
def test_end_of_a_job_kills_a_process_that_is_known_only_by_its_cgroup(
    lab: Lab, place: Path, form: str
) -> None:
    other = lab.submit("--gpus", "0", "sleep 300")
    command, file = _lost(place, form)
    job = lab.submit("--gpus", "0", f"{command}\nuntil test -e {file}; do sleep 0.01; done")
    assert lab.wait(job) == 0
    assert not is_alive(_pid(file))
    lab.wait_until(lambda: lab.state(other) == "running")


@pytest.mark.usefixtures("cgroups")
def test_daemon_kills_a_process_that_is_known_only_by_its_cgroup_after_the_runner_died(
    lab: Lab, place: Path
) -> None:
    command, file = _lost(place, "prlimit")
    job = lab.submit("--gpus", "0", f"{command}\nsleep 300")
    pid = _pid(file)
    runner = lab.runner_pid()
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: lab.runner_pid() not in (None, runner))
    lab.wait_until(lambda: lab.state(job) == "running")
    lab.ok("cancel", "--now", str(job))
    lab.wait(job)
    assert not is_alive(pid)


@pytest.mark.usefixtures("cgroups")
def test_process_that_is_replaced_by_another_every_moment_does_not_outlive_its_job(
    lab: Lab,
) -> None:
    file = lab.folder / "links"
    chain = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN)\n"
        f"file = os.open({str(file)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "while True:\n"
        "    time.sleep(0.001)\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid(); os.write(file, b'.')"
    )
    command = f"{sys.executable} -S -c {shlex.quote(chain)} &"
    for _ in range(3):
        job = lab.submit("--gpus", "0", f"{command} until test -s {file}; do sleep 0.01; done")
        assert lab.wait(job) == 0
        links = file.stat().st_size
        assert lab.state(job) == "done"
        assert file.stat().st_size == links
        file.unlink()


@pytest.mark.usefixtures("cgroups")
def test_cgroups_of_ended_jobs_are_removed(lab: Lab) -> None:
    jobs = [lab.submit("--gpus", "0", "grep stoker- /proc/self/cgroup")]
    jobs.append(lab.submit("--gpus", "0", "--", "/no/such/program"))
    assert lab.wait(jobs[0]) == 0
    assert lab.wait(jobs[1]) != 0
    assert lab.log(jobs[0]).strip().endswith(".jobs/1")
    place = Path((lab.state_dir / "cgroups").read_text().split()[-1])
    wait_until(lambda: [path.name for path in place.iterdir() if path.is_dir()] == ["runner"])
    lab.ok("daemon", "stop")
    wait_until(lambda: not place.exists())


@pytest.mark.usefixtures("cgroups")
def test_job_of_a_fork_server_is_in_its_own_cgroup(lab: Lab) -> None:
    code = "print(open('/proc/self/cgroup').read())"
    job = lab.submit("--gpus", "0", "--warm", "--", sys.executable, "-c", code)
    assert lab.wait(job) == 0
    assert lab.log(job).strip().endswith(".jobs/1")


@needs_root
@pytest.mark.usefixtures("no_cgroups")
@pytest.mark.parametrize("form", ["prlimit", "su", "runuser"])
def test_process_that_writes_to_the_log_of_its_job_is_killed_without_cgroups(
    lab: Lab, place: Path, form: str
) -> None:
    other = lab.submit("--gpus", "0", "sleep 300")
    command, file = _lost(place, form, output="")
    job = lab.submit("--gpus", "0", f"{command}\nsleep 300")
    pid = _pid(file)
    lab.ok("cancel", "--now", str(job))
    lab.wait(job)
    assert not is_alive(pid)
    lab.wait_until(lambda: lab.state(other) == "running")


@needs_root
@pytest.mark.usefixtures("no_cgroups")
def test_lost_process_is_killed_with_the_last_job_that_can_have_started_it(
    lab: Lab, place: Path
) -> None:
    other = lab.submit("--gpus", "0", "sleep 300")
    command, file = _lost(place, "prlimit")
    job = lab.submit("--gpus", "0", f"{command}\nuntil test -e {file}; do sleep 0.01; done")
    later = lab.submit("--gpus", "0", "--after", str(job), "sleep 300")
    assert lab.wait(job) == 0
    lab.wait_until(lambda: lab.state(later) == "running")
    pid = _pid(file)
    assert is_alive(pid)  # of `job` or `other`
    lab.ok("cancel", "--now", str(other))
    lab.wait(other)
    assert not is_alive(pid)
    lab.wait_until(lambda: lab.state(later) == "running")


@needs_root
@pytest.mark.usefixtures("no_cgroups")
def test_lost_process_of_a_job_with_keep_children_is_kept(lab: Lab, place: Path) -> None:
    command, file = _lost(place, "prlimit")
    job = lab.submit(
        "--gpus", "0", "--keep-children",
        f"{command}\nuntil test -e {file}; do sleep 0.01; done",
    )  # fmt: skip
    assert lab.wait(job) == 0
    assert lab.wait(lab.submit("--gpus", "0", "true")) == 0
    pid = _pid(file)
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
