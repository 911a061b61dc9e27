"""Progress while Python code waits for jobs: on a terminal, in a notebook, or not at all."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stoker.python.api import submit
from stoker.python.executor import Executor
from stoker.python.wait import as_completed, wait
from tests.helpers import Gate
from tests.lab import Lab
from tests.python import job_functions

CLEAR = "\r\x1b[K"
SCRIPT = """
import stoker

def work(path):
    import os, time
    stoker.report_progress(2, 4, "epoch 1")
    while not os.path.exists(path):
        time.sleep(0.02)

train = stoker.job(work, gpus=0)
print(len(train.map([])))
"""


class PythonOnTerminal:
    """A Python program whose stderr is a terminal, or a pipe; its stdout is a pipe."""

    def __init__(self, lab: Lab, text: str, *, is_terminal: bool = True) -> None:
        self._ours, theirs = pty.openpty() if is_terminal else os.pipe()
        if is_terminal:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        script = lab.folder / "script.py"
        script.write_text(SCRIPT + text)
        self._process = subprocess.Popen(
            [sys.executable, str(script)], cwd=lab.folder, env={**lab.env, "TERM": "xterm"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, text=True,
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def read_until(self, text: str) -> None:
        while text not in self.text:
            assert self._read(), f"no `{text}` in {self.text!r}"

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # EIO: the program has ended
            return False
        self.text += data.decode()
        return bool(data)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def close(self) -> str:
        """Read until the end and return stdout."""
        while self._read():
            pass
        os.close(self._ours)
        out, _ = self._process.communicate()
        assert self._process.returncode == 0, self.text
        return out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("stoker.wait(train.map([GATE, GATE]))", "0 of 2 jobs finished, 2 running, ETA "),
        ("[job.result() for job in train.map([GATE, GATE])]", "0 of 2 jobs finished, 2 running"),
        ("train.submit(GATE).result()", "job 1 running: epoch 1 2/4 (50%), ETA "),
        (
            "with stoker.Executor(gpus=0) as executor:\n    list(executor.map(work, [GATE, GATE]))",
            "0 of 2 jobs finished, 2 running",
        ),
        ("train.sweep({'path': [GATE]}).wait()", "job 1 running: epoch 1 2/4 (50%)"),
    ],
    ids=["wait", "results of map", "one job", "executor", "sweep"],
)
def test_terminal_shows_progress_while_python_waits(here: Lab, text: str, line: str) -> None:
    gate = Gate(here.folder)
    program = PythonOnTerminal(here, text.replace("GATE", repr(str(gate.path))))
    program.read_until(line)
    gate.open()
    program.close()
    assert program.text.endswith(CLEAR)


def test_interrupted_wait_says_that_the_jobs_continue(here: Lab) -> None:
    gate = Gate(here.folder)
    path = repr(str(gate.path))
    program = PythonOnTerminal(
        here,
        f"job = train.submit({path})\ntry:\n    job.wait()\nexcept KeyboardInterrupt:\n"
        "    print(job.running())\n",
    )
    program.read_until("job 1 running")
    program.interrupt()
    program.read_until(f"{CLEAR}interrupted: the jobs continue; `cancel()` stops them")
    assert program.close().endswith("True\n")
    gate.open()


def test_line_is_cleared_before_a_finished_job_is_yielded(here: Lab) -> None:
    gate = Gate(here.folder)
    program = PythonOnTerminal(
        here,
        f"for job in stoker.as_completed(train.map([{str(gate.path)!r}])):\n"
        "    import sys; print('finished', file=sys.stderr)\n",
    )
    program.read_until("job 1 running")
    gate.open()
    program.close()
    assert f"{CLEAR}finished" in program.text


def test_nothing_is_shown_without_a_terminal_or_with_progress_false(
    here: Lab, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    job = submit("sleep 0.8", gpus=0)
    wait([job], progress=False)
    assert [one.wait(progress=False) for one in as_completed([job], progress=False)] == [True]
    with Executor(gpus=0, progress=False) as executor:
        assert executor.submit(job_functions.double, 2).result() == 4
    assert "[" not in capfd.readouterr().err


def test_progress_true_prints_lines_without_a_terminal(here: Lab) -> None:
    gate = Gate(here.folder)
    text = f"train.submit({str(gate.path)!r}).wait(progress=True)"
    program = PythonOnTerminal(here, text, is_terminal=False)
    program.read_until("job 1 ")
    gate.open()
    program.close()
    assert program.text.splitlines()[-1] == "[####################] job 1 done"
    assert "\r" not in program.text


def test_report_progress_replaces_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import stoker

    stoker.report_progress(1, 2)  # outside a job: nothing happens
    path = tmp_path / "progress"
    monkeypatch.setenv("STOKER_PROGRESS_FILE", str(path))
    stoker.report_progress(1000, 2000, "a long\ntext")
    assert path.read_text() == "a long text 1000/2000\n"
    stoker.report_progress(7)
    assert path.read_text() == "7\n"


@contextmanager
def kernel(env: dict[str, str], folder: Path) -> Iterator[Callable[[str], Iterator[Any]]]:
    """A real notebook kernel: a function that runs a cell and yields the messages of its output."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager._kernel_spec = KernelSpec(argv=command, display_name="test", language="python")
    manager.start_kernel(env=env, cwd=str(folder), stderr=subprocess.DEVNULL)
    client = manager.client()
    client.start_channels()

    def run(cell: str) -> Iterator[Any]:
        client.execute(cell)
        while True:
            message = client.get_iopub_msg()
            yield message
            is_idle = message["content"].get("execution_state") == "idle"
            if is_idle and message["parent_header"].get("msg_type") == "execute_request":
                return

    try:
        client.wait_for_ready()
        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.filterwarnings("default")  # of the packages of Jupyter
def test_notebook_shows_progress_in_the_output_of_the_cell(here: Lab) -> None:
    gate = Gate(here.folder)
    cell = f"import stoker\nstoker.submit({gate.wait!r}, gpus=0).wait()"
    env = {**here.env, "JUPYTER_RUNTIME_DIR": str(here.folder), "IPYTHONDIR": str(here.folder)}
    with kernel(env, here.folder) as run:
        texts = []
        for message in run(cell):
            assert message["msg_type"] not in ("stream", "error")
            if message["msg_type"] in ("display_data", "update_display_data"):
                texts.append((message["msg_type"], message["content"]["data"]["text/plain"]))
                gate.open()
    assert texts[0][0] == "display_data" and "] job 1 " in texts[0][1]
    assert texts[-1] == ("update_display_data", "[####################] job 1 done")
