"""`stoker run`: run a job file, lines from stdin, a sweep or one command in the foreground."""

from __future__ import annotations

import os
import sys
import time
import zlib

from stoker.boot import boot_id
from stoker.cli.job_flags import IDLE, NOT_INTERACTIVE, RUN_FLAGS, sweep_base
from stoker.cli.job_lines import count_jobs
from stoker.cli.open_queue import at_end
from stoker.cli.output import notice
from stoker.cli.run.progress import Screen, print_summary
from stoker.cli.run.run_sources import (
    LineSource,
    WordSource,
    check_gpu_file,
    gpus_of,
    max_parallel_jobs,
    usable_devices,
)
from stoker.cli.submit_checks import check_job_file
from stoker.client.submit.job_options import flag_values
from stoker.client.submit.job_specs import JobSpecs
from stoker.client.submit.option_values import filled
from stoker.engine.daemon.foreground import Foreground, remove_store
from stoker.engine.daemon.interfaces import Host
from stoker.engine.model import LOCAL
from stoker.engine.store import changes, job_queries
from stoker.engine.store.database import FILE_NAME, Database, open_database
from stoker.engine.store.meta import tag_base
from stoker.engine.store.resumable_jobs import FinishedJobs
from stoker.engine.supervisor import locks
from stoker.engine.supervisor.host_size import host_resources
from stoker.engine.supervisor.logs import run_log_path
from stoker.errors import Conflict, Error, UsageError
from stoker.features import call
from stoker.features.notify.store import has_events
from stoker.settings import Settings, cpu_slots, load_settings, prepare_state_dir
from stoker.states import WAITING
from stoker.text.command_line import Option, Parsed, Verb, parse, positive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.cli.run.run_sweep import SweepSource
    from stoker.features.sweeps.spec.spec import SweepSpec

VERB = Verb(
    "run",
    "run [OPTIONS] FILE | - | [--] COMMAND...",
    "Run jobs in the foreground, without the daemon: one at a time on each GPU.",
    (
        Option(
            "-g --devices",
            "GPUs to use: 0,1,1,2; repeat a GPU to run more jobs on it at once, 0+1 is a pair",
            "LIST",
        ),
        Option("--gpu-file", "file with the GPUs to use; it may change while jobs run", "FILE"),
        Option(
            "-j --jobs",
            "maximum number of CPU jobs to run at once (default: number of cores)",
            "N",
            positive,
        ),
        Option("-f --file", "job file, or - for stdin", "FILE"),
        Option("-l --log-dir", "folder for logs and records", "DIR", filled),
        Option("--stream", "print the output of jobs instead of writing log files"),
        Option("--resume", "skip jobs that succeeded in an earlier run of the same file"),
        Option("-q --quiet", "do not show progress"),
        Option(
            "-it --interactive",
            "run a command on this terminal as a job of the queue; see `stoker shell --help`",
        ),
        IDLE,
        *RUN_FLAGS,
    ),
    (
        ("stoker run --devices 0,1 jobs.txt", ""),
        ("stoker run --devices 0,0,1 --resume jobs.txt", "two jobs at a time on GPU 0"),
        (
            "stoker run --devices 0,1 sweep.toml",
            "a sweep; a second run starts only the missing trials",
        ),
        ("tail -f -n 0 queue | stoker run --devices 0,1 -", "run lines appended to a file"),
        ("stoker run python train.py", "one command: prints its output, returns its exit code"),
        ("stoker run -it python", "on this terminal, as soon as a GPU is free"),
        ("stoker run --on lab jobs.txt", "on a backend; see `stoker backend`"),
    ),
    """A file or stdin has one job per line; the exit code is the number of failed jobs, or 101
for more than 100. For a single command, it is the exit code of the command.

  Ctrl-C                   start no more jobs, let running jobs finish; exit code 130
  Ctrl-C twice, SIGTERM    cancel running jobs; exit code 130 (single command: one Ctrl-C)
  SIGUSR1                  like Ctrl-C, but the exit code is the number of failed jobs

Jobs that never started do not count as failed; stderr says how many there are, and --resume runs
them.""",
    keeps_words=True,
    words="files",
)
# Options of foreground runs, which jobs of the queue do not have.
_FOREGROUND = (
    "devices",
    "gpu_file",
    "jobs",
    "file",
    "log_dir",
    "stream",
    "resume",
    "json",
    *(one.key for one in RUN_FLAGS if one.key in NOT_INTERACTIVE),
)
# Extensions of the files of jobs in a log folder.
_KINDS = ("log", "jsonl", "progress", "stop", "requeue")


