"""`stoker pull`: copy logs, metrics and output files of jobs into a folder."""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Iterable, Iterator

from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.client.queue import Queue
from stoker.client.submit.option_values import filled
from stoker.client.views import job as views
from stoker.client.views.job import output_folder
from stoker.engine.store import job_queries
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.logs import job_folder, log_path, metrics_path
from stoker.errors import TryLater, UsageError
from stoker.features.remote.pull_stream import Saved
from stoker.record import Record
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.terminal import printable

DEFAULT_FOLDER = "stoker-jobs"

VERB = Verb(
    "pull",
    "pull [OPTIONS] [JOB...]",
    "Copy logs, metrics and output files of jobs into a folder (default: of the last submitted"
    " job). With --host, from the other machine to this one.",
    (
        Option("--sweep", "all jobs of this sweep", "NAME", filled),
        Option("-o --output", f"folder for the files (default: {DEFAULT_FOLDER})", "DIR", filled),
    ),
    (
        ("stoker --host gpu-box pull 7", "into stoker-jobs/7"),
        ("stoker --host gpu-box pull --sweep brave-otter -o results", ""),
        ("stoker pull done -o backup", ""),
    ),
    """Each job gets a folder DIR/ID with job.json (as `stoker show --json` prints it), log.txt,
metrics.jsonl and output/ (the files in its $STOKER_OUTPUT_DIR). Files that are already there and
have not changed are not copied again. A new DIR gets a .gitignore, so that `submit --sync` does not
send it back.""",
    words="jobs",
)


def run(parsed: Parsed) -> int:
    from stoker.features.remote.pull_stream import Saved, present, save_file, save_link

    found = find_files(parsed)  # first, because it may raise
    folder = target_folder(parsed)
    have = present(folder)
    count = 0
    copied: set[str] = set()
    try:
        for file in found:
            count += 1
            path = os.path.join(folder, file.name)
            if file.target is not None:
                save_link(path, file.target)
            elif file.path is None:
                save_file(path, io.BytesIO(file.content), 0o644, 0)
            else:
                info = os.stat(file.path)
                if have.get(file.name) == [info.st_size, int(info.st_mtime)]:
                    continue
                with open(file.path, "rb") as source:
                    save_file(path, source, info.st_mode & 0o777, int(info.st_mtime))
            copied.add(file.name)
    except OSError as error:
        raise TryLater(f"cannot copy `{error.filename}`: {error.strerror}") from None
    return report(parsed, Saved(count, frozenset(copied)))


def find_files(parsed: Parsed) -> Iterator[PulledFile]:
    """The files of the selected jobs. Raises NotFound or UsageError."""
    if parsed["sweep"] is not None and parsed.words:
        raise UsageError("`--sweep` and jobs exclude each other")
    queue = open_queue()
    words = [f"sweep:{parsed['sweep']}"] if parsed["sweep"] is not None else parsed.words or ["@"]
    return files_to_pull(queue, queue.select(words))


def target_folder(parsed: Parsed) -> str:
    """The folder for the files; created if missing. Raises UsageError if it cannot be used."""
    folder = str(parsed["output"] or DEFAULT_FOLDER)
    if os.path.isdir(folder):
        return folder
    try:
        os.makedirs(folder)
        # Results are neither committed nor sent back by `submit --sync`.
        with open(os.path.join(folder, ".gitignore"), "x", encoding="ascii") as file:
            file.write("*\n")
    except FileExistsError:
        raise UsageError(f"`{folder}` is not a folder") from None
    except OSError as error:
        raise UsageError(f"cannot create `{folder}`: {error.strerror}") from None
    return folder


def report(parsed: Parsed, saved: Saved) -> int:
    """Print what was copied. Returns the exit code 0."""
    folder, copied = target_folder(parsed), len(saved.copied)
    unchanged = f", {saved.files - copied} unchanged" if saved.files > copied else ""
    text = f"{plural(copied, 'file')} copied to {printable(folder)}{unchanged}"
    return print_change(parsed, text, folder=folder, copied=copied, files=saved.files)


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
