"""The table of all jobs: SQL selects the jobs that a filter describes, in the right order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.client.views.job_tables import job_selection
from stoker.engine.store import changes
from stoker.engine.store.database import Database, open_database
from stoker.engine.store.job_table import Filters
from stoker.errors import UsageError
from stoker.features.notes import store as notes
from stoker.features.results.job_export import exported
from stoker.features.results.reports import store as job_metrics
from stoker.text.filters.expressions import Expression, InvalidExpression
from stoker.text.filters.filter_text import FilterText
from tests.engine.store.builders import a_spec, a_store, add

_STATES = ["queued", "running", "done", "failed", "failed", "lost", "cancelled", "done"]
_CAUSES = [None, None, None, "gpu_oom", None, None, "user", None]
_STATUS = [None, None, 0, 256, 256, None, 15, 0]
_METRICS: list[dict[str, object]] = [
    {}, {}, {"loss": 0.5, "kind": "a"}, {"loss": 2}, {}, {"loss": "nan"},
    {'o"dd': 1}, {"loss": -1.5},
]  # fmt: skip


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    db = open_database(str(tmp_path_factory.mktemp("jobs")), durable=False)
    specs = [
        a_spec(f"python train.py --seed {n}", gpus=n % 3, name=("a", None, "träin")[n % 3],
               tags=(("x", "y") if n % 2 else ()))
        for n in range(8)
    ]  # fmt: skip
    for n, spec in enumerate(specs):
        (id,) = add(db, spec, now=1000.0 + n)
        db.execute("UPDATE jobs SET state = ?, cause = ?, ended_at = ?, attempt = ?, attempts = ?,"
                   " ready = 0, priority = ? WHERE id = ?",
                   (_STATES[n], _CAUSES[n], 2000.0 + 10 * n if n > 1 else None, id if n else None,
                    int(n > 0), n % 2, id))  # fmt: skip
        if n:
            db.execute(
                "INSERT INTO attempts (id, job, number, devices, claimed_at, started_at, boot,"
                " status, allocation) VALUES (?, ?, 1, '0', 1500, 1500, 'b', ?, 1)",
                (id, id, _STATUS[n]),
            )
    notes.set_star(db, notes.JOB, [3, 8], True)
    notes.set_note(db, notes.JOB, 3, "diverged at 900", 1.0)
    job_metrics.save(db, [(n + 1, 1, metrics) for n, metrics in enumerate(_METRICS) if n])
    yield db
    db.close()


def found(db: Database, where: str, sort: str | None = None) -> list[int]:
    selection = job_selection([where], sort)
    return selection.table(db).ids(selection.order.columns, before=None, offset=0, limit=100)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("state == 'failed'", [5, 4]),
        ("state in ('failed', 'lost') and gpus >= 1", [6, 5]),
        ("cause == 'gpu_oom'", [4]),
        ("star and 'diverged' in note", [3]),
        ("result == 'out of GPU memory' or result == 'exit 1'", [5, 4]),
        ("exit == 1", [5, 4]),
        ("signal == 15", [7]),
        ("duration > '8m' and duration < 550", [5, 4, 3]),
        ("not (duration > 0)", [1]),
        ("name == 'träin'", [6, 3]),
        ("'ä' in name", [6, 3]),
        ("name == None", [8, 5, 2]),
        ("tag == 'x'", [8, 6, 4, 2]),
        ("'y' not in tag", [7, 5, 3, 1]),
        ("not tag", [7, 5, 3, 1]),
        ("'train.py --seed 7' in command", [8]),
        ("command == 'python train.py --seed 3'", [4]),
        ("metric.loss < 1", [8, 3]),
        ("metric.loss < 1 or state == 'failed'", [8, 5, 4, 3]),
        ("`metric.loss` == 'nan'", [6]),
        ('`metric.o"dd` == 1', [7]),
        ("metric.loss * 2 == 1", [3]),
        ("metric.kind > 'A'", [3]),
        ("id % 3 == 0 and id // 2 == 1", [3]),
        ("1 < id <= 3", [3, 2]),
        ("submitted >= '1970-01-02' and id < 3", []),
        ("submitted < '2h ago'", [8, 7, 6, 5, 4, 3, 2, 1]),
        ("backend == 'local' and sweep == None and gpu == '0'", [8, 7, 6, 5, 4, 3, 2]),
        ("priority", [8, 6, 4, 2]),
        ("metric.loss", [8, 6, 4, 3]),
        ("True", [8, 7, 6, 5, 4, 3, 2, 1]),
        ("id == 99999999999999999999999", []),
        ("id / 0 == 1 or id == 1", [1]),
        ("waited == None", []),
        ("star or note != None", [8, 3]),
    ],
)
def test_filter_selects_jobs(db: Database, where: str, ids: list[int]) -> None:
    assert found(db, where) == ids


@pytest.mark.parametrize(
    ("where", "place", "message"),
    [
        ("stat == 'failed'", "stat", "unknown column `stat`"),
        ("state == 3", "3", "`state` is text, but `3` is a number"),
        ("gpus > 'two'", "'two'", "`gpus` is a number, but `'two'` is text"),
        ("duration > 'long'", "'long'", "`long` is not a duration"),
        ("submitted > '2h'", "'2h'", "`2h` is not a time"),
        ("gpu_peak > 'x'", "'x'", "`x` is not a size"),
        ("gpus + name > 3", "name", "`name` is not a number"),
        ("state == 'failed' and `metric.` > 1", "`metric.`", "unknown column `metric.`"),
        ("duration in gpus", "gpus", "nothing is `in` it"),
        ("gpus == (1, 2)", "(1, 2)", "a list can only be used after `in`"),
        ("(gpus > 1) + 1 > 2", "(gpus > 1)", "is a condition, not a value"),
        ("name < gpus", "gpus", "`name` is text, but `gpus` is a number"),
        ("-name < 1", "name", "not a number"),
    ],
)
def test_error_in_a_filter_of_jobs_has_its_place(where: str, place: str, message: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        job_selection([where])
    assert message in caught.value.message
    assert caught.value.at is not None
    start, end = caught.value.at
    assert where[start:end].strip("()") == place.strip("()")


_NUMBERS = st.sampled_from(["id", "gpus", "duration", "priority", "exit", "metric.loss"])
_TEXTS = st.sampled_from(["state", "name", "cause", "result"])
_ATOMS = st.one_of(
    st.builds("{} {} {}".format, _NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
              st.sampled_from(["0", "1", "2.5", "512", "-1", "gpus", "None"])),
    st.builds("{} {} {}".format, _TEXTS, st.sampled_from(["<", "==", "!=", ">="]),
              st.sampled_from(["'a'", "'failed'", "'exit 1'", "'gpu_oom'"])),
    st.builds("{} {} ({})".format, _TEXTS, st.sampled_from(["in", "not in"]),
              st.sampled_from(["'a', 'failed'", "'exit 1', None", ""])),
    st.builds("{} {} {} < {}".format, _NUMBERS, st.sampled_from(["+", "*", "-", "/", "//", "%"]),
              st.sampled_from(["2", "0.5", "gpus"]), st.sampled_from(["1", "3", "600"])),
    st.builds("{} {} {}".format, st.sampled_from(["'a'", "'il'"]),
              st.sampled_from(["in", "not in"]), _TEXTS),
)  # fmt: skip
_FILTERS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=5,
)


@given(where=_FILTERS)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sql_selects_the_jobs_for_which_the_expression_is_true(db: Database, where: str) -> None:
    typed = FilterText(where)
    selection = job_selection([where])
    table = selection.table(db)
    names = list(typed.names)
    rows = table.values_of(list(range(1, 9)), names)
    wanted = []
    for id, values in rows.items():
        by_identifier = {typed.names[name]: value for name, value in values.items()}
        if Expression(typed.expression.text).matches(by_identifier):
            wanted.append(id)
    ids = table.ids(selection.order.columns, before=None, offset=0, limit=100)
    # A metric that is text in one job makes the whole expression false there only in Python.
    assert set(wanted) ^ set(ids) <= {6}
    assert table.count(100) == len(ids)


@given(where=st.text(max_size=40) | st.builds("{} == {}".format, st.text(max_size=9), st.text()))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_of_a_filter_raises_anything_but_a_usage_error(db: Database, where: str) -> None:
    try:
        found(db, where)
    except UsageError as error:
        at = getattr(error, "at", None)
        assert at is None or 0 <= at[0] <= at[1] <= len(where)


@pytest.mark.parametrize(
    ("sort", "ids"),
    [
        ("id", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("-gpus", [6, 3, 8, 5, 2, 7, 4, 1]),
        ("gpus,id", [1, 4, 7, 2, 5, 8, 3, 6]),
        ("metric.loss", [8, 3, 4, 6, 7, 5, 2, 1]),
        ("-metric.loss", [6, 4, 3, 8, 7, 5, 2, 1]),
        ("cause", [4, 7, 8, 6, 5, 3, 2, 1]),
        ("tag", [8, 6, 4, 2, 7, 5, 3, 1]),
        ("name:desc,id:asc", [3, 6, 1, 4, 7, 2, 5, 8]),
    ],
)
def test_jobs_are_sorted_with_missing_values_last(db: Database, sort: str, ids: list[int]) -> None:
    assert found(db, "True", sort) == ids
    selection = job_selection([], sort)
    pages = [
        selection.table(db).ids(selection.order.columns, before=None, offset=at, limit=3)
        for at in (0, 3, 6)
    ]
    assert [id for page in pages for id in page] == ids


def test_export_has_the_chosen_columns_in_order(db: Database) -> None:
    table = exported(db, job_selection(["gpus == 2"], "id"), ["id", "tag", "submitted", "command"])
    assert table.names == ("id", "tag", "submitted", "command")
    assert table.lines == [
        (3, None, "1970-01-01T00:16:42.000+00:00", "python train.py --seed 2"),
        (6, "x, y", "1970-01-01T00:16:45.000+00:00", "python train.py --seed 5"),
    ]


def test_quick_filters_and_conditions_apply_together(db: Database) -> None:
    filters = Filters(states=("failed", "done"), text="SEED 3")
    selection = job_selection(["gpus == 0"], None, filters)
    table = selection.table(db)
    assert table.ids(selection.order.columns, before=None, offset=0, limit=9) == [4]
    assert table.count(1) == 1
    assert [row[:3] for row in job_selection([]).table(db).failures()] == [
        ("lost", None, None), ("failed", None, 256), ("failed", "gpu_oom", 256)
    ]  # fmt: skip


def test_stored_metrics_follow_the_job(tmp_path: Path) -> None:
    db = a_store(tmp_path)
    (id,) = add(db, a_spec())
    db.execute("UPDATE jobs SET state = 'done', ready = 0, attempts = 1 WHERE id = ?", (id,))
    assert job_metrics.unread(db, 9) == [id]
    job_metrics.save(db, [(id, 1, {"loss": 1}), (77, 1, {})])
    assert (job_metrics.count_unread(db), job_metrics.names(db)) == (0, ["metric.loss"])
    db.execute("UPDATE jobs SET attempts = 2 WHERE id = ?", (id,))  # it was started again
    assert job_metrics.unread(db, 9) == [id]
    assert json.loads(str(db.value("SELECT metrics FROM job_metrics"))) == {"loss": 1}
    changes.remove(db, [id])
    assert db.value("SELECT count(*) FROM job_metrics") == 0
