"""Run programs with a time limit, and end all their processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

Command = Sequence[str | Path]


class ToolError(Exception):
    """A tool failed; the text contains the end of its output."""


def start(
    command: Command,
    environ: Mapping[str, str],
    *,
    folder: Path,
    stdin: Path | None = None,
    output: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in its own session, so that all its children can be killed with it."""
    with contextlib.ExitStack() as files:
        source = files.enter_context((stdin or Path(os.devnull)).open("rb"))
        sink = files.enter_context((output or Path(os.devnull)).open("ab"))
        return subprocess.Popen(
            [str(word) for word in command],
            env=dict(environ),
            cwd=folder,
            stdin=source,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end(child: subprocess.Popen[bytes], grace: float = 5.0) -> None:
    """Send SIGTERM to the process group, then SIGKILL after `grace` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace)


def run(
    command: Command,
    environ: Mapping[str, str],
    *,
    folder: Path,
    stdin: Path | None = None,
    timeout: float = 60.0,
) -> None:
    """Run a program to its end; raises ToolError on a timeout or a nonzero exit code."""
    output = folder / "output"
    child = start(command, environ, folder=folder, stdin=stdin, output=output)
    try:
        code = child.wait(timeout)
    except subprocess.TimeoutExpired:
        raise ToolError(f"{command[0]}: not finished after {timeout:.0f} s") from None
    finally:
        end(child)
    if code != 0:
        raise ToolError(f"{command[0]}: exit code {code}: {output_tail(output)}")


def output_tail(output: Path, count: int = 3) -> str:
    """The last lines of an output file, for error messages."""
    lines = output.read_text(errors="replace").split("\n") if output.exists() else []
    tail = [line.strip() for line in lines if line.strip()][-count:]
    return " / ".join(tail) or "no output"


def answer(command: Command, environ: Mapping[str, str] | None = None) -> str | None:
    """The output of a short program, or None if it cannot run or fails."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            env=None if environ is None else dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout or done.stderr).strip() if done.returncode == 0 else None


def wall_ms(command: Command, environ: Mapping[str, str], folder: Path) -> float:
    """Milliseconds from starting a short program to its exit."""
    began = time.perf_counter()
    child = start(command, environ, folder=folder)
    code = child.wait()
    spent = (time.perf_counter() - began) * 1000
    if code != 0:
        raise ToolError(f"{' '.join(map(str, command))}: exit code {code}")
    return spent


def memory_kib(pid: int, field: str = "VmRSS") -> int | None:
    """Memory of a process (VmRSS: current, VmHWM: peak); None if it does not exist."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    for line in status.splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return None
