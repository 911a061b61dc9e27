"""The files of a job that `stoker pull` copies: logs, metrics, output folder, and its record.

7/job.json          the job, as `stoker show --json` prints it
7/log.txt           output of the first attempt; `log.2.txt` of the second
7/stdout, 7/stderr  files given with `submit --stdout` and `--stderr`
7/metrics.jsonl     what it reported
7/output/           the files in $STOKER_OUTPUT_DIR
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator

from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.client.views.job import output_folder
from stoker.engine.store import job_queries
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.logs import job_folder, log_path, metrics_path
from stoker.record import Record


class PulledFile(Record):
    """A file to copy: its path below the target folder, and where it is, or its content."""

    name: str
    path: str | None = None
    content: bytes = b""
    target: str | None = None  # of a symlink


def files_to_pull(queue: Queue, ids: Iterable[int]) -> Iterator[PulledFile]:
    """All files of these jobs that exist."""
    for row in job_queries.jobs(queue.db, list(ids)):
        record = views.job_in_full(queue.db, queue.settings, row)
        text = json.dumps(record, indent=1)
        yield PulledFile(f"{row.id}/job.json", content=f"{text}\n".encode())
        for name, path in _single_files(queue, row):
            if _is_file(path):
                yield PulledFile(f"{row.id}/{name}", path)
        folder = output_folder(queue.settings, row)
        yield from _files_below(folder, f"{row.id}/output")


def _single_files(queue: Queue, row: JobRow) -> Iterator[tuple[str, str]]:
    state_dir = row.files_dir or queue.settings.state_dir
    for number in range(1, row.attempts + 1):
        name = "log.txt" if number == 1 else f"log.{number}.txt"
        yield name, log_path(state_dir, row.id, number)
    if row.stdout:
        yield "stdout", row.stdout
    if row.stderr:
        yield "stderr", row.stderr
    yield "metrics.jsonl", metrics_path(job_folder(state_dir, row.id))


def _files_below(folder: str, prefix: str) -> Iterator[PulledFile]:
    """Files and links that stay inside the folder."""
    root = os.path.realpath(folder)
    for place, folders, names in os.walk(folder):
        folders.sort()
        below = os.path.relpath(place, folder)
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in sorted([*names, *links]):
            path = os.path.join(place, name)
            shown = "/".join([prefix, *([] if below == "." else [below]), name])
            if os.path.islink(path):
                real = os.path.realpath(path)
                if _stays_inside(root, below, os.readlink(path), real):
                    yield PulledFile(shown, target=os.readlink(path))
                elif os.path.isfile(real):
                    yield PulledFile(shown, real)
            elif _is_file(path):
                yield PulledFile(shown, path)


def _stays_inside(root: str, below: str, target: str, real: str) -> bool:
    """Whether a link leads to a place below the root, without another link on the way."""
    if os.path.isabs(target) or os.path.normpath(target) != target:
        return False
    return real == os.path.normpath(os.path.join(root, below, target)) and real.startswith(
        f"{root}/"
    )


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
