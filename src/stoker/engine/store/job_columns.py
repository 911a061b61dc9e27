"""The columns of the table of all jobs: what filters and orders of the history can use.

Each is an expression of SQL over one job, so a filter never reads the files of jobs. `metric.NAME`
and `param.NAME` exist for every name; see `features/results/reports/store.py` for the metrics.
"""

from __future__ import annotations

from stoker.record import Record
from stoker.states import FINAL, STARTED, WAITING

# Kinds of values. Text that users wrote is stored as bytes (BLOB), other words as TEXT.
NUMBER, SECONDS, BYTES, TIME = "number", "seconds", "bytes", "time"
WORD, TEXT, COMMAND, TAGS, ANY = "word", "text", "command", "tags", "any"
NUMBERS = (NUMBER, SECONDS, BYTES, TIME)

_JOINS = {
    "a": "LEFT JOIN attempts a ON a.id = j.attempt",
    "g": "JOIN request_groups g ON g.id = j.request_group",
    "c": "JOIN contexts c ON c.id = j.context",
    "s": "LEFT JOIN sweeps s ON s.id = j.sweep",
    "t": "LEFT JOIN trials t ON t.job = j.id",
    "m": "LEFT JOIN job_metrics m ON m.job = j.id AND m.attempts = j.attempts",
}


def _list(states: tuple[str, ...]) -> str:
    return ", ".join(f"'{state}'" for state in states)


FINAL_LIST, _WAITING_LIST, _STARTED_LIST = map(_list, (FINAL, WAITING, STARTED))
# Jobs that ran when the host was restarted have the state that follows; `:boots` is usually {}.
STATE = (
    f"CASE WHEN j.state IN ({_STARTED_LIST}) THEN coalesce((SELECT value FROM json_each(:boots)"
    " WHERE key = CAST(j.id AS TEXT)), j.state) ELSE j.state END"
)
_CAUSE = f"coalesce(j.cause, CASE WHEN j.state IN ({FINAL_LIST}) THEN a.cause END)"


class Condition(Record):
    """SQL that is 0 or 1 for a job, its parameters, and the tables that it needs."""

    sql: str
    values: dict[str, object]
    joins: str


class JobColumn(Record):
    name: str
    kind: str
    sql: str
    joins: str  # one letter for each table, see _JOINS
    words: str  # what it is, for help and completion


