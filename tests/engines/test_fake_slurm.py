"""The fake programs of Slurm answer as declared and record their calls."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.engines.fake_slurm import FakeSlurm, errors
from tests.engines.slurm_cluster import SlurmCluster
from tests.helpers import is_alive
from tests.lab import wait_until


def run(
    fake: FakeSlurm, *argv: str, input: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    words = ["env", *argv]  # looks the program up in the new PATH
    env = os.environ | fake.environment() | env
    return subprocess.run(words, env=env, input=input, capture_output=True, text=True)


def test_fake_program_gives_the_newest_answer_that_fits(fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("squeue", stdout="always\n")
    fake_slurm.answer("squeue", "-r", stdout="with -r\n")
    fake_slurm.answer("squeue", stderr=errors.CONTROLLER_DOWN, code=1, times=1)
    first = run(fake_slurm, "squeue")
    assert (first.returncode, first.stderr) == (1, errors.CONTROLLER_DOWN)
    assert run(fake_slurm, "squeue", "-h", "-r").stdout == "with -r\n"
    assert run(fake_slurm, "squeue").stdout == "always\n"


def test_fake_program_without_an_answer_fails(fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("squeue")
    assert run(fake_slurm, "sinfo").returncode == 99


def test_calls_of_fake_programs_are_recorded(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    fake_slurm.answer("sbatch", stdout="7\n")
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\ntrue\n")
    run(fake_slurm, "sbatch", "--parsable", str(script), SLURM_CONF="x")
    run(fake_slurm, "sbatch", "--parsable", input="#!/bin/sh\nfalse\n")
    first, second = fake_slurm.calls("sbatch")
    assert first.argv == ["--parsable", str(script)]
    assert first.env["SLURM_CONF"] == "x"
    assert (first.script, second.script) == ("#!/bin/sh\ntrue\n", "#!/bin/sh\nfalse\n")
    assert fake_slurm.calls("squeue") == []


def test_fake_program_that_hangs_ends_with_the_test(fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("squeue", hang=True)
    words = ["env", "squeue"]
    with subprocess.Popen(words, env=os.environ | fake_slurm.environment()):
        wait_until(fake_slurm.calls, what="the call")
        pid = fake_slurm.calls()[0].pid
        assert is_alive(pid)
        fake_slurm.close()
    assert not is_alive(pid)


def test_fake_program_answers_when_a_file_exists(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    file = tmp_path / "now"
    fake_slurm.answer("scancel", stderr="late", until=file)
    words, env = ["env", "scancel"], os.environ | fake_slurm.environment()
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as program:
        wait_until(fake_slurm.calls, what="the call")
        assert program.poll() is None
        file.touch()
        assert program.communicate()[1] == "late"


REFUSALS = [
    (errors.NOT_AVAILABLE, "--gpus-per-node=5"),
    (errors.TOO_MUCH_MEMORY, "--mem=100G"),
    (errors.TOO_MANY_CPUS, "--cpus-per-task=9"),
    (errors.INVALID_PARTITION, "--partition=nope"),
    (errors.INVALID_FEATURE, "--constraint=nope"),
    (errors.INVALID_NODE, "--nodelist=nope"),
    (errors.INVALID_ARRAY, "--array=0-1001"),
    (errors.INVALID_TIME, "--time=soon"),
    (errors.UNKNOWN_OPTION, "--nonsense"),
]


def test_real_slurm_prints_the_errors_of_the_fake(new_slurm: Callable[..., SlurmCluster]) -> None:
    slurm = new_slurm()
    is_exact = " 22.05." in slurm.run("sinfo", "--version")

    def check(text: str, *argv: str) -> None:
        """Other versions print the same reason, perhaps with other words around it."""
        found = slurm.try_run(*argv).stderr
        reason = text.splitlines()[-1].rpartition(": ")[2]
        assert found == text if is_exact else reason in found

    for text, option in REFUSALS:
        check(text, "sbatch", option, "--wrap=true")
    check(errors.NO_ACCOUNTING, "sacct")

    slurm.stop_munge()
    socket = f"{slurm.folder}/run/munge.sock"
    check(errors.MUNGE_DOWN.replace("/run/munge/munge.socket.2", socket), "squeue")
    slurm.start_munge()

    slurm.stop_controller()
    check(errors.CONTROLLER_DOWN, "squeue")
    check(errors.CONTROLLER_DOWN_SBATCH, "sbatch", "--wrap=true")
