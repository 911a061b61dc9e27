"""/api/curves and /api/compare: curves and differences of selected runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.finished_sweep import make_sweep
from tests.lab import Lab
from tests.web.conftest import free_port
from tests.web.site import Site


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Sweeps `big` (2 rates x 2 datasets x 3 seeds, 50 steps) and `small`, then job 19."""
    lab = Lab(tmp_path_factory.mktemp("runs"), 2)
    try:
        lab.state_dir.mkdir(mode=0o700, exist_ok=True)
        make_sweep(lab.state_dir, "big", trials=12, steps=50, seeds=3)
        make_sweep(lab.state_dir, "small", trials=6, steps=20, seeds=3)
        lines = [
            f'{{"val_loss": {1 / (n + 1)}, "extra": {x}, "step": {n}}}'
            for n, x in enumerate((0, "NaN", 2))
        ]
        # The job's own option is a parameter of it.
        text = " ".join(f"'{line}'" for line in lines)
        lab.wait(lab.submit(f"printf '%s\\n' {text} >> $STOKER_METRICS; true --lr 0.5"))
        yield Site(lab, "--port", free_port())
    finally:
        lab.close()


def chart(site: Site, query: str) -> dict[str, Any]:
    found = site.ok(f"/api/curves?{query}")["charts"]
    assert len(found) == 1
    return dict(found[0])


def test_curves_of_a_sweep_are_those_of_its_metric_the_best_first(runs: Site) -> None:
    answer = runs.ok("/api/curves?runs=big&lines=5")
    assert answer["metrics"] == ["val_loss", "acc"]
    assert answer["x"] == "step"
    (only,) = answer["charts"]
    assert (only["metric"], only["goal"], only["left_off"], only["note"]) == (
        "val_loss", "min", 7, None,
    )  # fmt: skip
    assert "bands" not in only
    ranked = [line["rank"] for line in only["lines"]]
    assert ranked[0] == 0
    assert ranked == sorted(ranked)
    line = only["lines"][0]
    assert line["run"] == f"big/{line['trial']}"
    assert line["sweep"] == "big"
    assert line["raw"] is None
    assert [x for x, _ in line["points"]] == list(range(50))
    assert set(line["params"]) == {"lr", "dataset", "seed"}
    assert line["label"].startswith(f"trial {line['trial']}: lr=")


def test_bands_have_the_numbers_of_results_group(runs: Site) -> None:
    found = chart(runs, "runs=big&group=lr&lines=0")
    assert found["lines"] == []
    assert found["left_off"] == 12
    printed = json.loads(runs.lab.ok("results", "big", "--group", "lr", "--json"))["groups"]
    assert [band["value"] for band in found["bands"]] == [one["lr"] for one in printed]
    for band, one in zip(found["bands"], printed, strict=True):
        assert band["runs"] == 6
        final = {key: value for key, value in one.items() if key != "lr"}
        assert band["final"] == final
        assert band["mean"][-1] == [49, one["mean"]]
        assert band["low"][-1] == [49, one["min"]]
        assert band["high"][-1] == [49, one["max"]]


def test_smoothed_line_comes_with_its_raw_values_and_fewer_points(runs: Site) -> None:
    found = chart(runs, "runs=big/1&smooth=0.9&points=10&x=time&metric=acc:max")
    assert found["goal"] == "max"
    (line,) = found["lines"]
    assert len(line["points"]) <= 10
    assert len(line["raw"]) <= 10
    assert line["points"][0] == line["raw"][0] == [0.5, line["raw"][0][1]]
    assert line["points"][-1][0] == 25.0
    assert line["points"][-1] != line["raw"][-1]


def test_runs_of_several_sweeps_and_jobs_are_shown_together(runs: Site) -> None:
    found = chart(runs, "runs=19&runs=small&runs=big/2&runs=2&lines=100")
    assert sorted(line["run"] for line in found["lines"]) == sorted(
        ["19", "big/2", *(f"small/{number}" for number in range(1, 7))]
    )
    (job,) = (line for line in found["lines"] if line["run"] == "19")
    assert (job["job"], job["sweep"], job["trial"], job["label"]) == (
        19,
        None,
        None,
        "job 19: lr=0.5",
    )
    assert job["points"] == [[0, 1.0], [1, 0.5], [2, pytest.approx(1 / 3)]]
    (gap,) = chart(runs, "runs=19&metric=extra&smooth=0.5")["lines"]
    assert gap["raw"] == [[0, 0], [1, None], [2, 2]]
    assert [y is None for _, y in gap["points"]] == [False, True, False]
    bands = chart(runs, "runs=small&runs=big&group=sweep")["bands"]
    assert {(band["value"], band["runs"]) for band in bands} == {("small", 6), ("big", 12)}


def test_metric_that_no_run_reported_gives_an_empty_chart_with_a_note(runs: Site) -> None:
    found = chart(runs, "runs=big&metric=f1&group=lr")
    assert (found["lines"], found["bands"]) == ([], [])
    assert found["note"] == "no run has reported `f1`"


def test_comparison_marks_what_differs(runs: Site) -> None:
    answer = runs.ok("/api/compare?runs=big/1&runs=big/2&runs=19")
    assert [one["run"] for one in answer["runs"]] == ["big/1", "big/2", "19"]
    assert [one["state"] for one in answer["runs"]] == ["done"] * 3
    assert answer["runs"][0]["duration"] == 25.0
    params = {one["name"]: one for one in answer["params"]}
    assert params["seed"] == {"name": "seed", "values": [0, 1, None], "differs": True}
    metrics = {one["name"]: one for one in answer["metrics"]}
    assert metrics["extra"]["values"] == [None, None, 2]
    assert metrics["acc"]["best"] is None, "the sweep does not say whether more is better"
    losses = [value for value in metrics["val_loss"]["values"] if value is not None]
    best = metrics["val_loss"]["best"]
    assert metrics["val_loss"]["values"][best] == min(losses)
    code = {one["name"]: one for one in answer["code"]}
    assert code["gpu"]["values"][:2] == ["NVIDIA H200", "NVIDIA H200"]
    assert code["host"]["differs"]
    assert code["backend"] == {"name": "backend", "values": ["local"] * 3, "differs": False}
    assert answer["left_off"] == 0
    assert not any(one["differs"] for one in runs.ok("/api/compare?runs=3")["params"])