_ALL = (
    JobColumn("id", NUMBER, "j.id", "", "number of the job"),
    JobColumn("state", WORD, "j.state", "", "state: queued, running, done, failed, ..."),
    JobColumn("name", TEXT, "j.name", "", "name of the job"),
    JobColumn("command", COMMAND, "stoker_command(j.argv, j.shell)", "", "its command"),
    JobColumn("tag", TAGS, "", "", "one of its tags"),
    JobColumn("result", WORD, f"stoker_result(j.state, {_CAUSE}, a.status, a.detail)", "a",
              "how it failed, in words"),
    JobColumn("cause", WORD, _CAUSE, "a", "why it ended: gpu_oom, time_limit, ..."),
    JobColumn("exit", NUMBER, f"CASE WHEN j.state IN ({FINAL_LIST}) AND a.status & 127 = 0"
              " THEN (a.status >> 8) & 255 END", "a", "exit code"),
    JobColumn("signal", NUMBER, f"CASE WHEN j.state IN ({FINAL_LIST}) AND a.status & 127 != 0"
              " THEN a.status & 127 END", "a", "number of the signal that ended it"),
    JobColumn("duration", SECONDS, f"CASE WHEN j.state IN ({_STARTED_LIST})"
              f" THEN max(0, :now - a.started_at) WHEN j.state IN ({FINAL_LIST})"
              " THEN max(0, j.ended_at - a.started_at) END", "a",
              "seconds that it ran; text may have units: '1h30m'"),
    JobColumn("waited", SECONDS, f"CASE WHEN j.state IN ({_WAITING_LIST}, 'submitted')"
              " THEN :now - j.submitted_at ELSE max(0, a.started_at - j.submitted_at) END", "a",
              "seconds from its submission to its start"),
    JobColumn("submitted", TIME, "j.submitted_at", "", "when: '2026-11-16', 'today', '2h ago'"),
    JobColumn("started", TIME, f"CASE WHEN j.state NOT IN ({_WAITING_LIST}) THEN a.started_at END",
              "a", "when its newest attempt started"),
    JobColumn("ended", TIME, "j.ended_at", "", "when it ended"),
    JobColumn("gpus", NUMBER, "g.gpus", "g", "number of GPUs that it requests"),
    JobColumn("gpu", WORD, f"CASE WHEN j.state IN ({_WAITING_LIST}) THEN NULL"
              " WHEN a.node IS NOT NULL THEN a.node || ':' || coalesce(a.gpus, '')"
              " ELSE nullif(a.devices, '') END", "a", "the GPUs on which it ran: '0,1'"),
    JobColumn("gpu_mem", BYTES, "g.memory", "g", "GPU memory that it requests: '20G'"),
    JobColumn("gpu_peak", BYTES, "a.gpu_memory", "a", "most GPU memory that it used: '20G'"),
    JobColumn("gpu_use", NUMBER, "a.gpu_use", "a", "mean utilization of its GPUs, percent"),
    JobColumn("mem_peak", BYTES, "a.max_rss_bytes", "a", "most memory of the host that it used"),
    JobColumn("energy", NUMBER, "a.gpu_energy", "a", "energy of its GPUs, joules"),
    JobColumn("cpus", NUMBER, "nullif(g.cpus, 0)", "g", "cores that it requests"),
    JobColumn("backend", WORD, "CASE g.backend WHEN '' THEN 'local' ELSE g.backend END", "g",
              "where it runs; 'local' is this host"),
    JobColumn("node", WORD, "a.node", "a", "its node on a backend"),
    JobColumn("sweep", TEXT, "s.name", "s", "its sweep"),
    JobColumn("trial", NUMBER, "t.number", "t", "its trial in the sweep"),
    JobColumn("array", NUMBER, "CASE WHEN j.array_index IS NOT NULL THEN j.batch END", "",
              "its array"),
    JobColumn("index", NUMBER, "j.array_index", "", "its index in the array"),
    JobColumn("priority", NUMBER, "j.priority", "", "its priority"),
    JobColumn("attempts", NUMBER, "j.attempts", "", "how often it was started"),
    JobColumn("star", NUMBER, "(SELECT 1 FROM job_annotations n WHERE n.job = j.id AND n.starred)",
              "", "1 if it has a star"),
    JobColumn("note", TEXT, "(SELECT nullif(n.note, x'') FROM job_annotations n"
              " WHERE n.job = j.id)", "", "its note"),
    JobColumn("folder", TEXT, "c.cwd", "c", "its working directory"),
)  # fmt: skip
COLUMNS = {column.name: column for column in _ALL}
_OTHER_NAMES = {
    "job": "id", "status": "state", "time": "duration", "seconds": "duration",
    "runtime": "duration", "elapsed": "duration", "tags": "tag", "on": "backend", "host": "node",
    "cwd": "folder", "user": "name", "reason": "cause", "error": "result", "created": "submitted",
    "finished": "ended", "starred": "star", "notes": "note",
    "memory": "gpu_peak", "args": "command", "cmd": "command",
}  # fmt: skip
_NAMED = {
    "metric": ("m.metrics", "m", ""),
    "param": ("t.point", "t", "[0]"),  # a value, and how it is written in the command
}


def is_column(name: str) -> bool:
    kind, dot, rest = name.partition(".")
    return name in COLUMNS or bool(dot and rest and kind in _NAMED)


def find_column(name: str) -> str:
    """Return the name of a column; raises UsageError with a suggestion."""
    if is_column(name):
        return name
    from stoker.text.filters.filter_text import unknown_column

    unknown_column(name, [*COLUMNS, "metric.NAME", "param.NAME"], _OTHER_NAMES)


def column(name: str) -> JobColumn:
    """The column of a name that `find_column` returned."""
    if name in COLUMNS:
        return COLUMNS[name]
    kind, _, rest = name.partition(".")
    blob, joins, part = _NAMED[kind]
    if any(char in rest for char in '"\\'):  # a path cannot quote them
        literal = "CAST(x'" + rest.encode("utf-8", "replace").hex() + "' AS TEXT)"
        value = f"json_extract(value, '${part}')" if part else "atom"
        sql = f"(SELECT {value} FROM json_each({blob}) WHERE key = {literal})"
    else:
        path = f'$."{rest}"{part}'.encode("utf-8", "replace").hex()
        sql = f"json_extract({blob}, CAST(x'{path}' AS TEXT))"
    if kind == "param":  # a job outside a sweep has those of its command
        literal = "CAST(x'" + rest.encode("utf-8", "replace").hex() + "' AS TEXT)"
        sql = f"iif(t.job IS NULL, stoker_param(j.argv, j.shell, {literal}), {sql})"
    return JobColumn(name, ANY, sql, joins, f"{kind} `{rest}`")


def joins_of(letters: str) -> str:
    """The tables to join to `jobs j`."""
    return " ".join(sql for letter, sql in _JOINS.items() if letter in letters)


def has_metrics(letters: str) -> bool:
    return "m" in letters
