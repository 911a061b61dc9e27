"""Tables of jobs and trials: filters, orders, groups of failures, completion and exports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.lab import Lab
from tests.web.conftest import free_port
from tests.web.site import Site

_SCRIPT = (
    "echo 'stoker: loss={lr} step=1'; case {lr} in 2) exit 3;; 3) exit 3;;"
    " 4) echo 'CUDA out of memory'; exit 1;; esac"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with a sweep of five trials, three of which fail, and jobs with hostile names."""
    folder: Path = tmp_path_factory.mktemp("tables")
    lab = Lab(folder, 2)
    lab.ok("sweep", "--name", "s", "--gpus", "0", "--same-fails", "99", _SCRIPT, "lr=1,2,3,4,5")
    lab.submit("--gpus", "0", "--name", "=1+1", "--tag", "<b>", "echo 'stoker: loss=0.5 step=9'")
    lab.submit("--hold", "--gpus", "0", "true")
    ends = ["done", "done", "done", "failed", "failed", "failed", "held"]
    lab.wait_until(lambda: sorted(lab.states().values()) == ends)
    yield Site(lab, "--port", free_port())
    lab.close()


def asked(site: Site, path: str, **query: object) -> Any:
    return site.ok(f"{path}?{urlencode(query, doseq=True)}")


def ids(answer: Any) -> list[int]:
    return [job["id"] for job in answer["jobs"]]


def test_history_is_filtered_and_sorted_by_metrics_of_finished_jobs(site: Site) -> None:
    found = asked(site, "/api/history", where="metric.loss < 3", sort="-metric.loss",
                  column=["metric.loss", "param.lr", "exit"])  # fmt: skip
    assert [job["values"] for job in found["jobs"]] == [
        {"metric.loss": 2, "param.lr": 2, "exit": 3},
        {"metric.loss": 1, "param.lr": 1, "exit": 0},
        {"metric.loss": 0.5, "param.lr": None, "exit": 0},
    ]
    assert (found["total"], found["next"], found["unread"]) == (3, None, 0)
    pages = [asked(site, "/api/history", sort="exit", limit=3, offset=at) for at in (0, 3, 6)]
    assert [page["next"] for page in pages] == [3, 6, None]
    assert sorted(id for page in pages for id in ids(page)) == [1, 2, 3, 4, 5, 6, 7]
    assert ids(pages[2]) == [7]  # it has no exit code
    newest = asked(site, "/api/history", limit=4)
    assert (ids(newest), newest["next"]) == ([7, 6, 5, 4], 4)
    assert ids(asked(site, "/api/history", before=4)) == [3, 2, 1]
    assert ids(asked(site, "/api/history", q="LOSS=0.5", where="tag == '<b>'")) == [6]


def test_failures_are_grouped_by_how_they_ended(site: Site) -> None:
    for path, find in (
        ("/api/history", lambda where: ids(asked(site, "/api/history", where=where))),
        ("/api/sweeps/s", lambda where: [
            row["job"] for row in asked(site, "/api/sweeps/s/results", where=where)["rows"]]),
    ):  # fmt: skip
        groups = site.ok(f"{path}/failures")["groups"]
        assert [(one["result"], one["size"], one["job"]) for one in groups] == [
            ("exit 3", 2, 3), ("out of GPU memory", 1, 4)
        ]  # fmt: skip
        assert [sorted(find(one["where"])) for one in groups] == [[2, 3], [4]]
    done = asked(site, "/api/history/failures", where="state == 'done'")
    assert done["groups"] == []


def test_error_in_a_filter_has_its_place(site: Site) -> None:
    for path in ("/api/history", "/api/sweeps/s/results", "/api/history/export?format=csv"):
        query = urlencode({"where": "state == 'done' and los < 1"})
        reply = site.get(f"{path}{'&' if '?' in path else '?'}{query}")
        assert reply.status == 400
        error = reply.json["error"]
        assert (error["message"], error["at"]) == ("unknown column `los`", [20, 23])
    reply = site.get("/api/history?where=state+%3D+1")
    assert reply.json["error"]["at"] == [6, 7]
    assert reply.json["error"]["hint"] == "compare with =="