def test_comparison_of_many_runs_keeps_the_best(runs: Site) -> None:
    answer = runs.ok("/api/compare?runs=big&limit=2")
    assert answer["left_off"] == 10
    best = json.loads(runs.lab.ok("results", "big", "--best", "2", "--json"))["rows"]
    assert {one["trial"] for one in answer["runs"]} == {one["trial"] for one in best}


# -- the terminal ---------------------------------------------------------------------------------


def test_plot_has_the_numbers_of_the_web_ui(runs: Site) -> None:
    options = ("--group", "lr,sweep", "--smooth", "0.6", "--x", "time")
    printed = json.loads(runs.lab.ok("plot", "big", "small", "19", *options, "--json"))
    shown = chart(
        runs,
        "runs=big&runs=small&runs=19&group=lr,sweep&smooth=0.6&x=time&points=500&lines=500",
    )
    assert printed["curves"] == shown["lines"]
    for field in ("metric", "goal", "bands", "band", "left_off", "note"):
        assert printed[field] == shown[field]
    assert len(shown["bands"]) == 3
    assert "1 run reported without times" in shown["note"]


def test_comparison_in_the_terminal_has_the_numbers_of_the_web_ui(runs: Site) -> None:
    printed = json.loads(runs.lab.ok("results", "big/1", "small/3", "19", "--compare", "--json"))
    assert printed == runs.ok("/api/compare?runs=big/1&runs=small/3&runs=19")


def test_comparison_in_the_terminal_shows_only_what_differs(runs: Site) -> None:
    done = runs.lab.run("results", "big/1", "big/8", "--compare")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["run", "state", "time", "lr", "seed", "val_loss", "acc"]
    assert lines[0] == ["run", "big/1", "big/8"]
    assert "9 properties are equal in all runs; --all shows them" in done.stderr
    whole = runs.lab.ok("results", "big/1", "big/8", "--compare", "--all").split("\n")
    assert {"dataset", "gpu", "command"} <= {line.partition(" ")[0] for line in whole}


def test_comparison_of_many_runs_has_a_line_for_each(runs: Site) -> None:
    done = runs.lab.run("results", "big", "19", "--compare", "-n", "7")
    header, *lines = (line.split() for line in done.stdout.splitlines())
    assert header[:4] == ["run", "state", "time", "lr"]
    assert len(lines) == 7
    assert "6 runs left off: the best by val_loss (min) are compared" in done.stderr


def test_table_of_several_sweeps_names_the_sweep_of_each_row(runs: Site) -> None:
    rows = json.loads(runs.lab.ok("results", "big/3", "small", "19", "--json"))["rows"]
    assert [row["sweep"] for row in rows] == ["big", *["small"] * 6, None]
    assert rows[-1]["lr"] == 0.5
    assert "val_loss over steps" in runs.lab.ok("plot", "big", "small", "--group", "sweep")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("results", "big/1", "--compare"), "--compare needs two runs or more, not 1"),
        (("results", "big", "--compare", "--sort", "lr"), "cannot be combined with --sort"),
        (("results", "big", "--compare", "-n", "999"), "999 runs are too many to compare"),
        (("plot", "big", "--group", "lr", "--param", "lr"), "--group cannot be combined with"),
        (("plot", "big", "--x", "epoch"), "`epoch` is not an axis"),
        (("plot", "big", "--smooth", "1"), "`1` is not a smoothing weight"),
        (("plot", "big", "--group", "sede"), "unknown column `sede`"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    runs: Site, words: tuple[str, ...], message: str
) -> None:
    done = runs.lab.run(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "hint:" in done.stderr


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("curves", 400, "`runs`"),
        ("compare", 400, "`runs`"),
        ("curves?runs=", 400, "`runs"),
        ("curves?runs=99", 404, "there is no job 99"),
        ("compare?runs=bigg", 404, "`bigg` is not a sweep, job or SWEEP/TRIAL"),
        ("compare?runs=big/99", 404, "sweep big has no trial 99"),
        ("compare?runs=big/x", 400, "`x` is not the number of a trial of sweep big"),
        ("curves?runs=big&group=sede", 400, "unknown column `sede`"),
        ("curves?runs=big&smooth=1", 400, "`smooth`"),
        ("curves?runs=big&smooth=nan", 400, "`smooth`"),
        ("curves?runs=big&x=epoch", 400, "`x`"),
        ("curves?runs=big&points=5000", 400, "`points`"),
        ("curves?runs=big&lines=9999", 400, "`lines`"),
        ("curves?runs=big&metric=acc:best", 400, "unknown goal `best`"),
        ("curves?runs=big&lines=500&points=2000&metric=acc&metric=val_loss", 400, "too much"),
        ("compare?runs=big&limit=0", 400, "`limit`"),
        ("curves?" + "&".join(["runs=big"] * 501), 400, "`runs`"),
        ("curves?runs=big&" + "&".join(["metric=acc"] * 31), 400, "`metric`"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(
    runs: Site, path: str, status: int, message: str
) -> None:
    reply = runs.get(f"/api/{path}")
    assert reply.status == status, reply
    assert message in reply.json["error"]["message"]
