"""`stoker sweep` on the command line: what runs and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lab import Lab

COMMAND = "echo stoker: loss={lr}{seed}"


def sweep(lab: Lab, *words: str, **env: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.ok("sweep", "--json", *words, **env))
    return found


def rows(lab: Lab, name: str, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lab.ok("results", name, "--json", *words))["rows"]
    return found


def trials(lab: Lab, name: str) -> dict[str, int]:
    shown = json.loads(lab.ok("sweep", "show", name, "--json"))
    found: dict[str, int] = shown["trials"]
    return found


def test_every_grid_point_runs_once_and_has_a_result(lab: Lab) -> None:
    made = sweep(lab, COMMAND, "lr=1,2", "seed=range(3)", "--name", "grid")
    assert (made["added"], len(made["jobs"])) == (6, 6)
    lab.wait()
    table = rows(lab, "grid")
    assert [(row["lr"], row["seed"], row["loss"]) for row in table] == [
        (1, 0, 10), (1, 1, 11), (1, 2, 12), (2, 0, 20), (2, 1, 21), (2, 2, 22),
    ]  # fmt: skip


def test_repeated_sweep_runs_only_missing_trials(lab: Lab) -> None:
    first = sweep(lab, COMMAND, "lr=1,2", "seed=0")
    lab.wait()
    again = sweep(lab, COMMAND, "lr=1,2", "seed=0")
    assert (again["sweep"], again["new"], again["jobs"]) == (first["sweep"], False, [])
    more = sweep(lab, COMMAND, "lr=1,2,3", "seed=0")
    assert (more["sweep"], more["added"]) == (first["sweep"], 1)
    lab.wait()
    assert trials(lab, first["sweep"]) == {"done": 3}


def test_trial_with_a_cancelled_or_removed_job_is_missing(lab: Lab) -> None:
    made = sweep(lab, COMMAND, "lr=1,2,3", "seed=0", "--hold")
    lab.ok("cancel", str(made["jobs"][0]))
    lab.ok("cancel", str(made["jobs"][1]))
    lab.ok("rm", str(made["jobs"][1]))
    again = sweep(lab, COMMAND, "lr=1,2,3", "seed=0", "--hold")
    assert (again["added"], len(again["jobs"])) == (0, 2)


def test_edited_file_runs_only_the_new_points(lab: Lab) -> None:
    file = lab.folder / "search.toml"
    file.write_text('command = "echo {x}"\n[params]\nx = [1, 2]\n')
    first = sweep(lab, "search.toml")
    assert first["sweep"] == "search"
    file.write_text('command = "echo {x}"\n[params]\nx = [2, 3, 4]\n')
    again = sweep(lab, "search.toml")
    assert (again["sweep"], again["added"]) == ("search", 2)
    lab.wait()
    assert trials(lab, "search") == {"done": 4}


def test_dry_run_prints_the_commands_and_queues_nothing(lab: Lab) -> None:
    done = lab.run("sweep", "--dry-run", "echo {x}", "x='a b','$(id)',c")
    assert done.stdout == "echo 'a b'\necho '$(id)'\necho c\n"
    assert lab.states() == {}
    words = lab.run("sweep", "--dry-run", "x=1,2", "--", "python", "t.py", "--x={x}")
    assert words.stdout == "python t.py --x=1\npython t.py --x=2\n"


def test_values_never_become_shell_text(lab: Lab) -> None:
    (lab.folder / "values").write_text("x; touch injected\n$(touch injected)\n`touch injected`\n")
    sweep(lab, 'printf "%s\\n" {v} "{v}" \'{v}\'', "v=file(values)")
    lab.wait()
    assert lab.log(1) == "x; touch injected\n" * 3
    assert lab.log(2) == "$(touch injected)\n" * 3
    assert not (lab.folder / "injected").exists()


def test_trial_gets_its_parameters_folder_and_number(lab: Lab) -> None:
    command = (
        'echo "$STOKER_PARAMS $STOKER_PARAM_lr $STOKER_SWEEP $STOKER_TRIAL"; '
        "echo {id} > {dir}/mine; cat $STOKER_OUTPUT_DIR/mine"
    )
    sweep(lab, command, "lr=1e-3", "--name", "mine", "--lenient")
    lab.wait()
    assert lab.log(1) == '{"lr": 0.001} 1e-3 mine 1\n1\n'


def test_max_parallel_limits_running_trials(lab: Lab) -> None:
    gate = lab.folder / "gate"
    sweep(lab, f"while ! test -e {gate}; do sleep 0.02; done; : {{x}}", "x=range(4)",
          "--max-parallel", "1", "--name", "one")  # fmt: skip
    lab.wait_until(lambda: "running" in lab.states().values())
    waiting = [id for id, state in lab.states().items() if state == "queued"]
    assert len(waiting) == 3
    assert "sweep:one already has 1 running, which is its limit" in lab.ok("why", str(waiting[0]))
    gate.touch()
    assert lab.wait() == 0


def test_sweep_stops_after_equal_failures_with_one_reason(lab: Lab) -> None:
    lab.run("sweep", "python3 -c 'import nothing_like_it' {x}", "x=range(20)", "--name", "bad",
            "--same-fails", "3", "--max-parallel", "1")  # fmt: skip
    lab.wait()
    shown = json.loads(lab.ok("sweep", "show", "bad", "--json"))
    assert shown["trials"] == {"failed": 3, "cancelled": 17}
    assert "3 trials in a row failed in the same way" in shown["stopped"]
    assert "No module named 'nothing_like_it'" in shown["stopped"]
    assert lab.ok("sweep", "show", "bad").count("nothing_like_it'") == 2  # the command, the cause


def test_sweep_stops_after_max_fails(lab: Lab) -> None:
    lab.run("sweep", "exit {x}", "x=range(1,20)", "--name", "bad", "--max-fails", "4",
            "--max-parallel", "1")  # fmt: skip
    lab.wait()
    assert trials(lab, "bad") == {"failed": 4, "cancelled": 15}


def test_stopped_sweep_can_be_resumed(lab: Lab) -> None:
    sweep(lab, "echo {x}", "x=range(5)", "--name", "long", "--hold")
    lab.ok("sweep", "stop", "long")
    assert trials(lab, "long") == {"cancelled": 5}
    assert "stopped" in lab.ok("sweep", "ls")
    resumed = json.loads(lab.ok("sweep", "resume", "long", "--json"))
    assert len(resumed["jobs"]) == 5
    lab.ok("release", "all")
    assert lab.wait(*resumed["jobs"]) == 0
    assert trials(lab, "long") == {"done": 5}


def test_metrics_of_a_rerun_replace_those_of_the_job_before(lab: Lab) -> None:
    """Also if the results were shown, and so stored, between the two."""
    (lab.folder / "value").write_text("2")
    (lab.folder / "code").write_text("1")
    command = "echo stoker: loss=$(cat value), x={x}; exit $(cat code)"
    sweep(lab, command, "x=1,2", "--name", "s")
    lab.wait()
    assert [row["loss"] for row in json.loads(lab.ok("results", "s", "--json"))["rows"]] == [2, 2]
    (lab.folder / "value").write_text("1")
    (lab.folder / "code").write_text("0")
    lab.ok("rerun", "--failed", "-y")
    lab.wait()
    rows = json.loads(lab.ok("results", "s", "--json"))["rows"]
    assert [(row["state"], row["loss"]) for row in rows] == [("done", 1), ("done", 1)]


def test_rerun_of_failed_trials_updates_the_table(lab: Lab) -> None:
    flag = lab.folder / "mended"
    command = f"test {{x}} = 1 || test -e {flag} && echo stoker: v={{x}}"
    sweep(lab, command, "x=1,2,3", "--name", "again")
    lab.wait()
    assert trials(lab, "again") == {"done": 1, "failed": 2}
    flag.touch()
    jobs = json.loads(lab.ok("sweep", "rerun", "--failed", "again", "--json"))["jobs"]
    assert len(jobs) == 2
    lab.run("wait", *map(str, jobs))
    assert [row["v"] for row in rows(lab, "again")] == [1, 2, 3]
    assert lab.run("sweep", "rerun", "again", "9").returncode == 2


def test_random_sweep_is_extended_with_new_points(lab: Lab) -> None:
    first = sweep(lab, "echo {x}", "x=interval(0,1)", "--method", "random", "-N", "3", "--hold")
    name = first["sweep"]
    more = json.loads(lab.ok("sweep", "extend", name, "4", "--json"))
    assert more["added"] == 4
    assert len({row["x"] for row in rows(lab, name)}) == 7
    grid = sweep(lab, "echo {y}", "y=1,2", "--hold", "--name", "grid")["sweep"]
    assert "it already runs every point" in lab.run("sweep", "extend", grid, "4").stderr


def test_sweep_with_running_trials_cannot_be_removed(lab: Lab) -> None:
    made = sweep(lab, "echo {x}", "x=1,2", "--name", "gone", "--hold")
    done = lab.run("sweep", "rm", "gone")
    assert (done.returncode, "2 trials of `gone` have not finished" in done.stderr) == (1, True)
    lab.ok("sweep", "stop", "gone")
    lab.ok("sweep", "rm", "gone", "--jobs")
    assert lab.states() == {}
    assert lab.run("sweep", "show", "gone").returncode == 1
    assert not (lab.state_dir / "sweeps" / "gone").exists()
    assert made["jobs"]


def test_sweep_name_selects_its_jobs(lab: Lab) -> None:
    made = sweep(lab, "echo {x}", "x=1,2", "--name", "mine", "--hold")
    other = lab.submit("--hold", "true")
    lab.ok("release", "sweep:mine")
    lab.run("wait", "sweep:mine")
    assert {lab.state(job) for job in made["jobs"]} == {"done"}
    assert lab.state(other) == "held"
    shown = lab.job(made["jobs"][1])
    assert (shown["sweep"], shown["trial"]) == ("mine", 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["echo {x}"], "a sweep needs a parameter"),
        (["echo", "x=1"], "the command does not use `x`"),
        (["echo {lrr}", "lr=1"], "did you mean `{lr}`?"),
        (["echo {x}", "x=1", "-m", "gird"], "did you mean `grid`?"),
        (["echo {x}", "x=1", "-m", "bayes"], "did you mean `tpe`?"),
        (["echo {x}", "x=uniform(0,1)"], "did you mean `interval`?"),
        (["echo {x}", "x=loguniform(1e-3,1)"], "did you mean `log`?"),
        (["echo {x}", "x=interval(0,1)", "-m", "grid"], "infinitely many values"),
        (["echo $(cat {x})", "x=1"], "STOKER_PARAM_x"),
        (["nothing.toml"], "the file `nothing.toml` does not exist"),
        (["echo {x}", "x=1", "-m", "tpe"], "--metric"),
        (["echo {a}{b}{c}{d}", *(f"{n}=range(1000)" for n in "abcd")], "1,000,000,000,000"),
        (["show"], "needs the name of a sweep"),
        (["show", "nothing"], "there is no sweep `nothing`"),
        (["echo {x}", "x=1", "--name", "ls"], "choose another name"),
    ],
)
def test_invalid_sweep_gets_a_clear_error_and_changes_nothing(
    lab: Lab, words: list[str], message: str
) -> None:
    done = lab.run("sweep", *words)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert lab.states() == {}
    assert json.loads(lab.ok("sweep", "ls", "--json"))["sweeps"] == []


def test_thousand_trials_survive_crashes_of_all_processes(lab: Lab) -> None:
    """No trial is lost, and only trials with an unknown end run twice."""
    seen = lab.folder / "seen"
    words = (f"echo {{x}} >> {seen}", "x=range(1000)", "--name", "many", "--gpus", "0")
    assert sweep(lab, *words)["added"] == 1000
    reruns = 0
    for _ in range(3):
        lab.wait_until(lambda: seen.exists())
        lab.kill_runner()
        lab.kill_daemon()
        again = sweep(lab, *words)
        assert again["added"] == 0
        reruns += len(again["jobs"])
    lab.run("wait", "-q")
    reruns += len(sweep(lab, *words)["jobs"])
    lab.run("wait", "-q")
    assert trials(lab, "many") == {"done": 1000}, [
        (job["id"], job["cause"], job["signal"], job["command"], [str(h) for h in job["history"]])
        for job in (lab.job(id) for id, state in lab.states().items() if state == "failed")
    ]
    ran = [int(line) for line in seen.read_text().split()]
    assert sorted(set(ran)) == list(range(1000))
    assert len(ran) <= 1000 + reruns


def test_foreground_sweep_continues_where_it_stopped(lab: Lab) -> None:
    file = lab.folder / "s.toml"
    text = 'command = "echo stoker: v={x}"\nmetric = "v:min"\n[params]\n'
    file.write_text(text + 'x = "range(3)"\n')
    done = lab.run("run", "--devices", "0,1", "s.toml")
    assert (done.returncode, "3 done" in done.stderr) == (0, True)
    file.write_text(text + 'x = "range(4)"\n')
    done = lab.run("run", "--devices", "0,1", "s.toml")
    assert (done.returncode, "1 done, 3 skipped" in done.stderr) == (0, True)
    table = [line.split()[:3] for line in done.stdout.splitlines()]
    assert table[0] == ["TRIAL", "x", "v"]
    assert table[1:] == [["1", "0", "0"], ["2", "1", "1"], ["3", "2", "2"], ["4", "3", "3"]]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("rm", "kept", "--dry-run"), "--dry-run"),
        (("rerun", "kept", "1-2", "--dry-run"), "--dry-run"),
        (("stop", "kept", "--max-parallel", "1"), "--max-parallel"),
        (("show", "kept", "--kill"), "--kill"),
        (("ls", "--gpus", "1"), "--gpus"),
    ],
)
def test_unknown_option_of_an_action_is_refused(
    lab: Lab, words: tuple[str, ...], option: str
) -> None:
    sweep(lab, COMMAND, "lr=1,2", "seed=0", "--name", "kept", "--hold")
    before = lab.states()
    done = lab.run("sweep", *words)
    assert done.returncode == 2
    assert f"has no option `{option}`" in done.stderr
    assert trials(lab, "kept") == {"held": 2}
    assert lab.states() == before


def test_option_of_an_action_is_refused_for_a_new_sweep(lab: Lab) -> None:
    done = lab.run("sweep", COMMAND, "lr=1", "seed=0", "--failed")
    assert done.returncode == 2
    assert "stoker sweep rerun NAME" in done.stderr
    assert lab.states() == {}


@pytest.mark.parametrize(("given", "meant"), [("shwo", "show"), ("list", "ls"), ("delete", "rm")])
def test_misspelled_action_gets_a_suggestion(lab: Lab, given: str, meant: str) -> None:
    done = lab.run("sweep", given, "foo")
    assert done.returncode == 2
    assert f"did you mean `{meant}`?" in done.stderr


def test_show_lists_every_kind_of_failure_with_a_log(lab: Lab) -> None:
    command = "echo ValueError: no {kind} at step {x}; exit 1"
    sweep(lab, command, "kind=left,right", "x=1,2,3", "--name", "bad", "--same-fails", "0",
          "--max-parallel", "1")  # fmt: skip
    lab.wait()
    shown = lab.ok("sweep", "show", "bad")
    assert "  failed    3: ValueError: no right at step 3      stoker log 6\n" in shown
    assert "  failed    3: ValueError: no left at step 3      stoker log 3\n" in shown
    failures = json.loads(lab.ok("sweep", "show", "bad", "--json"))["failures"]
    assert [(one["trials"], one["job"]) for one in failures] == [(3, 3), (3, 6)]


def test_equal_values_cause_a_note(lab: Lab) -> None:
    done = lab.run("sweep", "echo {x}", "x=None,null,1,1.0,2", "--hold")
    assert "note: `None` and `null` are the same value" in done.stderr
    assert "note: `1` and `1.0` are the same value" in done.stderr
    assert len(lab.states()) == 3
    assert "the same value" not in lab.run("sweep", "echo {x}", "x=1,'1'", "--dry-run").stderr


def test_fewer_points_than_trials_cause_a_note(lab: Lab) -> None:
    words = ("echo {x}", "x=1,2,3", "-m", "random", "-N", "10")
    for more in ("--dry-run", "--hold"):
        done = lab.run("sweep", *words, more)
        assert "note: 3 of 10 trials: there are no other points" in done.stderr


def test_hundred_million_trials_are_refused(lab: Lab) -> None:
    done = lab.run("sweep", "echo {x}", "x=interval(0,1)", "-m", "random", "-N", "100000000")
    assert done.returncode == 2
    assert "100,000,000 trials are too many; the limit is 1,000,000" in done.stderr
    sweep(lab, "echo {x}", "x=interval(0,1)", "-m", "random", "-N", "1", "--hold", "-n", "s")
    done = lab.run("sweep", "extend", "s", "1000000")
    assert done.returncode == 2
    assert "would have 1,000,001 trials" in done.stderr


def test_dry_run_of_a_random_sweep_shows_the_real_points(lab: Lab) -> None:
    for words in (
        ("x=range(50)", "-m", "shuffled"),
        ("x=interval(0,1)", "-m", "random", "-N", "9"),
    ):
        shown = lab.ok("sweep", "echo {x}", *words, "--dry-run").splitlines()
        made = sweep(lab, "echo {x}", *words, "--hold")
        assert [f"echo {row['x']}" for row in rows(lab, made["sweep"])] == shown


def test_two_commands_of_one_sweep_are_distinguished(lab: Lab) -> None:
    sweep(lab, "echo stoker: y={x}1", "x=1,2", "--name", "two")
    lab.wait()
    assert "command" not in rows(lab, "two")[0]
    sweep(lab, "echo stoker: y={x}2", "x=1,2", "--name", "two")
    lab.wait()
    found = [(row["command"], row["y"]) for row in rows(lab, "two")]
    one, other = "echo stoker: y={x}1", "echo stoker: y={x}2"
    assert found == [(one, 11), (one, 21), (other, 12), (other, 22)]
    shown = lab.ok("sweep", "show", "two")
    assert f"  command   {other}\n  earlier   {one}\n" in shown
    lab.ok("sweep", "rerun", "two", "1")
    lab.wait()
    assert rows(lab, "two")[0]["y"] == 11  # by its own command
    sweep(lab, one, "x=1,2", "--name", "two")
    assert f"  command   {one}\n  earlier   {other}\n" in lab.ok("sweep", "show", "two")


def test_script_must_confirm_a_large_grid(lab: Lab) -> None:
    words = ("sweep", "--hold", "-n", "s", "echo {x}")
    done = lab.run(*words, "x=range(1001)")
    assert done.returncode == 2 and "this sweep has 1,001 new trials" in done.stderr
    assert "hint: to queue them all, add -y; for fewer: --trials N" in done.stderr
    assert lab.run("sweep", "show", "s").returncode != 0
    lab.ok(*words, "x=range(1001)", "-y")
    lab.ok(*words, "x=range(1500)")  # only 499 are new
    lab.ok("sweep", "--hold", "-n", "t", "-N", "1200", "echo {x}", "x=range(5000)")
