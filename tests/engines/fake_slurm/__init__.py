"""Fake programs of Slurm, for errors and outputs that a real cluster does not give on demand.

    fake.answer("squeue", stdout="12|12_0|RUNNING\\n")
    fake.answer("squeue", stderr=errors.CONTROLLER_DOWN, code=1, times=1)   # once, then as before
    fake.answer("scontrol", "show", "config", hang=True)                    # only for these words

    program.run(env=os.environ | fake.environment())
    assert fake.calls("squeue")[0].argv == ["--me", "-h"]

The newest answer that fits is given. A program without an answer fails with exit code 99.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("sbatch", "squeue", "sinfo", "scontrol", "sacct", "scancel", "srun", "sacctmgr")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a fake program. `script` is what sbatch would submit, None without a script."""

    program: str
    argv: list[str]
    env: dict[str, str]
    script: str | None
    pid: int


class FakeSlurm:
    """A folder with fake programs for PATH, their answers and a record of their calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir(parents=True)
        (folder / "answers.json").write_text("[]")
        (folder / "calls").touch()
        source = Path(__file__).with_name("program.py").read_text()
        for program in PROGRAMS:
            path = folder / "bin" / program
            path.write_text(f"#!{sys.executable} -IS\n{source}")
            path.chmod(0o755)

    def environment(self) -> dict[str, str]:
        """The variable that puts these programs before real ones; add it to an environment."""
        return {"PATH": f"{self._folder}/bin:{os.environ['PATH']}"}

    def answer(
        self,
        program: str,
        *words: str,
        stdout: str = "",
        stderr: str = "",
        code: int = 0,
        hang: bool = False,
        until: Path | None = None,
        times: int | None = None,
    ) -> None:
        """Declare what a program prints and its exit code, from now on or a number of times.

        words -- the answer is only for calls with all of these arguments
        hang -- the program never ends by itself
        until -- it answers when this file exists
        """
        assert program in PROGRAMS, program
        answer = {
            "program": program,
            "words": words,
            "stdout": stdout,
            "stderr": stderr,
            "code": code,
            "until": "/nonexistent" if hang else str(until or ""),
            "times": times,
        }
        with self._answers() as answers:
            answers.insert(0, answer)

    @contextmanager
    def _answers(self) -> Iterator[list[dict[str, object]]]:
        with open(self._folder / "answers.json", "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            answers = json.load(file)
            yield answers
            file.seek(0)
            file.truncate()
            json.dump(answers, file)

    def calls(self, program: str | None = None) -> list[Call]:
        """The calls so far, oldest first."""
        rows = (self._folder / "calls").read_text("utf-8").splitlines()
        calls = [Call(**json.loads(row)) for row in rows]
        return [call for call in calls if program in (None, call.program)]

    def close(self) -> None:
        """Kill the programs that still hang."""
        for call in self.calls():
            try:
                if os.fsencode(self._folder) in Path(f"/proc/{call.pid}/cmdline").read_bytes():
                    os.kill(call.pid, signal.SIGKILL)
            except OSError:
                continue
