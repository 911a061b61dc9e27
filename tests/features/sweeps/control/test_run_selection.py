"""Words that select runs: jobs, sweeps, trials, also on backends."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from stoker.errors import NotFound, UsageError
from stoker.features.results.reports.reports import JobFiles
from stoker.features.results.run_comparison import compare_runs, comparison_json
from stoker.features.results.run_selection import RunSelector, Selection
from tests.finished_sweep import make_sweep
from tests.lab import Lab
from tests.web.cluster_rows import ClusterRows


class Runs:
    """A backend `lab`; jobs 1 and 2 on it; sweep `s` with the jobs 3 to 6. No daemon runs."""

    def __init__(self, lab: Lab) -> None:
        self._rows = rows = ClusterRows(lab)  # its database is closed with it
        rows.started("python train.py --lr 0.1", node="n2")
        rows.finished("python train.py --lr 0.2", node="n3", exit_code=1)
        make_sweep(lab.state_dir, "s", trials=4, steps=3, seeds=2)
        self.db = rows.db
        self._files = JobFiles(str(lab.state_dir))

    def select(self, *words: str) -> Selection:
        return RunSelector(self.db, self._files, is_limited=True).select(words)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    found = Runs(Lab(tmp_path_factory.mktemp("selection"), 2))
    yield found
    found.db.close()


def test_words_select_each_run_once_in_their_order(runs: Runs) -> None:
    found = runs.select("s/2", "1", "s", "4", "1-2", "sweep:s")
    assert [run.word for run in found.runs] == ["s/2", "1", "s/1", "s/3", "s/4", "2"]
    assert [(one.name, one.goal) for one in found.own_metrics] == [("val_loss", "min")]
    assert found.metric_names == ["val_loss", "acc"]
    job = runs.select("4").runs[0]
    assert (job.word, job.sweep, job.row.trial, job.row.params["seed"]) == ("4", "s", 2, 1)


def test_labels_name_what_differs(runs: Runs) -> None:
    def labels(*words: str) -> list[str]:
        return [run.label for run in runs.select(*words).runs]

    assert labels("s/1", "s/2") == ["trial 1: seed=0", "trial 2: seed=1"]
    assert labels("s/1") == ["trial 1"]
    assert labels("s/1", "1")[1] == "job 1: lr=0.1"
    assert labels("1", "2") == ["job 1: lr=0.1", "job 2: lr=0.2"]


def test_jobs_of_a_backend_are_compared_with_jobs_of_this_host(runs: Runs) -> None:
    selection = runs.select("1", "2", "s/1")
    found = comparison_json(compare_runs(runs.db, selection))
    shown = found["runs"]
    assert isinstance(shown, list)
    assert [run["backend"] for run in shown] == ["lab", "lab", "local"]
    assert [run["state"] for run in shown] == ["running", "failed", "done"]
    assert shown[0]["place"] == "lab n2:0,1"
    code = {line["name"]: line["values"] for line in found["code"]}  # type: ignore[attr-defined]
    assert code["host"] == ["n2", "n3", "box"]


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ((), UsageError, "no runs were selected"),
        (("99",), NotFound, "there is no job 99"),
        (("t",), NotFound, "`t` is not a sweep, job or SWEEP/TRIAL"),
        (("t/1",), NotFound, "`t/1` is not a sweep, job or SWEEP/TRIAL"),
        (("s/0",), NotFound, "sweep s has no trial 0"),
        (("s/-1",), UsageError, "`-1` is not the number of a trial of sweep s"),
        (("s/²",), UsageError, "`²` is not the number of a trial of sweep s"),
        (("9-2",), UsageError, "the range `9-2` is reversed"),
    ],
)
def test_unknown_word_is_an_error(
    runs: Runs, words: tuple[str, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        runs.select(*words)


def test_trial_is_its_newest_job_in_every_command(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "--gpus", "0", "echo run $STOKER_JOB_ID of {x}", "x=1,2")
    lab.wait()
    lab.ok("sweep", "rerun", "s", "1")
    lab.wait()
    assert lab.ok("log", "s/1") == "run 3 of 1\n"
    for word in ("s/1", "sweep:s/1"):
        assert [job["id"] for job in json.loads(lab.ok("show", word, "--json"))["jobs"]] == [3]
    assert [row["job"] for row in json.loads(lab.ok("results", "s/1", "--json"))["rows"]] == [3]
    assert [job["id"] for job in json.loads(lab.ok("ls", "name:s/1", "--json"))["jobs"]] == [1, 3]


def test_parameter_that_is_also_a_metric_is_compared(lab: Lab) -> None:
    script = lab.folder / "train.py"
    script.write_text("import sys\nprint('stoker: lr=' + sys.argv[2])\n")
    for lr in ("0.1", "0.2"):
        lab.submit("-G0", "python3", str(script), "--lr", lr)
    lab.wait()
    found = json.loads(lab.ok("results", "1", "2", "--compare", "--json"))
    assert [(one["name"], one["values"]) for one in found["params"]] == [("lr", [0.1, 0.2])]
    assert [(one["name"], one["values"]) for one in found["metrics"]] == [("lr", [0.1, 0.2])]
