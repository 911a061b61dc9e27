"""Jobs with checkpoints: requeue requests and signals before the time limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import Lab

SAVES = (
    "mkdir -p $STOKER_CHECKPOINT_DIR; cd $STOKER_CHECKPOINT_DIR; echo $STOKER_ATTEMPT >> steps; "
    "test $(wc -l < steps) -ge 3 || {ask}; cat steps"
)


def test_restartable_job_that_exits_with_75_runs_again_and_finds_its_checkpoints(
    lab: Lab,
) -> None:
    job = lab.submit("--restartable", SAVES.format(ask="exit 75"), STOKER_RETRY_DELAY="0")
    assert lab.wait(job) == 0
    assert lab.log(job) == "1\n2\n3\n"
    assert [attempt["cause"] for attempt in lab.job(job)["history"]] == [
        "requeue",
        "requeue",
        "exit",
    ]


def test_job_may_requeue_itself_by_its_requeue_file(lab: Lab) -> None:
    ask = "{ touch $STOKER_REQUEUE_FILE; exit 75; }"
    job = lab.submit(SAVES.format(ask=ask), STOKER_RETRY_DELAY="0")
    assert lab.wait(job) == 0
    assert lab.log(job) == "1\n2\n3\n"


def test_job_without_restartable_that_exits_with_75_has_failed(lab: Lab) -> None:
    job = lab.submit("exit 75")
    assert lab.wait(job) == 75
    assert lab.job(job)["attempts"] == 1


def test_job_gets_a_signal_before_its_time_limit(lab: Lab) -> None:
    script = lab.folder / "train.sh"
    script.write_text("trap 'echo warned; exit 0' USR1\necho ready\nwhile :; do sleep 0.05; done\n")
    job = lab.submit("--time-limit", "60s", "--signal", "USR1@58s", "sh", str(script))
    assert lab.wait(job) == 0
    assert lab.log(job) == "ready\nwarned\n"


def test_shell_around_a_command_survives_the_signal(lab: Lab) -> None:
    program = lab.folder / "train.py"
    program.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
        "signal.pause()\n"
    )
    job = lab.submit(
        "--time-limit", "60s", "--signal", "USR1@58s", f"python3 {program}; echo saved"
    )
    assert lab.wait(job) == 0
    assert lab.log(job) == "saved\n"


def test_signal_option_without_time_limit_or_with_unknown_signal_is_refused(lab: Lab) -> None:
    done = lab.run("submit", "--signal", "USR1@60", "true")
    assert (done.returncode, "`--signal` needs `--time-limit`" in done.stderr) == (2, True)
    done = lab.run("submit", "--time-limit", "1h", "--signal", "NOPE@60", "true")
    assert (done.returncode, "unknown signal `NOPE`" in done.stderr) == (2, True)


def test_job_submitted_by_a_job_does_not_inherit_its_variables(lab: Lab, tmp_path: Path) -> None:
    inner = f"{lab.command[0]} -m stoker submit -q env"
    outer = lab.submit(f"STOKER_PARAMS=x STOKER_TRIAL=7 {inner}")
    assert lab.wait(outer) == 0
    job = int(lab.log(outer))
    assert lab.wait(job) == 0
    env = dict(line.split("=", 1) for line in lab.log(job).splitlines() if "=" in line)
    assert "STOKER_PARAMS" not in env
    assert "STOKER_TRIAL" not in env
    assert env["STOKER_JOB_ID"] == str(job)


def test_signal_reaches_a_shell_with_a_trap_for_it(lab: Lab) -> None:
    text = "trap 'echo saved; exit 5' USR1; while :; do sleep 0.05; done"
    job = lab.submit("--time-limit", "60s", "--signal", "USR1@58s", text)
    lab.wait_until(lambda: lab.state(job) == "failed")
    assert lab.job(job)["exit_code"] == 5
    assert lab.log(job).endswith("saved\n")  # the shell also says that its `sleep` was killed


@pytest.mark.parametrize("flag", ["--restartable", "--retries=1", "--signal=USR1@1"])
def test_checkpoint_folder_exists(lab: Lab, flag: str) -> None:
    limit = ["--time-limit", "1h"] if "signal" in flag else []
    job = lab.submit("-G0", flag, *limit, "echo saved > $STOKER_CHECKPOINT_DIR/epoch")
    assert lab.wait(job) == 0
