"""The words of each kind: from the queue, the settings and the tables. Changes nothing."""

from __future__ import annotations

import os

from stoker.states import ACTIVE, FINAL, STATES, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.store.completion_reader import CompletionReader, Words

STATE_WORDS = {
    "all": "all jobs",
    "waiting": "held and queued jobs",
    "active": "jobs that have started and not finished",
    "final": "finished jobs",
    **{state: f"jobs in state {state}" for state in STATES},
}
_GROUPS = {"waiting": WAITING[::-1], "active": ACTIVE[::-1], "final": FINAL, "held": ("held",)}
_COLUMNS = ("trial", "job", "state", "seconds")
_TAIL_BYTES = 4096
_MOST_JOBS = 3  # with metrics of their own
_MOST_FILES = 50


def find_words(kind: str, current: str, given: list[str]) -> Words:
    """Return words of a kind with their descriptions.

    `current`: the beginning of the word. `given`: what was typed before it: the sweep whose metrics
    are wanted, or the groups of states of jobs. Raises sqlite3.Error or OSError.
    """
    if kind == "states":
        return list(STATE_WORDS.items())
    if kind == "contexts":
        return _contexts()
    if kind == "hosts":
        return [*_contexts(), *_ssh_hosts()]
    if kind == "profiles":
        return [(name, "profile") for name in _table_of_settings("profiles")]
    if kind == "settings":
        from stoker.settings import Settings

        return [(key, "setting") for key in Settings._fields]
    if kind == "places":
        return _places()
    if kind == "events":
        return _events(current)
    if kind == "conda":
        return _conda_environments()
    return _from_queue(kind, current, given)


def _from_queue(kind: str, current: str, given: list[str]) -> Words:
    from stoker.engine.store.completion_reader import CompletionReader
    from stoker.settings import load_settings

    folder = load_settings().state_dir
    reader = CompletionReader(folder)
    try:
        return _read(reader, folder, kind, current, given)
    finally:
        reader.close()


def _read(
    reader: CompletionReader, folder: str, kind: str, current: str, given: list[str]
) -> Words:
    if kind == "jobs":
        return _jobs(reader, current, given)
    if kind == "annotated":  # the argument of `note`, `tag` and `star`
        return [
            *_jobs(reader, current, given),
            *([] if current.isdigit() else reader.words("sweeps")),
        ]
    if kind == "results":  # the argument of `results` and `plot`
        return [*reader.words("sweeps"), *_jobs(reader, current, given)]
    if kind == "metrics":
        return _metrics(reader, current, given, folder)
    if kind == "columns":
        sweep = given[0] if given else None
        known = _metrics(reader, "", given, folder)
        return [*reader.params(sweep), *known, *((name, "column") for name in _COLUMNS)]
    if kind == "params":
        return reader.params(given[0] if given else None)
    if kind == "backends":
        return [("local", "this host"), *reader.words("backends")]
    return reader.words(kind)


def _jobs(reader: CompletionReader, current: str, given: list[str]) -> Words:
    """Ids of jobs; names, tags, sweeps and states unless digits were typed.

    `given`: groups of states, in this order; without one, all jobs.
    """
    groups = [group for group in given if group in _GROUPS] or ["active", "waiting", "final"]
    states = [state for group in groups for state in _GROUPS[group]]
    if current[:1].isdigit():
        return reader.jobs(states, current)
    found = [] if current else reader.jobs(states, "")
    found.append(("@", "the last submitted job"))
    found += reader.words("names") + reader.words("tags")
    found += [(f"sweep:{name}", text) for name, text in reader.words("sweeps")]
    return [*found, *STATE_WORDS.items(), ("starred", "jobs with a star")]


def _metrics(reader: CompletionReader, current: str, given: list[str], folder: str) -> Words:
    """Names of metrics; after `NAME:` what to optimize."""
    name, colon, _ = current.partition(":")
    if colon:
        return [(f"{name}:min", "smaller is better"), (f"{name}:max", "larger is better")]
    found = dict(reader.metrics(given[0] if given else None))
    left = _MOST_JOBS
    for job in reader.newest_jobs(_MOST_FILES):
        names = _reported(folder, job)
        for one in names:
            found.setdefault(one, f"metric of job {job}")
        left -= bool(names)
        if not left:
            break
    return list(found.items())


def _reported(folder: str, job: int) -> list[str]:
    """The metrics in the newest report of a job, from its file."""
    path = os.path.join(folder, "jobs", str(job // 1000), f"{job}.metrics.jsonl")
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            line = file.read(_TAIL_BYTES).split(b"\n")[-2]
    except (OSError, IndexError):
        return []
    import json

    try:
        report = json.loads(line)
    except ValueError:
        return []
    return [key for key in report if key not in ("step", "at", "attempt")]


def _contexts() -> Words:
    from stoker.features.remote.boxes import LOCAL, saved_boxes

    saved = [(name, f"ssh {box.host}") for name, box in saved_boxes().items()]
    return [*saved, (LOCAL, "this machine")]


def _ssh_hosts() -> Words:
    """Hosts in the configuration of ssh, without patterns."""
    try:
        with open(os.path.expanduser("~/.ssh/config"), encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file.read(1 << 20).splitlines()]
    except OSError:
        return []
    hosts = [host for line in lines if line and line[0].lower() == "host" for host in line[1:]]
    return [(host, "ssh") for host in hosts if not set(host) & set("*?!")]


def _events(current: str) -> Words:
    """Events of notifications; after `EVENT:` the places that can be notified."""
    from stoker.features.notify.rules import ALL, EVENTS, NONE

    when, colon, _ = current.partition(":")
    if colon:
        return [(f"{when}:{place}", text) for place, text in _places()]
    return [(word, "") for word in (*EVENTS, ALL, NONE)]


def _places() -> Words:
    """The places of notifications, without their addresses, which may contain secrets."""
    names = _table_of_settings("notify", "places")
    return [("desktop", "this desktop"), *((name, "place") for name in names)]


def _table_of_settings(*path: str) -> list[str]:
    """The keys of a table in the settings file."""
    import tomllib

    from stoker.settings import settings_path

    try:
        with open(settings_path(), "rb") as file:
            table: object = tomllib.load(file)
    except (OSError, ValueError):
        return []
    for name in path:
        table = table.get(name) if isinstance(table, dict) else None
    return list(table) if isinstance(table, dict) else []


def _conda_environments() -> Words:
    """Environments that conda has recorded for this user."""
    try:
        with open(os.path.expanduser("~/.conda/environments.txt"), encoding="utf-8") as file:
            folders = file.read(1 << 20).splitlines()
    except OSError:
        return []
    return [(os.path.basename(folder), folder) for folder in folders if folder]


def print_words(arguments: list[str]) -> int:
    """Print words for another machine: `box words {} KIND CURRENT GIVEN...`. Returns 0."""
    kind, current, *given = [*arguments, ""] if len(arguments) == 1 else arguments
    for word, text in find_words(kind, current, given):
        if word.isprintable():
            print(f"{word}\t{' '.join(text.split())}")
    return 0