def test_completion_offers_columns_operators_and_values(site: Site) -> None:
    def texts(path: str, text: str) -> list[str]:
        answer = asked(site, f"{path}/complete", text=text, at=len(text))
        return [one["text"] for one in answer["suggestions"]]

    assert "metric.loss" in texts("/api/history", "los")
    assert texts("/api/history", "state == 'fai") == ["'failed'"]
    assert texts("/api/history", "tag == ") == ["'<b>'"]
    assert texts("/api/history", "gpus == 1 ")[:2] == ["and", "or"]
    assert "==" in texts("/api/sweeps/s", "lr ")
    assert texts("/api/sweeps/s", "lr == ") == ["1", "2", "3", "4", "5"]
    names = [one["name"] for one in site.ok("/api/sweeps/s/columns")["columns"]]
    assert names == ["trial", "job", "state", "seconds", "lr", "loss", "result", "cause", "exit"]
    columns = site.ok("/api/history/columns")
    assert {"metric.loss", "param.lr", "duration"} <= {one["name"] for one in columns["columns"]}


def test_export_has_what_the_table_shows(site: Site) -> None:
    query = urlencode({"format": "csv", "where": "exit == 0", "sort": "-metric.loss",
                       "column": ["id", "name", "tag", "metric.loss"]}, doseq=True)  # fmt: skip
    reply = site.get(f"/api/history/export?{query}")
    assert reply.headers["content-disposition"] == 'attachment; filename="jobs.csv"'
    lines = list(csv.reader(io.StringIO(reply.body.decode())))
    assert [line[::3] for line in lines] == [
        ["id", "metric.loss"], ["5", "5"], ["1", "1"], ["6", "0.5"]
    ]  # fmt: skip
    assert lines[-1][1:3] == ["'=1+1", "<b>"]  # not a formula in a spreadsheet
    path = "/api/sweeps/s/export"
    reply = site.get(f"{path}?format=json&where=lr+%3E+3&sort=-lr&column=lr&column=result")
    assert reply.json == [{"lr": 5, "result": None}, {"lr": 4, "result": "out of GPU memory"}]
    assert len(site.get(f"{path}?format=jsonl").body.splitlines()) == 5
    assert site.get(f"{path}?format=xml").status == 400
    problem = site.ok("/api/history/columns")["parquet"]
    reply = site.get(f"{path}?format=parquet")
    assert (reply.status, reply.body[:4]) == (200, b"PAR1") if problem is None else (503, b'{"sc')


def test_terminal_lists_what_the_web_ui_does(site: Site) -> None:
    found = json.loads(site.lab.ok("results", "s", "--where", "result == 'exit 3'", "--json"))
    assert [row["trial"] for row in found["rows"]] == [2, 3]
    found = site.lab.ok("results", "s", "--columns", "lr,cause", "--where", "cause != None")
    assert "gpu_oom" in found


def test_new_sweep_knows_its_metric_and_parameters(site: Site) -> None:
    site.lab.ok("sweep", "-n", "new", "--hold", "--gpus", "0", "--metric", "acc:max",
                "--when", "wd: lr == 9", "echo {lr} {wd}", "lr=1,2", "wd=3")  # fmt: skip
    found = site.ok("/api/sweeps/new/results?sort=-acc&where=wd+%3E+1")
    assert (found["total"], "acc" in found["columns"]) == (0, True)
    found = site.ok("/api/sweeps/new/results?sort=-acc")
    assert (found["total"], [row["acc"] for row in found["rows"]]) == (2, [None, None])
    site.lab.ok("sweep", "-n", "search", "--hold", "-m", "tpe", "-N", "3", "--gpus", "0",
                "--metric", "acc:max", "echo {x}", "x=interval(0,1)")  # fmt: skip
    assert site.get("/api/sweeps/search/results?sort=-acc&where=x+%3E+1").status == 200
