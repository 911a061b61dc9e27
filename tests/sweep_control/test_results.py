"""`stoker results` and `stoker plot` in every output format."""

from __future__ import annotations

import json
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
