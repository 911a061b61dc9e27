"""`stoker pull`: copy logs, metrics and output files of jobs into a folder."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

from stoker.cli.open_queue import open_queue
from stoker.cli.output import plural, print_change
from stoker.client.submit.option_values import filled
from stoker.errors import TryLater, UsageError
from stoker.features.artifacts.pull_files import PulledFile, files_to_pull
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.features.remote.pull_stream import Saved

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
    folder = output_folder(parsed)
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


def output_folder(parsed: Parsed) -> str:
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
    folder, copied = output_folder(parsed), len(saved.copied)
    unchanged = f", {saved.files - copied} unchanged" if saved.files > copied else ""
    text = f"{plural(copied, 'file')} copied to {printable(folder)}{unchanged}"
    return print_change(parsed, text, folder=folder, copied=copied, files=saved.files)