def run(parsed: Parsed) -> int:
    parsed = _with_flags_after_file(parsed)
    if parsed["help"]:
        from stoker.cli.help import help_text

        print(help_text(VERB))
        return 0
    if parsed["interactive"]:
        return _run_interactive(parsed)
    if parsed["idle"] is not None:
        raise UsageError("`--idle` is for interactive jobs", "add -it")
    settings = load_settings()
    if parsed["gpu_file"] is not None:
        settings = settings._replace(gpu_file=os.path.abspath(parsed["gpu_file"]))
    path = _file_of(parsed)
    sweep = _sweep_of(path)
    if path is not None and sweep is None:
        check_job_file(path, "run")
    place = parsed["on"] or ((sweep.resources or {}).get("on") if sweep is not None else None)
    if place not in (None, LOCAL):
        from stoker.cli.run.run_on_backend import run_on_backend

        return run_on_backend(parsed, path, sweep)
    folder = _folder(parsed, settings, path)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the folder `{folder}`: {error.strerror}") from None
    lock = _lock(folder, settings)
    if not parsed["resume"] and sweep is None:  # a sweep always continues
        _remove_last_run(folder)
    # A --log-dir may contain other files, also a folder `jobs` that is not of a queue.
    db = open_database(folder, durable=False, create=True, is_owner=True)
    at_end(db.close)
    if parsed["resume"] or sweep is not None:
        _remove_waiting(db)
    gpus = gpus_of(parsed, settings, tag_base(db))
    if parsed["gpu_file"] is not None:
        check_gpu_file(parsed["gpu_file"], gpus)
    specs = JobSpecs(settings, usable_devices(gpus), flag_values(parsed.values), in_foreground=True)
    source: LineSource | WordSource | SweepSource
    total = None
    if sweep is not None:
        from stoker.cli.run.run_sweep import SweepSource

        base = sweep_base(settings, usable_devices(gpus), sweep, parsed, in_foreground=True)
        source = SweepSource(
            db,
            folder,
            sweep,
            base,
            max_parallel_jobs(gpus, parsed, settings),
            retries_failed=bool(parsed["resume"]),
        )
    elif path is None:
        source = WordSource(specs.command(parsed.words, is_argv=parsed.dashed))
    else:
        if path != "-":
            total = count_jobs(path, specs.line)
        can_resume = path != "-" or parsed["log_dir"]
        source = LineSource(path, specs, _finished(db, parsed) if can_resume else None)
    streams = bool(parsed["stream"]) or path is None
    screen = Screen(parsed, db, folder, streams, source, total)
    slots = parsed["jobs"] or cpu_slots(settings)
    host = Host(slots, boot_id(), resources=host_resources(settings))
    foreground = Foreground(
        db,
        source,
        host,
        gpus,
        settings._replace(state_dir=folder),
        screen,
        lambda job, number: None if streams else run_log_path(folder, job, number),
        lambda job: os.path.join(folder, str(job)),
        cancels_at_once=path is None,
    )
    screen.foreground = foreground
    foreground.work(screen.redraw)
    screen.close()
    if has_events(db):
        _notify(db, folder, settings)
    os.close(lock)
    return print_summary(parsed, db, folder, path, source, screen, foreground.interrupts)


def _notify(db: Database, folder: str, settings: Settings) -> None:
    """Hand the notifications of the run over to the queue; a failure is only a warning."""
    from stoker.features.notify.foreground import hand_over

    try:
        hand_over(db, folder, settings)
    except Error as error:
        notice(f"warning: no notification was sent: {error.message}")


def _finished(db: Database, parsed: Parsed) -> FinishedJobs:
    return FinishedJobs.load(db) if parsed["resume"] else FinishedJobs()


def _with_flags_after_file(parsed: Parsed) -> Parsed:
    """Accept `run jobs.txt --devices 0`: a job file takes no arguments, so these are options."""
    words = parsed.words
    if parsed["file"] is not None or parsed.dashed or len(words) < 2 or words[1][:1] != "-":
        return parsed
    from shutil import which

    if not _is_job_file(words[0]) or which(words[0]):
        return parsed
    try:
        own = parse(VERB, words[1:])
        if own.words:
            raise UsageError(f"`{own.words[0]}` is not an option")
    except UsageError as error:
        raise UsageError(
            f"`{words[0]}` is read as a job file, because it is not a program: {error.message}",
            f"to run it as a script, name its interpreter: stoker run python {words[0]}",
        ) from None
    values = {**parsed.values, **own.values}
    for key, value in own.values.items():
        if isinstance(value, list):  # repeatable options are joined
            values[key] = [*(parsed[key] or ()), *value]
    return Parsed(values, words[:1], False)


