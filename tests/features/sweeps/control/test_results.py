"""`stoker results` and `stoker plot` in every output format."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.lab import Lab

SWEEP = """
command = "echo stoker: loss={lr} state={lr} acc=0.{seed}"
name = "mine"
metric = "loss"
[params]
lr = [1, 2]
seed = [3, 4]
[[include]]
lr = [9]
seed = [5]
extra = ["x"]
"""


@pytest.fixture
def mine(lab: Lab) -> Lab:
    (lab.folder / "mine.toml").write_text(SWEEP.replace("{seed}", "{seed}{extra}"))
    lab.ok("sweep", "mine.toml")
    lab.wait()
    return lab


def test_filter_without_matches_prints_the_header(mine: Lab) -> None:
    nothing = ("results", "mine", "--where", "lr > 100")
    assert mine.ok(*nothing).split() == [
        "TRIAL", "lr", "seed", "extra", "loss", "metric.state", "acc", "STATE", "TIME", "JOB",
    ]  # fmt: skip
    assert json.loads(mine.ok(*nothing, "--json"))["rows"] == []
    assert mine.ok(*nothing, "--csv").startswith("trial,lr,seed,extra,loss,metric.state,")
    assert mine.ok(*nothing, "--jsonl") == ""
    assert mine.ok(*nothing, "--best", "1", "--csv").count("\n") == 1
    assert mine.ok("results", "mine", "--best", "0", "--csv").count("\n") == 1
    assert mine.ok(*nothing, "--where", "`metric.state` > 1", "--sort=-extra", "--csv")
    assert mine.ok(*nothing, "--group", "extra", "--json")
    file = mine.folder / "table.json"
    mine.ok(*nothing, "-o", str(file))
    assert json.loads(file.read_text()) == []


def test_filter_hides_no_column(mine: Lab) -> None:
    header, *lines = mine.ok("results", "mine", "--where", "lr == 1", "--csv").split()
    assert header.split(",")[:5] == ["trial", "lr", "seed", "extra", "loss"]
    assert [line.split(",")[3] for line in lines] == ["", ""]


def test_comparison_of_a_number_with_a_string_is_explained(mine: Lab) -> None:
    done = mine.run("results", "mine", "--where", 'lr < "a"')
    assert done.returncode == 2
    assert "a number cannot be compared with a string" in done.stderr


def test_groups_can_be_exported_in_every_format(mine: Lab, tmp_path: Path) -> None:
    group = ("results", "mine", "--group", "lr", "--metric", "loss")
    assert mine.ok(*group, "--csv").splitlines()[:2] == [
        "lr,n,mean,sd,min,max,missing", "1,2,1.0,0.0,1,1,0",
    ]  # fmt: skip
    assert len(mine.ok(*group, "--best", "1", "--jsonl").splitlines()) == 1
    last = mine.ok(*group, "--sort=-mean", "--limit", "1", "--columns", "lr,max", "--csv")
    assert last.split() == ["lr,max", "9,9"]
    assert json.loads(mine.ok(*group, "--best", "2", "--json"))["groups"][1]["lr"] == 2
    file = tmp_path / "groups.html"
    mine.ok(*group, "-o", str(file))
    assert file.read_text().count("<tr>") == 4
    assert "--group lr,opt" in mine.run(*group, "--all").stderr


def test_groups_can_be_exported_to_parquet(mine: Lab, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "groups.parquet"
    mine.ok("results", "mine", "--group", "lr", "--parquet", str(file))
    assert parquet.read_table(file).to_pydict()["mean"] == [1.0, 2.0, 9.0]
    mine.ok("results", "mine", "--where", "lr > 100", "--parquet", str(file))
    assert parquet.read_table(file).num_rows == 0


def test_best_rows_can_be_sorted_by_another_column(mine: Lab) -> None:
    rows = json.loads(mine.ok("results", "mine", "--best", "3", "--sort=-loss", "--json"))["rows"]
    assert [row["loss"] for row in rows] == [2, 1, 1]


def test_last_report_wins_in_either_file(lab: Lab) -> None:
    write, say = "echo '{{\"loss\": {x}1}}' >> $STOKER_METRICS", "echo stoker: loss={x}2"
    lab.ok("sweep", f"{write}; {say}", "x=1,2", "--name", "said")
    # Within one tick of the kernel's clock, both files would have the same time.
    later = "touch -d '+1 minute' $STOKER_METRICS"
    lab.ok("sweep", f"{say}; {write}; {later}", "x=1,2", "--name", "written")
    lab.wait()
    for name, ends in (("said", [12, 22]), ("written", [11, 21])):
        rows = json.loads(lab.ok("results", name, "--json"))["rows"]
        assert [row["loss"] for row in rows] == ends


def test_plot_as_json_contains_its_data(mine: Lab) -> None:
    drawn = json.loads(mine.ok("plot", "mine", "--json"))
    assert (drawn["schema"], drawn["metric"], drawn["goal"]) == (2, "loss", "min")
    assert (drawn["x"], drawn["left_off"]) == ("step", 0)
    assert drawn["curves"][0] == {
        "run": "mine/1", "label": "trial 1: lr=1, seed=3", "sweep": "mine", "trial": 1, "job": 1,
        "state": "done", "params": {"lr": 1, "seed": 3}, "rank": 0.0, "points": [[0, 1]],
        "raw": None,
    }  # fmt: skip
    (lr,) = json.loads(mine.ok("plot", "mine", "--param", "lr", "--json"))["parameters"]
    assert [point["result"] for point in lr["points"]] == [1, 1, 2, 2, 9]
    every = json.loads(mine.ok("plot", "mine", "--params", "--json"))["parameters"]
    assert [one["name"] for one in every] == ["lr", "seed", "extra"]


@pytest.mark.parametrize(
    ("option", "hint"),
    [("--width=1000000", "24 to 1000"), ("--width=0", "24 to 1000"), ("--height=1", "6 to 500")],
)
def test_plot_size_out_of_range_is_refused(mine: Lab, option: str, hint: str) -> None:
    done = mine.run("plot", "mine", option)
    assert done.returncode == 2
    assert hint in done.stderr


def test_plot_in_a_pipe_has_the_width_of_the_columns_variable(mine: Lab) -> None:
    wide = mine.ok("plot", "mine", "--param", "lr", COLUMNS="120").splitlines()
    narrow = mine.ok("plot", "mine", "--param", "lr", COLUMNS="40").splitlines()
    assert (max(map(len, wide)), max(map(len, narrow))) == (120, 40)


def test_every_view_names_the_same_best_trial(lab: Lab) -> None:
    """The best last value of an accuracy: trial 1 ends at 0.9, trial 2 was at 0.95 and fell."""
    text = "echo stoker: val_acc={first} step=1; echo stoker: val_acc={last} step=2"
    lab.ok(
        "sweep", "-n", "s", "--gpus", "0", text, "first,last=zip((0.5,0.9),(0.95,0.1),(0.2,0.3))"
    )
    lab.wait()
    found = lab.run("results", "s", "--best", "1", "--metric", "val_acc", "--json")
    assert "best by val_acc (max, guessed from its name)" in found.stderr
    assert [row["trial"] for row in json.loads(found.stdout)["rows"]] == [1]
    assert json.loads(found.stdout)["goal"] == "max"
    assert "best (max): first=0.5, last=0.9 with 0.9 at the end" in lab.ok("plot", "s")
    chart = json.loads(lab.ok("plot", "s", "--json"))
    assert (chart["goal"], chart["guessed"]) == ("max", True)
    assert [curve["trial"] for curve in chart["curves"]] == [1, 3, 2]
    report = lab.ok("report", "s")
    assert "the largest first (guessed from its name)." in report
    assert "| 1 | 0.5 | 0.9 | 0.9 |" in report
    lowest = lab.ok("results", "s", "--best", "1", "--metric", "val_acc:min", "--columns", "trial")
    assert lowest.split() == ["TRIAL", "2"]
    groups = lab.run("results", "s", "--metric", "val_acc", "--group", "last")
    assert groups.stdout.splitlines()[1].split()[0] == "0.9"
    assert "best by the mean of val_acc (max" in groups.stderr


def test_goal_that_cannot_be_guessed_is_required(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "--gpus", "0", "echo stoker: gamma={x}", "x=1,2")
    lab.wait()
    done = lab.run("results", "s", "--best", "1", "--metric", "gamma")
    assert done.returncode == 2
    assert "whether `gamma` should be small or large cannot be guessed" in done.stderr
    assert "hint: write --metric gamma:min or --metric gamma:max" in done.stderr
    assert "add --metric gamma:min or gamma:max to mark the best" in lab.ok("plot", "s")
    assert "(best)" not in lab.ok("plot", "s")
    assert "Whether gamma should be small or large is not known" in lab.ok("report", "s")
    for method in ("tpe", "grid"):
        done = lab.run("sweep", "-m", method, "-N", "2", "--metric", "gamma", "echo {x}", "x=1,2")
        assert done.returncode == 2 and "--metric gamma:max" in done.stderr
    assert lab.ok("sweep", "ls", "--json").count('"name"') == 1


def test_sweep_records_a_guessed_goal_and_says_so(lab: Lab) -> None:
    submit = ("sweep", "-n", "s", "--hold", "--gpus", "0", "--metric", "val_acc", "echo {x}", "x=1")
    done = lab.run(*submit)
    assert "the metric is val_acc (max, guessed from its name)" in done.stderr
    assert json.loads(lab.ok("sweep", "show", "s", "--json"))["spec"]["metric"]["goal"] == "max"
    lab.ok("sweep", "-n", "t", "--hold", "--gpus", "0", "--metric", "val_acc:min", *submit[-2:])
    assert "guessed" not in lab.run("sweep", "-n", "t", *submit[3:]).stderr
    assert json.loads(lab.ok("sweep", "show", "t", "--json"))["spec"]["metric"]["goal"] == "min"


def test_exports_have_every_parameter(lab: Lab) -> None:
    """A table on a terminal leaves out parameters that are equal in all rows."""
    lab.ok("sweep", "-n", "s", "--hold", "--gpus", "0", "echo {lr} {seed}", "lr=1,2", "seed=7")
    assert lab.ok("results", "s").split()[:3] == ["TRIAL", "lr", "STATE"]
    assert lab.ok("results", "s", "--csv").startswith("trial,lr,seed,")
    for words in (("--json",), ("--where", "lr == 1", "--json")):
        rows = json.loads(lab.ok("results", "s", *words))["rows"]
        assert [row["seed"] for row in rows] == [7] * len(rows)
        assert all("lr" in row for row in rows)


def test_metric_of_a_sweep_is_a_column_before_the_first_report(lab: Lab) -> None:
    lab.ok(
        "sweep", "-n", "s", "--hold", "--gpus", "0", "--metric", "acc:max", "echo {lr}", "lr=1,2"
    )
    assert "acc" in lab.ok("results", "s", "--sort=-acc").splitlines()[0].split()
    rows = json.loads(lab.ok("results", "s", "--best", "1", "--json"))["rows"]
    assert rows[0]["acc"] is None
    assert "no trial has reported `acc`" in lab.run("plot", "s").stderr
    assert json.loads(lab.ok("sweep", "show", "s", "--json"))["best"] is None


def test_sweep_is_preferred_to_a_folder_of_the_same_name(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "--hold", "--gpus", "0", "echo {x}", "x=1,2")
    folder = lab.folder / "s"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "queue.db")) as foreign:
        foreign.execute("CREATE TABLE mine (x)")
    before = (folder / "queue.db").read_bytes()
    assert len(json.loads(lab.ok("results", "s", "--json"))["rows"]) == 2
    done = lab.run("results", "./s")
    assert done.returncode != 0 and "has schema 0" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["queue.db"]
    assert (folder / "queue.db").read_bytes() == before


def test_hints_name_the_column_or_the_quotes(lab: Lab) -> None:
    lab.ok("sweep", "-n", "s", "--hold", "--gpus", "0", "echo {x}", "x=1,2")
    assert "did you mean `job`?" in lab.run("results", "s", "--columns", "id").stderr
    for words in (("results", "s"), ("ls",)):
        done = lab.run(*words, "--where", "state == done")
        assert "hint: text needs quotes: state == 'done'" in done.stderr


def test_text_that_looks_like_a_range_gets_a_note(lab: Lab) -> None:
    for text in ("0-4", "0..4", "0:4"):
        done = lab.run("sweep", "--dry-run", "echo {s}", f"s={text}")
        assert f"note: `s={text}` is one text; for integers, write 's=int(0,4)'" in done.stderr
    assert len(lab.ok("sweep", "--dry-run", "echo {s}", "s=int(0,4)").splitlines()) == 5
    assert "note" not in lab.run("sweep", "--dry-run", "echo {s}", "s=0-4,5-9").stderr
