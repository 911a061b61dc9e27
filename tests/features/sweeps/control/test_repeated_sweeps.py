"""Sweeps that are repeated, edited, killed, or lose their files and jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.cli.run.run_sweep import SweepSource
from stoker.client.queue import Queue as StoredQueue
from stoker.engine.model import Context, JobSpec
from stoker.engine.store.database import open_database
from stoker.errors import Unavailable
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control import lifecycle
from stoker.features.sweeps.files.sweep_file import load
from stoker.features.sweeps.search.search_client import SearchClient
from tests.cli.helpers import refused, shown
from tests.features.code.git_repository import GitRepository
from tests.features.sweeps.control.test_sweep import rows, sweep, trials
from tests.lab import Lab
from tests.python import job_functions
from tests.python.conftest import here as here

SEARCH = ("-m", "tpe", "--seed", "1", "--metric", "y:min", "--gpus", "0", "--max-parallel", "1")


def counted(lab: Lab, name: str) -> int:
    return sum(trials(lab, name).values())


def test_search_continues_after_the_daemon_was_killed(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "-N", "10", *SEARCH, "echo stoker: y={x}", "x=interval(0,1)")
    for enough in (2, 5):
        lab.wait_until(lambda enough=enough: counted(lab, "s") >= enough)  # type: ignore[misc]
        lab.kill_daemon()
    lab.wait_until(lambda: trials(lab, "s") == {"done": 10})
    lab.wait_until(lambda: "finished" in lab.ok("sweep", "ls"))


def test_sweep_name_cannot_escape_the_state_folder(lab: Lab) -> None:
    (lab.folder / "f.toml").write_text('command = "echo {x}"\n[params]\nx = [1]\n')
    done = lab.run("sweep", "-n", "../../evil", "f.toml")
    assert (done.returncode, "cannot be the name of a sweep" in done.stderr) == (2, True)


def test_functions_with_the_same_name_share_a_sweep_only_if_equal(here: Lab) -> None:
    first = stoker.sweep(lambda x: x, {"x": [1, 2]}, gpus=0)
    second = stoker.sweep(lambda x: -x, {"x": [1, 2]}, gpus=0)
    again = stoker.sweep(lambda x: x, {"x": [1, 2]}, gpus=0)
    assert first.name != second.name
    assert first.wait() and second.wait() and again.wait()
    assert [row["result"] for row in second.results()] == [-1, -2]
    assert len({first.name, second.name, again.name}) == 2


def test_search_numbers_trials_like_the_database() -> None:
    from stoker.features.sweeps.spec.arguments import from_words
    from stoker.features.sweeps.spec.spec import make_metric

    spec = from_words(
        ["echo {x}"], True, ["x=interval(0,1)"], method="tpe", trials=9, seed=1,
        metric=make_metric("y", "min"),
    )  # fmt: skip
    with SearchClient(spec) as search:
        assert [one.number for one in search.ask(3)] == [1, 2, 3]


def test_extend_adds_to_the_requested_number_of_trials(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "-N", "9", *SEARCH, "echo stoker: y={x}", "x=interval(0,1)")
    lab.ok("sweep", "extend", "s", "3")
    lab.wait_until(lambda: trials(lab, "s") == {"done": 12})
    made = sweep(lab, "-n", "l", "-m", "lhs", "-N", "4", "--hold", "echo {x}", "x=interval(0,1)")
    before = [row["x"] for row in rows(lab, "l")]
    more = json.loads(lab.ok("sweep", "extend", "l", "2", "--json"))
    assert (made["added"], more["added"]) == (4, 2)
    assert [row["x"] for row in rows(lab, "l")][:4] == before


def test_sweep_file_may_request_no_gpu(lab: Lab) -> None:
    (lab.folder / "g.toml").write_text(
        'command = "echo {x}"\n[resources]\ngpus = 0\n[params]\nx = [1]\n'
    )
    made = sweep(lab, "g.toml", "--hold")
    assert lab.job(made["jobs"][0])["gpus"] == 0


def test_trial_stopped_early_is_finished_even_if_it_requeues(here: Lab) -> None:
    swept = stoker.sweep(
        job_functions.stubborn, {"offset": [0, 0.1, 100]}, metric="loss", max_parallel=1, gpus=0,
        retries=3, early_stop={"kind": "median", "min_trials": 2, "after_step": 1},
    )  # fmt: skip
    assert swept.wait()
    assert swept.counts == {"done": 2, "cancelled": 1}
    assert swept.jobs()[2].info()["cause"] == "stopped_early"
    assert swept.resume().counts == {"done": 2, "cancelled": 1}  # it counts as finished


def test_stopped_sweep_retries_no_trial(lab: Lab) -> None:
    gate = lab.folder / "gate"
    made = sweep(lab, "-n", "s", "--retries", "5",
                 f"while ! test -e {gate}; do sleep 0.02; done; exit {{x}}", "x=3,4")  # fmt: skip
    lab.wait_until(lambda: trials(lab, "s") == {"running": 2})
    lab.ok("sweep", "stop", "s")
    gate.touch()
    lab.wait(*made["jobs"])
    assert trials(lab, "s") == {"failed": 2}
    assert [lab.job(job)["attempts"] for job in made["jobs"]] == [1, 1]


def at_once(count: int, what: Callable[[], Any]) -> list[Any]:
    """Call a function from several threads that start together."""
    barrier, results = threading.Barrier(count), []

    def run() -> None:
        barrier.wait()
        results.append(what())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_concurrent_resume_and_start_run_every_trial_once(here: Lab) -> None:
    stoker.sweep("true {x}", {"x": "range(30)"}, name="s", gpus=0, hold=True)
    stoker.Queue().find_sweep("s").stop()

    def resume() -> None:
        with closing(StoredQueue()) as queue:
            lifecycle.resume(queue, "s")

    at_once(4, resume)
    assert len(stoker.Queue().jobs("held")) == 30
    given = at_once(4, lambda: stoker.sweep("echo {y}", {"y": [1, 2]}, gpus=0, hold=True).name)
    assert len(set(given)) == 1
    assert len(stoker.Queue().jobs("held")) == 32


def test_same_file_name_in_another_folder_is_another_sweep(lab: Lab) -> None:
    names = []
    for folder in ("a", "b"):
        place = lab.folder / folder
        place.mkdir()
        (place / "search.toml").write_text('command = "pwd; : {x}"\n[params]\nx = [1]\n')
        made = json.loads(lab.ok("sweep", "--json", "search.toml", cwd=place))
        names.append(made["sweep"])
        lab.wait(*made["jobs"])
        assert lab.log(made["jobs"][0]) == f"{place}\n"
    assert names == ["search", "search-2"]


def test_edited_sweep_runs_only_requested_points(lab: Lab) -> None:
    sweep(lab, "-n", "s", "--hold", "echo {a}", "a=1,2,3")
    lab.ok("sweep", "stop", "s")
    again = sweep(lab, "-n", "s", "--hold", "echo new {a}", "a=1,2")
    assert (again["added"], len(again["jobs"])) == (2, 2)
    assert {lab.job(job)["command"] for job in again["jobs"]} == {"echo new 1", "echo new 2"}


def test_results_outlive_the_jobs(lab: Lab) -> None:
    sweep(lab, "-n", "s", "echo stoker: y={a}", "a=1,2")
    lab.wait()
    lab.ok("clean")
    assert lab.states() == {}
    assert [(row["y"], row["state"]) for row in rows(lab, "s")] == [(1, "done"), (2, "done")]
    assert sweep(lab, "-n", "s", "echo stoker: y={a}", "a=1,2")["jobs"] == []


def test_function_sweep_runs_again_after_its_jobs_were_removed(here: Lab) -> None:
    swept = job_functions.score.sweep({"x": [1, 2]}, name="fn")
    assert swept.wait()
    here.ok("rm", "sweep:fn")
    calls = Path(here.state_dir, "calls")
    jobs = swept.rerun([1])
    assert jobs[0].result() == 1
    before = len(list(calls.iterdir()))
    job_functions.score.sweep({"x": [1, 2]}, name="fn")
    assert len(list(calls.iterdir())) == before


def test_rerun_of_a_trial_does_not_resume_a_stopped_search(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "-N", "500", *SEARCH, "echo stoker: y={x}", "x=interval(0,1)")
    lab.wait_until(lambda: trials(lab, "s").get("done", 0) >= 2)
    lab.ok("sweep", "stop", "s", "--kill")
    lab.wait_until(lambda: not {"queued", "running", "starting"} & set(trials(lab, "s")))
    jobs = json.loads(lab.ok("sweep", "rerun", "s", "1", "--json"))["jobs"]
    before = counted(lab, "s")
    lab.wait(*jobs)
    assert counted(lab, "s") == before
    assert "stopped" in lab.ok("sweep", "ls")


def test_new_sweep_with_a_removed_name_finds_no_old_files(lab: Lab) -> None:
    command = "mkdir -p $STOKER_CHECKPOINT_DIR; ls $STOKER_CHECKPOINT_DIR; : {a}"
    sweep(lab, "-n", "s", f"{command}; touch $STOKER_CHECKPOINT_DIR/old", "a=1")
    lab.wait()
    lab.ok("sweep", "rm", "s")
    [job] = sweep(lab, "-n", "s", command, "a=1")["jobs"]
    lab.wait(job)
    assert lab.log(job) == ""


def test_metric_may_have_the_name_of_a_parameter(lab: Lab) -> None:
    sweep(lab, "-n", "s", "--metric", "loss", "--lenient",
          "echo stoker: loss=$((10 - STOKER_PARAM_loss))", "loss=1,2,3")  # fmt: skip
    lab.wait()
    assert json.loads(lab.ok("results", "s", "--best", "1", "--json"))["rows"][0]["trial"] == 3
    assert json.loads(lab.ok("sweep", "show", "s", "--json"))["best"]["trial"] == 3
    lab.ok("plot", "s", "--param", "loss")


def test_search_without_reported_metric_stops_with_a_reason(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "-N", "30", *SEARCH, "echo stoker: z={x}", "x=interval(0,1)")
    lab.wait_until(lambda: json.loads(lab.ok("sweep", "show", "s", "--json"))["stopped"])
    shown = json.loads(lab.ok("sweep", "show", "s", "--json"))
    assert "none reported `y`" in shown["stopped"]
    assert sum(shown["trials"].values()) < 10


def test_foreground_sweep_stops_after_equal_failures(lab: Lab) -> None:
    (lab.folder / "f.toml").write_text('command = "exit 3 {x}"\n[params]\nx = "range(30)"\n')
    done = lab.run("run", "-g", "0", "f.toml")
    assert "5 trials in a row failed in the same way: exit code 3" in done.stderr
    assert done.returncode in (5, 6)  # the next trial may have started already


def test_foreground_sweep_reruns_failed_trials_only_with_resume(lab: Lab) -> None:
    (lab.folder / "f.toml").write_text(
        'command = "echo {x} >> ran; test {x} = 1"\n[params]\nx = [1, 2]\n'
    )
    ran, logs = lab.folder / "ran", lab.folder / "logs"
    assert lab.run("run", "-g", "0", "-l", "logs", "f.toml").returncode == 1
    again = lab.run("run", "-g", "0", "-l", "logs", "f.toml")
    assert (again.returncode, sorted(ran.read_text().split())) == (0, ["1", "2"])
    assert "1 trial failed earlier; to run failed trials again, use --resume" in again.stderr
    assert f"stoker results {logs}" in again.stderr
    spec = load(lab.folder / "f.toml")._replace(name="sweep")
    base = JobSpec((), Context(str(lab.folder), (), 0o22, "/bin/sh"))
    for retries_failed, count in ((False, 0), (True, 1)):
        db = open_database(str(logs))
        source = SweepSource(db, str(logs), spec, base, 1, retries_failed=retries_failed)
        assert len(source.read()) == count
        db.close()


def test_failures_with_different_messages_are_not_equal(lab: Lab) -> None:
    (lab.folder / "f.toml").write_text(
        'command = "echo {x} is {y}; exit 3"\n[params]\ny = [1, 2, 3, 4]\nx = ["a", "b"]\n'
    )
    done = lab.run("run", "-g", "0", "f.toml")
    assert done.returncode == 8
    assert "failed in the same way" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stop", "a", "b"], "unexpected argument `b`"),
        (["rerun", "s", "²"], "is not a trial number"),
        (["rerun", "s", "5-1"], "is not a valid range of trials"),
        (["rerun", "s", "1-99999999999"], "is not a trial number"),
        (["extend", "s"], "give the number of trials to add"),
        (["extend", "s", "²"], "the number of trials to add must be an integer above 0, not `²`"),
        (["extend", "s", "0"], "the number of trials to add must be an integer above 0, not `0`"),
        (
            ["--early-stop", "median,after_step=²", "--metric", "y:min", "echo {x}", "x=1"],
            "not an option",
        ),
        (["--when", "x: 1 == 1", "f.toml"], "for parameters on the command line"),
        (["-m", "cmaes", "--metric", "y:min", "echo {x}", "x=interval(0,1)"], ""),
    ],
)
def test_invalid_arguments_get_a_clear_error(lab: Lab, words: list[str], message: str) -> None:
    (lab.folder / "f.toml").write_text('command = "echo {x}"\n[params]\nx = [1]\n')
    done = lab.run("sweep", *words, *(["--hold"] if words[0].startswith("-") else []))
    assert "Traceback" not in done.stderr
    if message:
        assert done.returncode in (1, 2)
        assert message in done.stderr


def test_unwritable_output_file_is_an_error(lab: Lab) -> None:
    sweep(lab, "-n", "s", "echo stoker: y={a}", "a=1,2")
    lab.wait()
    for words in (["-o", "/nonexistent/x.csv"], ["--parquet", "/nonexistent/x"]):
        done = lab.run("results", "s", *words)
        assert (done.returncode, "cannot write" in done.stderr) == (2, True)


def test_option_of_a_single_job_is_refused_in_a_sweep_file(lab: Lab) -> None:
    (lab.folder / "f.toml").write_text(
        'command = "echo {x}"\n[resources]\nstdout = "x"\n[params]\nx = [1]\n'
    )
    done = lab.run("sweep", "f.toml")
    assert (done.returncode, "resources.stdout" in done.stderr) == (2, True)


def test_dry_run_of_a_complete_sweep_names_the_sweep(lab: Lab) -> None:
    words = ("sweep", "-n", "s", "--hold", "echo {x}", "x=1,2")
    lab.ok(*words)
    done = lab.run(*words, "--dry-run")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "all 2 trials already exist in sweep s (--dry-run)\n"


def test_progress_is_shown_on_a_terminal_while_trials_are_added(lab: Lab) -> None:
    words = ("sweep", "--hold", "-q", "-y", "echo {x}", "x=range(2500)")
    assert lab.run(*words, "-n", "piped").stderr == ""
    terminal = shown(lab, *words, "-n", "typed")
    assert "added 2500 of 2500 trials" in terminal
    assert terminal.endswith("\x1b[Ktyped\n")


def test_plot_without_sweeps_gets_a_hint_for_plot(lab: Lab) -> None:
    for verb in ("plot", "results"):
        refused(lab.run(verb), 2, "there are no sweeps yet", f"for jobs: stoker {verb} 3-9")


def test_dry_run_creates_no_file(lab: Lab) -> None:
    lab.ok("sweep", "--dry-run", "cat {params:file}", "a=1,2")
    assert not (lab.state_dir / "sweeps").exists()


def test_driven_sweep_does_not_finish_before_its_trials_exist(here: Lab) -> None:
    stoker.sweep("echo {x}", {"x": [1]}, name="s", metric="y:min", early_stop="median", gpus=0,
                 hold=True)  # fmt: skip
    with closing(StoredQueue()) as queue:
        row = sweeps.get(queue.db, "s")
        with queue.db.transaction():
            sweeps.end_driving(queue.db, row.id, row.spec)
        assert sweeps.get(queue.db, "s").is_driven  # its trial waits


def test_target_stops_any_sweep(lab: Lab) -> None:
    (lab.folder / "t.toml").write_text(
        'command = "echo stoker: y={x}"\nmetric = { name = "y", goal = "max", target = 3 }\n'
        'max_parallel = 1\n[params]\nx = "range(200)"\n'
    )
    sweep(lab, "t.toml")
    lab.wait_until(lambda: json.loads(lab.ok("sweep", "show", "t", "--json"))["stopped"])
    assert "reached the target" in lab.ok("sweep", "show", "t")
    assert trials(lab, "t")["cancelled"] > 0


def test_completed_search_reports_that_all_trials_exist(lab: Lab) -> None:
    given = ("sweep", "-n", "s", "-N", "3", *SEARCH, "echo stoker: y={x}", "x=interval(0,1)")
    assert "3 trials by tpe" in lab.ok(*given)
    lab.wait_until(lambda: trials(lab, "s") == {"done": 3})
    assert "sweep s: all 3 trials already exist (3 done)" in lab.ok(*given)


def test_points_added_to_a_search_by_an_edit_are_run(lab: Lab) -> None:
    search = (
        'command = "echo stoker: y={x}"\nmethod = "tpe"\ntrials = 3\nmetric = "y:min"\nseed = 1\n'
        '[resources]\ngpus = 0\n[params]\nx = "interval(0, 1)"\n'
    )
    file = lab.folder / "s.toml"
    file.write_text(search)
    sweep(lab, "s.toml")
    lab.wait_until(lambda: trials(lab, "s") == {"done": 3})
    file.write_text(search + "[[include]]\nx = [7, 8]\n")
    assert lab.ok("sweep", "s.toml", "--dry-run").split("\n")[:2] == [
        "echo stoker: y=7", "echo stoker: y=8",
    ]  # fmt: skip
    assert sweep(lab, "s.toml")["added"] == 2
    lab.wait_until(lambda: trials(lab, "s") == {"done": 5})
    assert [row["y"] for row in rows(lab, "s")][3:] == [7, 8]
    assert sweep(lab, "s.toml")["jobs"] == []


def test_search_with_a_non_numeric_metric_stops_with_its_value(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "-N", "30", *SEARCH, "echo stoker: y=nan x={x}", "x=interval(0,1)")
    lab.wait_until(lambda: json.loads(lab.ok("sweep", "show", "s", "--json"))["stopped"])
    stopped = json.loads(lab.ok("sweep", "show", "s", "--json"))["stopped"]
    assert stopped == "5 trials succeeded, but `y` was never a number: nan"


def test_error_about_a_missing_package_has_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import util

    from stoker.features.sweeps.spec.arguments import from_words
    from stoker.features.sweeps.spec.spec import make_metric

    spec = from_words(["echo {x}"], True, ["x=interval(0,1)"], method="gp", trials=9,
                      metric=make_metric("y", "min"))  # fmt: skip
    monkeypatch.setattr(util, "find_spec", lambda name: None if name != "optuna" else object())
    with pytest.raises(Unavailable, match="the method gp needs the packages scipy and torch") as no:
        lifecycle.check_search(spec)
    assert no.value.hint == "pip install scipy torch"


def test_earlier_job_of_a_trial_still_shows_the_trial(lab: Lab) -> None:
    sweep(lab, "echo stoker: y={x}", "x=5,6", "--name", "s")
    lab.wait()
    lab.ok("sweep", "rerun", "s", "2")
    lab.wait()
    found = json.loads(lab.ok("results", "1-3", "--json"))["rows"]
    assert [(row["trial"], row["x"]) for row in found] == [(1, 5), (2, 6), (2, 6)]


@pytest.mark.parametrize("verb", ["results", "plot"])
def test_unknown_sweep_name_gets_a_suggestion(lab: Lab, verb: str) -> None:
    sweep(lab, "echo {x}", "x=1", "--name", "brave", "--hold")
    done = lab.run(verb, "brvae")
    assert done.returncode == 1
    assert "`brvae` is not a sweep, job or log folder" in done.stderr
    assert "did you mean `brave`?" in done.stderr
    assert "did you mean `brave`?" in lab.run("sweep", "show", "brav").stderr
    assert "`stoker sweep ls` shows the sweeps" in lab.run(verb, "nope").stderr


def test_metric_without_a_name_is_refused(lab: Lab) -> None:
    sweep(lab, "echo {x}", "x=1", "--name", "s", "--hold")
    done = lab.run("results", "s", "--best", "1", "--metric", ":")
    assert (done.returncode, "`:` is not a valid metric name" in done.stderr) == (2, True)


@pytest.mark.parametrize("has_git", [True, False])
def test_results_of_different_code_are_told_apart(lab: Lab, has_git: bool) -> None:
    repo = GitRepository(lab.folder / "repo") if has_git else None
    folder = lab.folder / "repo"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text("print('stoker: loss=1')\n")
    if repo is not None:
        repo.commit(train_py="print('stoker: loss=1')\n")
    command = ("sweep", "-n", "s", "--gpus", "0", "python3 train.py {lr}")

    def results(*words: str) -> tuple[list[dict[str, object]], str]:
        done = lab.run("results", "s", *words)
        rows = json.loads(lab.ok("results", "s", "--json"))["rows"]
        return rows, done.stderr

    assert "other than" not in lab.run(*command, "lr=1,2", cwd=folder).stderr
    lab.wait()
    rows, said = results()
    assert "code" not in rows[0] and "other than" not in said
    (folder / "train.py").write_text("print('stoker: loss=2')\n")
    again = lab.run(*command, "lr=1,2", cwd=folder)
    assert "2 trials of sweep s ran with code other than the code in the folder now" in again.stderr
    assert (
        "hint: run them again with: stoker sweep rerun s 1-2; or use another --name" in again.stderr
    )
    done = lab.run(*command, "lr=1,2,3", "--json", cwd=folder)
    assert json.loads(done.stdout)["other_code"] == [1, 2]
    lab.wait()
    rows, said = results()
    assert rows[0]["code"] == rows[1]["code"] != rows[2]["code"]
    assert "2 trials of sweep s ran with code other than the newest trial (column `code`)" in said
    assert "sweep rerun s 1-2" in said
    lab.ok("sweep", "rerun", "s", "1-2", cwd=folder)
    lab.wait()
    rows, said = results()
    assert "code" not in rows[0] and "other than" not in said
    assert [row["loss"] for row in rows] == [2, 2, 2]


def test_edit_of_an_untracked_script_in_a_repository_is_other_code(lab: Lab) -> None:
    repo = GitRepository(lab.folder / "repo")
    repo.commit(lib_py="", tracked_py="")
    script = repo.write("sub/train.py", "print('stoker: loss=1')\n")
    command = ("sweep", "-n", "s", "--gpus", "0", "python3 train.py {lr} ../tracked.py")

    def said(*words: str) -> str:
        return lab.run(*command, *words, cwd=script.parent).stderr

    assert "other than" not in said("lr=1,2")
    lab.wait()
    assert "other than" not in said("lr=1,2")
    script.write_text("print('stoker: loss=2')\n")
    assert "2 trials of sweep s ran with code other than the code in the folder" in said("lr=1,2,3")
    lab.wait()
    assert "2 trials of sweep s ran with code other" in lab.run("results", "s").stderr
    lab.ok("rerun", "1-2")  # by job
    lab.wait()
    assert "other than" not in lab.run("results", "s").stderr
    script.write_text("print('stoker: loss=3')\n")
    lab.ok("sweep", "rerun", "s", "3", cwd=script.parent)  # by trial
    lab.wait()
    assert "2 trials of sweep s ran with code other" in lab.run("results", "s").stderr
    assert "changed since submit" not in lab.ok("show", "1")


@pytest.mark.parametrize("has_git", [True, False])
def test_file_that_a_command_writes_is_not_code(lab: Lab, has_git: bool) -> None:
    folder = lab.folder / "repo"
    if has_git:
        GitRepository(folder).commit(lib_py="")
    folder.mkdir(exist_ok=True)
    for values in ("x=1,2", "x=1,2,3", "x=1,2,3,4"):
        words = ("-n", "s", "--gpus", "0", "echo {x} >> all.csv; echo {x} >last", values)
        assert "other than" not in lab.run("sweep", *words, cwd=folder).stderr
        lab.wait()


def test_same_code_on_another_branch_is_not_other_code(lab: Lab) -> None:
    repo = GitRepository(lab.folder / "repo")
    repo.commit(train_py="1\n")
    command = ("sweep", "-n", "s", "--hold", "--gpus", "0", "python3 train.py {lr}")
    lab.ok(*command, "lr=1", cwd=repo.folder)
    repo.git("checkout", "-q", "-b", "other")
    assert "code" not in lab.run(*command, "lr=1,2", cwd=repo.folder).stderr