def _is_job_file(word: str) -> bool:
    return os.path.isfile(word) and not os.access(word, os.X_OK)


def _file_of(parsed: Parsed) -> str | None:
    """The path of the job file, `-` for stdin, or None if the words are a command."""
    words = parsed.words
    if parsed["file"] is not None:
        if words:
            raise UsageError(f"`--file` and a command (`{words[0]}`) exclude each other")
        return str(parsed["file"])
    if not words:
        if sys.stdin.isatty():
            raise UsageError(
                "no jobs given", "example: stoker run jobs.txt, or stoker run python train.py"
            )
        return "-"
    if len(words) == 1 and not parsed.dashed:
        if words[0] == "-":
            return "-"
        if _is_job_file(words[0]):
            return words[0]
        if (
            os.path.exists(words[0])
            and not os.path.isfile(words[0])
            and not os.path.isdir(words[0])
        ):  # a FIFO
            return words[0]
    return None


def _sweep_of(path: str | None) -> SweepSpec | None:
    """The sweep in a TOML or YAML file; None for other files."""
    if path is None or not path.lower().endswith((".toml", ".yaml", ".yml")):
        return None
    from stoker.features.sweeps.files.sweep_file import load

    return load(path)


def _folder(parsed: Parsed, settings: Settings, path: str | None) -> str:
    if parsed["log_dir"]:
        return os.path.abspath(str(parsed["log_dir"]))
    prepare_state_dir(settings)
    os.makedirs(os.path.join(settings.state_dir, "runs"), 0o700, exist_ok=True)
    if path is None or path == "-":
        if parsed["resume"]:
            raise UsageError(
                "`--resume` needs a job file or `--log-dir`", "they identify the earlier run"
            )
        return os.path.join(settings.state_dir, "runs", f"{int(time.time() * 1000)}-{os.getpid()}")
    key = zlib.crc32(os.fsencode(os.path.realpath(path)))
    return os.path.join(settings.state_dir, "runs", f"{os.path.basename(path)}-{key:08x}")


def _lock(folder: str, settings: Settings) -> int:
    """Lock the folder: two runs in it would overwrite each other's records and logs.

    Returns the descriptor of the lock file. Raises Conflict if another run holds the lock.
    """
    if os.path.realpath(folder) == os.path.realpath(settings.state_dir):
        raise UsageError(f"`{folder}` is the state folder of the queue", "use another --log-dir")
    try:
        return locks.take(folder, locks.RUN_LOCK)
    except Conflict:
        holder = locks.holder(folder, locks.RUN_LOCK)
        raise Conflict(
            f"another run uses `{folder}` (pid {holder})",
            "wait until it ends, or use another --log-dir",
        ) from None


def _remove_last_run(folder: str) -> None:
    """Remove records and logs of the last run, or new output would be appended to its logs."""
    if os.path.exists(os.path.join(folder, FILE_NAME)):
        import shutil

        for name in os.listdir(folder):
            stem, _, kind = name.partition(".")
            is_ours = stem.isdigit() and kind.rpartition(".")[2] in _KINDS
            if is_ours:
                os.unlink(os.path.join(folder, name))
            elif name.isdigit() and os.path.isdir(os.path.join(folder, name)):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    remove_store(folder)


def _remove_waiting(db: Database) -> None:
    """Remove jobs that a killed run had not started; their lines are read again."""
    left = [row.id for row in job_queries.jobs_in_states(db, WAITING, 10**9)]
    changes.cancel(db, left, time.time())
    changes.remove(db, left)


def _run_interactive(parsed: Parsed) -> int:
    from stoker.cli.open_queue import open_queue

    for key in _FOREGROUND:
        if parsed[key] is not None:
            raise UsageError(f"`-it` and `--{key.replace('_', '-')}` exclude each other")
    if not parsed.words:
        raise UsageError("no command given", "example: stoker run -it python")
    return int(call("run_interactive", open_queue(), parsed, parsed.words))
