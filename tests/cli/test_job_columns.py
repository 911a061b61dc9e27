"""`stoker ls --where`, `--sort` and `--columns`; the page that lists the columns."""

from __future__ import annotations

import re
from pathlib import Path

from stoker.engine.store.job_columns import COLUMNS
from tests.cli.helpers import as_json, refused
from tests.lab import Lab


def test_jobs_are_filtered_and_sorted_in_the_terminal(lab: Lab) -> None:
    for name, loss in (("a", 3), ("b", 1), ("c", 2)):
        lab.submit("-G0", "-n", name, f"echo 'stoker: loss={loss} step=1'; test {name} != c")
    lab.submit("-G0", "--hold", "-n", "d", "true")
    lab.wait(1, 2, 3)

    def found(*words: str) -> list[int]:
        return [job["id"] for job in as_json(lab.ok("ls", "--json", *words))["jobs"]]

    assert found("--where", "metric.loss < 3") == [2, 3]
    assert found("--sort", "-metric.loss") == [1, 3, 2, 4]
    assert found("--where", "exit == 1", "--where", "name == 'c'", "1-4") == [3]
    assert found("--sort", "name:desc", "--limit", "2", "--state", "done") == [2, 1]
    assert found("--where", "name == 'a'", "3") == []
    lines = lab.ok("ls", "--sort", "metric.loss", "--columns", "id,metric.loss,result").splitlines()
    assert [line.split() for line in lines[:5]] == [
        ["ID", "METRIC.LOSS", "RESULT"],
        ["2", "1", "-"],
        ["3", "2", "exit", "1"],
        ["1", "3", "-"],
        ["4", "-", "-"],
    ]
    job = as_json(lab.ok("ls", "2", "--json", "--columns", "param.x,metric.loss"))["jobs"][0]
    assert job["values"] == {"param.x": None, "metric.loss": 1}
    hint = "did you mean `state`?"
    refused(lab.run("ls", "--where", "stat == 'x'"), 2, "unknown column `stat`", hint)
    refused(lab.run("ls", "--columns", "stat"), 2, "unknown column `stat`", hint)
    refused(lab.run("ls", "--sort", "-stat"), 2, "unknown column `stat`", hint)


def test_page_about_tables_lists_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    section = page.partition("## Columns of jobs")[2].partition("## Failures")[0]
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.M)
    assert [name for name, _ in listed] == list(COLUMNS)
    for name, text in listed:
        assert text.endswith(COLUMNS[name].words)


def test_jobs_are_found_by_parameters_of_trials_and_of_commands(lab: Lab) -> None:
    for command in ("echo --lr 0.01", "echo --lr=0.1 --opt adam", "echo lr=0.01", "echo 0.01"):
        lab.submit("-G0", "--hold", *command.split())
    lab.ok("sweep", "--hold", "-G0", "echo {lr}", "lr=0.01,0.1")

    def found(condition: str) -> list[int]:
        return [job["id"] for job in as_json(lab.ok("ls", "--json", "--where", condition))["jobs"]]

    assert found("param.lr == 0.01") == [1, 3, 5]
    assert found("param.opt == 'adam'") == [2]
    job = as_json(lab.ok("ls", "2", "--json", "--columns", "param.lr"))["jobs"][0]
    assert job["values"] == {"param.lr": 0.1}
