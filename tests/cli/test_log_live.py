"""`stoker log -f` with unfinished and very long lines, and logs without output."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cli.helpers import as_json
from tests.helpers import Gate
from tests.lab import Lab, wait_until

# A progress bar as tqdm draws it: every version begins with a carriage return.
BAR = (
    "printf '\\r 10%%|#   |'; {first}; printf '\\r 50%%|##  |'; {second};"
    " printf '\\r100%%|####|\\n'"
)


class Output:
    """What a process has printed so far, read without blocking."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self.data = b""

    def has(self, text: bytes) -> bool:
        try:
            while piece := os.read(self._descriptor, 4096):
                self.data += piece
        except OSError:  # nothing now, or the terminal was closed
            pass
        return text in self.data


def test_progress_bar_is_redrawn_in_place_on_a_terminal(lab: Lab) -> None:
    first, second = Gate(lab.folder, "first"), Gate(lab.folder, "second")
    job = lab.submit("echo start; " + BAR.format(first=first.wait, second=second.wait))
    ours, theirs = pty.openpty()
    follow = subprocess.Popen(
        [*lab.command, "log", "-f", str(job)], env=lab.env | {"TERM": "xterm"}, cwd=lab.folder,
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    output = Output(ours)
    wait_until(lambda: output.has(b"start\r\n 10%|#   |"))
    first.open()
    wait_until(lambda: output.has(b" 10%|#   |\r\x1b[J 50%|##  |"))
    second.open()
    wait_until(lambda: output.has(b" 50%|##  |\r\x1b[J100%|####|\r\n"))
    assert follow.wait() == 0
    os.close(ours)


def test_long_progress_bar_is_cut_to_the_width_of_the_terminal(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(f"printf '\\r%0200d' 7; {gate.wait}; echo")
    ours, theirs = pty.openpty()
    follow = subprocess.Popen(
        [*lab.command, "log", "-f", str(job)], env=lab.env | {"TERM": "xterm", "COLUMNS": "40"},
        cwd=lab.folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    output = Output(ours)
    wait_until(lambda: output.has(b"0" * 36 + b"..."))
    assert b"0" * 40 not in output.data
    gate.open()
    wait_until(lambda: output.has(b"0" * 199 + b"7\r\n"))
    assert follow.wait() == 0
    os.close(ours)


def test_progress_bar_is_shown_in_a_pipe_before_it_ends(lab: Lab) -> None:
    first = Gate(lab.folder, "first")
    job = lab.submit("echo start; " + BAR.format(first=first.wait, second=":"))
    follow = lab.popen("log", "-f", str(job))
    assert follow.stdout is not None
    assert follow.stdout.readline() == "start\n"
    assert follow.stdout.readline() == " 10%|#   |\n"
    first.open()
    out, _ = follow.communicate()
    assert out == "100%|####|\n"


def test_growing_line_is_printed_in_a_pipe_immediately(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(f"printf 'loading ...'; {gate.wait}; echo ' done'; echo end")
    follow = lab.popen("log", "-f", str(job))
    assert follow.stdout is not None
    output = Output(follow.stdout.fileno())
    wait_until(lambda: output.has(b"loading ..."))
    assert output.data == b"loading ..."
    gate.open()
    wait_until(lambda: output.has(b"end\n"))
    assert output.data == b"loading ... done\nend\n"
    assert follow.wait() == 0
    for stream in (follow.stdout, follow.stderr):
        assert stream is not None
        stream.close()


def test_log_of_one_huge_line_needs_little_memory(lab: Lab) -> None:
    out = lab.folder / "out"
    job = lab.submit("-o", str(out), "true")
    assert lab.wait(job) == 0
    with open(out, "wb") as file:
        for number in range(64):
            file.write(b"%01048576d" % number)
        file.write(b"the end\n")
    for words in (("-n", "1"), ("--json",), ()):
        script = (
            "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, *lab.command, "log", *words, str(job)],
            env=lab.env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "the end" in done.stdout[-20:]
        assert "characters of this line omitted ..." in done.stdout[:200]
        assert len(done.stdout) < 1_100_000
        assert int(done.stderr) < 64 << 10, words  # kB


def test_log_limit_holds_for_a_job_that_ends_at_once(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1, STOKER_LOG_LIMIT="1M")
    job = lab.submit("yes flood | head -c 30000000; echo end")
    assert lab.wait(job) == 0
    path = Path(lab.ok("log", "--path").strip())
    assert path.stat().st_blocks * 512 <= (1 << 20) + 65536
    assert lab.log(job).endswith("end\n")


def test_log_limit_holds_for_a_foreground_job_that_ends_at_once(lab: Lab) -> None:
    (lab.folder / "jobs").write_text("yes flood | head -c 30000000\n")
    lab.ok("run", "--log-dir", "logs", "jobs", STOKER_LOG_LIMIT="1M")
    logs = [path for path in (lab.folder / "logs").rglob("*.log") if path.stat().st_size]
    assert [path.stat().st_blocks * 512 <= (1 << 20) + 65536 for path in logs] == [True]


def test_job_that_printed_nothing_leaves_no_file_and_log_says_so(lab: Lab) -> None:
    quiet, loud, failed = lab.submit("true"), lab.submit("echo x"), lab.submit("exit 3")
    lab.wait()
    folder = lab.state_dir / "jobs" / "0"
    assert sorted(path.name for path in folder.iterdir()) == ["2-1.log", "no-output"]
    assert (folder / "no-output").read_text() == "1-1.log\n3-1.log\n"
    assert lab.log(loud) == "x\n"
    for job in (quiet, failed):
        done = lab.run("log", str(job))
        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            "",
            f"job {job} printed nothing\n",
        )
        assert as_json(lab.ok("log", "--json", str(job)))["lines"] == []
        assert lab.run("log", "-f", str(job)).returncode == 0
    lab.ok("rm", "1", "2", "3")
    assert not list(folder.glob("*.log"))


def test_running_job_that_has_not_printed_yet_can_be_followed(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit(f"{gate.wait}; echo late")
    gate.wait_for()
    follow = lab.popen("log", "-f", str(job))
    gate.open()
    assert follow.communicate()[0] == "late\n"


def test_log_of_a_process_that_may_still_write_is_kept(lab: Lab) -> None:
    gate = Gate(lab.folder)
    job = lab.submit("--keep-children", f"({gate.wait}; echo late) & exit 0")
    assert lab.wait(job) == 0
    gate.wait_for()
    gate.open()
    wait_until(lambda: lab.log(job) == "late\n")


def test_empty_log_is_distinguished_from_a_removed_one_after_a_crash(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(devices=1)
    once = lab.folder / "once"
    once.touch()
    point = "runner.before_empty_log_removal:1"
    lab.env |= {"STOKER_FAILPOINT": point, "STOKER_FAILPOINT_ONCE": str(once)}
    job = lab.submit("true")
    lab.wait(job)
    assert not once.exists()
    assert lab.run("log", str(job)).stderr == f"job {job} printed nothing\n"
    assert lab.wait(lab.submit("exit 3")) == 3


def test_output_to_dev_null_has_no_log(lab: Lab) -> None:
    job = lab.submit("-o", "/dev/null", "echo x")
    assert lab.wait(job) == 0
    done = lab.run("log", str(job))
    assert done.returncode == 1 and "the output of job 1 was sent to /dev/null" in done.stderr
