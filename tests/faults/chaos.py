"""A chaos run: difficult jobs under kills, suspends, full and read-only disks.

    python -m tests.faults.chaos --minutes 20 --seed 1

Needs root, because it mounts a small tmpfs in its own mount namespace. Every job appends its number
to a file outside of Stoker, exactly once. At the end, the database is compared with that file, and
the process table is searched for processes of ended jobs. Prints a summary; exits with 1 if a job
is missing, ran twice, has a wrong result, or is alive after its end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.lab import Lab, wait_until

STOKER = f"{shlex.quote(sys.executable)} -m stoker"
SIMPLE = f"{shlex.quote(sys.executable)} -m stoker.compat.simple_gpu_scheduler.main"
STATE_BYTES = 64 << 20
_FINAL = {"done", "failed", "cancelled", "lost"}


class Job:
    def __init__(self, number: int, kind: str, code: int, is_long: bool) -> None:
        self.number = number
        self.kind = kind
        self.code = code  # its exit code unless it is cancelled
        self.is_long = is_long  # sleeps until it is cancelled
        self.id: int | None = None
        self.cancels = 0
        self.args: list[str] = []


class Chaos:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.state = folder / "state"
        self.execution_log = folder / "executions"
        self.execution_log.touch()
        os.chmod(self.execution_log, 0o666)
        self.jobs: list[Job] = []
        self.faults: Counter[str] = Counter()
        self.filler: Path | None = None
        self.is_read_only = False
        self.lab = Lab(folder / "lab", devices=4)
        self.lab.state_dir = self.state
        self.lab.env["STOKER_STATE_DIR"] = str(self.state)
        self.lab.env["STOKER_GRACE"] = "0.5"

    # -- jobs ----------------------------------------------------------------------------------

    def _command(self, job: Job) -> str:
        """A shell command that writes its number, sleeps, and exits with its code."""
        sleep = f"sleep {self._seconds(job)}"
        mark = f"echo {job.number} >> {self.execution_log}"
        if job.kind == "nested run":
            return (
                f"{STOKER} run --log-dir {self.folder}/inner-{job.number} --devices 0"
                f" '{mark}; {sleep}; exit 0'; exit {job.code}"
            )
        if job.kind == "nested scheduler":
            return f"echo '{mark}; {sleep}' | {SIMPLE} --gpus 0 1; exit {job.code}"
        if job.kind == "su":
            return f"{mark}; su nobody -s /bin/sh -c '{sleep}'; exit {job.code}"
        if job.kind == "su becomes the job":
            return f"exec su nobody -s /bin/sh -c '{mark}; {sleep}; exit {job.code}'"
        if job.kind == "ulimit":
            return f"exec bash -c 'ulimit -x unlimited; {mark}; {sleep}; exit {job.code}'"
        if job.kind == "leftover":
            return f"{mark}; setsid sleep {self._marker(job)} & {sleep}; exit {job.code}"
        if job.kind == "ignores SIGTERM":
            return f"trap '' TERM; {mark}; {sleep}; exit {job.code}"
        return f"{mark}; {sleep}; exit {job.code}"

    def _seconds(self, job: Job) -> str:
        return self._marker(job) if job.is_long else f"{self.random.choice([0, 0.05, 0.3, 1]):.2f}"

    @staticmethod
    def _marker(job: Job) -> str:
        """A duration that identifies the job in the process table."""
        return f"3600.{job.number:06d}"

    def submit(self) -> None:
        kinds = ["plain", "plain", "plain", "nested run", "nested scheduler", "su",
                 "su becomes the job", "ulimit", "leftover", "ignores SIGTERM"]  # fmt: skip
        kind = self.random.choice(kinds)
        is_long = self.random.random() < 0.25
        code = self.random.choice([0, 0, 3])
        job = Job(number=len(self.jobs), kind=kind, code=code, is_long=is_long)
        job.args = ["--gpus", "0" if kind.startswith("nested") else "1", self._command(job)]
        self.jobs.append(job)
        done = self.lab.run("submit", "-q", "--dedupe", f"n{job.number}", *job.args)
        if done.returncode == 0 and done.stdout.strip().isdigit():
            job.id = int(done.stdout)

    def cancel(self) -> None:
        """Cancel a few long jobs; a second cancel kills them at once."""
        running = [job for job in self.jobs if job.is_long and job.id is not None]
        for job in self.random.sample(running, min(3, len(running))):
            flags = self.random.choice([["--now"], [], ["--grace", "30"]])
            if job.cancels:
                flags = ["--now"]
            job.cancels += 1
            self.lab.run("cancel", *flags, str(job.id))

    # -- faults --------------------------------------------------------------------------------

    def fault(self) -> None:
        kind = self.random.choices(
            ["daemon", "runner", "both", "stop", "read-only", "full", "none"],
            [5, 4, 1, 1, 1.5, 1.5, 3],
        )[0]
        self.faults[kind] += 1
        daemon, runner = self.lab.daemon_pid(), self.lab.runner_pid()
        if kind == "daemon":
            self._signal(daemon, signal.SIGKILL)
        elif kind == "runner":
            self._signal(runner, signal.SIGKILL)
        elif kind == "both":
            self._signal(daemon, signal.SIGSTOP)
            self._signal(runner, signal.SIGKILL)
            self._signal(daemon, signal.SIGKILL)
        elif kind == "stop":
            self._signal(daemon, signal.SIGSTOP)
            time.sleep(self.random.uniform(0.1, 1.0))
            self._signal(daemon, signal.SIGCONT)
        elif kind == "read-only":
            self._make_read_only()
        elif kind == "full":
            self._fill()

    def heal(self) -> None:
        if self.is_read_only:
            subprocess.run(["umount", "--lazy", self.state], check=True)
            self.is_read_only = False
        if self.filler is not None:
            self.filler.unlink(missing_ok=True)
            self.filler = None

    @staticmethod
    def _signal(pid: int | None, number: int) -> None:
        if pid is not None and pid > 1:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def _make_read_only(self) -> None:
        """Put a read-only mount of the same folder on top.

        Open files stay writable, because the kernel does not make a mount with open files
        read-only; files opened from now on are not.
        """
        # Made elsewhere and moved: a file opened for writing in between would keep it writable.
        aside = self.state.with_name("read-only")
        aside.mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", self.state, aside], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", aside], check=True)
        subprocess.run(["mount", "--move", aside, self.state], check=True)
        self.is_read_only = True

    def _fill(self) -> None:
        self.filler = self.state / "filler"
        try:
            with open(self.filler, "wb") as file:
                while True:
                    file.write(b"x" * 65536)
                    file.flush()
        except OSError:
            pass

    # -- the run -------------------------------------------------------------------------------

    def work(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        reported_at = 0.0
        while time.monotonic() < ends_at:
            for _ in range(self.random.randint(1, 4)):
                self.submit()
            self.fault()
            if self.random.random() < 0.5:
                self.cancel()
            time.sleep(self.random.uniform(0.0, 0.6))
            self.heal()
            if self.lab.daemon_pid() is None:
                self.lab.run("daemon", "start")
            if time.monotonic() > reported_at:
                reported_at = time.monotonic() + 30
                left = ends_at - time.monotonic()
                print(
                    f"{len(self.jobs)} jobs, {sum(self.faults.values())} faults, {left:.0f} s left"
                )

    def finish(self) -> None:
        """Without further faults, cancel the endless jobs and wait for the others."""
        self.heal()

        def have_ended() -> bool:
            if self.lab.daemon_pid() is None:
                self.lab.run("daemon", "start")
            rows = self._rows()
            alive = [job for job in self.jobs if job.id in rows
                     and rows[job.id]["state"] not in _FINAL]  # fmt: skip
            long = [str(job.id) for job in alive if job.is_long]
            if long:
                self.lab.run("cancel", "--now", *long)
            return not alive

        wait_until(have_ended, "all jobs have ended", 600)

    def _rows(self) -> dict[int, dict[str, Any]]:
        text = self.lab.ok("ls", "--state", "all", "-n", "1000000", "--json")
        return {row["id"]: row for row in json.loads(text)["jobs"]}

    def check(self) -> dict[str, list[str]]:
        """Descriptions of wrong jobs, by kind of error."""
        rows = self._rows()
        marks = Counter(int(line) for line in self.execution_log.read_text().split())
        alive = _sleepers()
        kinds = ("missing", "ran twice", "wrong", "alive", "lost")
        bad: dict[str, list[str]] = {kind: [] for kind in kinds}
        for job in self.jobs:
            if job.id is None:
                if marks[job.number] > 1:
                    bad["ran twice"].append(self._describe(job, None))
                continue
            row = rows.get(job.id)
            if row is None:
                bad["missing"].append(self._describe(job, row))
                continue
            if marks[job.number] > 1:
                bad["ran twice"].append(self._describe(job, row))
            if self._marker(job) in alive:
                bad["alive"].append(self._describe(job, row))
            if row["state"] == "lost":
                bad["lost"].append(self._describe(job, row))
            elif not self._is_correct(job, row, marks[job.number]):
                bad["wrong"].append(self._describe(job, row))
        return bad

    @staticmethod
    def _is_correct(job: Job, row: dict[str, Any], marks: int) -> bool:
        if job.is_long:
            return bool(row["state"] == "cancelled")
        state = "failed" if job.code else "done"
        return (row["state"], row["exit_code"], marks) == (state, job.code, 1)

    def _describe(self, job: Job, row: dict[str, Any] | None) -> str:
        seen = {} if row is None else {key: row[key] for key in ("state", "exit_code", "cause")}
        return f"job {job.id} (number {job.number}, {job.kind}, long={job.is_long}): {seen}"


def _sleepers() -> set[str]:
    """The durations of all `sleep 3600.NUMBER` processes on the host."""
    found = set()
    for entry in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep") and len(words) > 1 and words[1].startswith(b"3600."):
            found.add(words[1].decode())
    return found


def run(folder: Path, minutes: float, seed: int) -> int:
    (folder / "state").mkdir()
    (folder / "lab").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STATE_BYTES},mode=0700", "tmpfs",
                    folder / "state"], check=True)  # fmt: skip
    os.chmod(folder, 0o755)
    chaos = Chaos(folder, seed)
    started = time.monotonic()
    try:
        chaos.work(minutes * 60)
        chaos.finish()
        bad = chaos.check()
    finally:
        chaos.heal()
        print((chaos.state / "daemon.log").read_text()[-3000:])
        chaos.lab.close()
    acknowledged = sum(job.id is not None for job in chaos.jobs)
    print(f"{time.monotonic() - started:.0f} s, {acknowledged} jobs, faults: {dict(chaos.faults)}")
    for name, jobs in bad.items():
        print(f"{name}: {len(jobs)}")
        for text in jobs[:20]:
            print(f"  {text}")
    return int(any(jobs for name, jobs in bad.items() if name != "lost"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        sys.exit(run(Path(options.inside), options.minutes, options.seed))
    folder = tempfile.mkdtemp(prefix="stoker-chaos-")
    try:
        done = subprocess.run(
            ["unshare", "--mount", sys.executable, "-u", "-m", "tests.faults.chaos", "--inside",
             folder, "--minutes", str(options.minutes), "--seed", str(options.seed)],
            check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
