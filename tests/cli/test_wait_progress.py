"""Progress and likely ends of jobs: `stoker wait`, `stoker`, `ls` and `show`."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.cli.helpers import Terminal, as_json, refused, shown
from tests.helpers import Gate
from tests.lab import Lab

CLEAR = "\r\x1b[K"


def reporting(gate: Gate, progress: str = "step 3/10", metric: str = '{"loss": 0.5}') -> str:
    """A job that reports its progress and a metric, and waits."""
    return (
        f"echo '{progress}' > $STOKER_PROGRESS_FILE; echo '{metric}' >> $STOKER_METRICS;"
        f" {gate.wait}"
    )


def test_wait_shows_the_progress_of_one_job_and_clears_the_line(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(reporting(gate))
    lab.wait_at(gate)
    terminal = Terminal(lab, "wait", "1", columns=100)
    terminal.read_until("[######--------------] job 1 running: step 3/10 (30%), loss 0.5, ETA ")
    gate.open()
    assert terminal.close() == 0
    assert terminal.text.endswith(f"{CLEAR}job 1 done\n")


def test_wait_shortens_its_line_before_the_eta(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(reporting(gate, progress="step 3/10 of the training with a long description"))
    lab.wait_at(gate)
    terminal = Terminal(lab, "wait", "1", columns=70)
    terminal.read_until("..., ETA ")
    assert "[######--------------] job 1 running: step 3" in terminal.text
    gate.open()
    assert terminal.close() == 0


def test_bar_of_tqdm_is_the_progress_of_its_job(lab: Lab) -> None:
    gate = Gate(lab.folder)
    bar = r"\rtrain:  40%%|####      | 40/100 [01:00<01:30,  1.5s/it, loss=0.5]"
    lab.submit(f"printf '{bar}'; {gate.wait}")
    other = Gate(lab.folder, "other")
    lab.submit("-e", "err", f"printf '\repoch 7:  30%%|###  | 3/10 [00:01<' >&2; {other.wait}")
    lab.wait_at(gate)
    lab.wait_at(other)
    assert re.search(r"\[train: 40/100 \(40%\), ETA \d+", lab.ok("ls"))
    assert "[epoch 7: 3/10] " in lab.ok("ls")
    known = as_json(lab.ok("ls", "--json"))["progress"]["1"]
    assert (known["percent"], known["ends_in_source"]) == (40.0, "progress")
    gate.open()
    other.open()


def test_wait_shows_how_many_jobs_have_finished(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit("exit 1")
    lab.wait(1)
    lab.ok("submit", "-f", "-", input=f"{reporting(gate)}\ntrue\n")
    lab.wait(3)
    lab.wait_at(gate)
    terminal = Terminal(lab, "wait", "1-3", columns=100)
    terminal.read_until("] 2 of 3 jobs finished, 1 not successful, 1 running, ETA ")
    gate.open()
    assert terminal.close() == 1
    assert f"{CLEAR}job 1 failed: exit 1\n" in terminal.text


def test_wait_redraws_only_changed_lines_and_fits_the_terminal(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit(gate.wait)  # no progress and no estimate: the line never changes
    lab.wait_at(gate)
    terminal = Terminal(lab, "wait", "--timeout", "1s", columns=30)
    assert terminal.close() == 124
    lines = [part for part in terminal.text.split(CLEAR) if part.startswith("[")]
    assert lines == ["[--------------------] job..."]
    assert "error: 1 job has not finished after 1.0s" in terminal.text
    gate.open()


def test_wait_shows_nothing_without_a_terminal_unless_asked(lab: Lab) -> None:
    lab.submit("true")
    assert lab.run("wait").stderr == "all jobs finished\n"
    gate = Gate(lab.folder)
    lab.submit(reporting(gate, progress="warming up"))
    lab.wait_at(gate)
    done = lab.run("wait", "--progress", "--timeout", "0.3s", "2")
    assert done.stderr.splitlines()[0] == (
        "[--------------------] job 2 running: warming up, loss 0.5"
    )
    assert "\x1b" not in done.stderr and "\r" not in done.stderr
    for option in ("--no-progress", "-q"):
        assert "[---" not in shown(lab, "wait", option, "--timeout", "0.3s", "2")
    gate.open()


def test_progress_and_quiet_exclude_each_other(lab: Lab) -> None:
    refused(lab.run("wait", "--progress", "-q"), 2, "`--progress` and `--quiet` exclude each other")
    refused(
        lab.run("wait", "--progress", "--no-progress"), 2,
        "`--progress` and `--no-progress` exclude each other",
    )  # fmt: skip


def test_status_ls_and_show_have_progress_metric_and_end(lab: Lab) -> None:
    gate = Gate(lab.folder)
    lab.submit("-n", "train", reporting(gate, metric='{"epoch": 2, "loss": 0.5}'))
    lab.wait_at(gate)
    words = r"\[step 3/10 \(30%\), epoch 2, ETA \d+m?\d*s\]"
    assert re.search(rf"1 {words} train$", lab.ok(), re.MULTILINE)
    assert re.search(words, lab.ok("ls"))
    assert re.search(r"progress +step 3/10 \(30%\), epoch 2, ETA ", lab.ok("show", "1"))
    for verb in ("ls", "status"):
        known = as_json(lab.ok(verb, "--json"))["progress"]["1"]
        assert known.pop("ends_in") >= 0
        assert known == {
            "text": "step 3/10", "done": 3.0, "total": 10.0, "percent": 30.0, "step": None,
            "metric": "epoch", "value": 2, "ends_in_source": "progress",
        }  # fmt: skip
    assert lab.job(1)["progress"] == "step 3/10 (30%), epoch 2"
    gate.open()
    lab.wait(1)
    assert as_json(lab.ok("ls", "--json"))["progress"] == {}
    assert lab.job(1)["progress"] is None


def test_printed_reports_and_the_metric_of_the_sweep_are_shown(lab: Lab) -> None:
    gate = Gate(lab.folder)
    script = lab.folder / "trial.sh"
    script.write_text(f'echo "stoker: lr=$1 acc=0.25 step=40"; {gate.wait}\n')
    lab.ok("sweep", "-n", "s", "--metric", "acc:max", f"sh {script} {{lr}}", "lr=0.1")
    lab.wait_at(gate)
    lab.wait_until(lambda: "[step 40, acc 0.25" in lab.ok("ls"))
    gate.open()


def test_end_of_a_running_job_comes_from_earlier_jobs_of_its_profile(lab: Lab) -> None:
    gate = Gate(lab.folder)
    script = lab.folder / "job.sh"
    script.write_text(f"[ $1 = 1 ] || {{ {gate.wait}; }}\n")
    lab.wait(lab.submit("sh", str(script), "1"))
    lab.submit("sh", str(script), "2")
    lab.wait_at(gate)
    known = as_json(lab.ok("ls", "--json"))["progress"]["2"]
    assert known["ends_in_source"] == "profile"
    gate.open()


def test_time_limit_is_shown_as_a_bound(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=1)
    gate = Gate(lab.folder)
    lab.submit("-t", "2h", gate.wait)
    lab.wait_at(gate)
    done = lab.run("wait", "--progress", "--timeout", "0.3s", "1")
    assert re.search(r"job 1 running, ETA at most 1h59m \(", done.stderr)
    assert "ETA" not in lab.ok("ls")  # the time limit is no estimate
    gate.open()
