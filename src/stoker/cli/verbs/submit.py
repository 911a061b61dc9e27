"""`stoker submit`: queue a command, a job file or lines from stdin."""

from __future__ import annotations

import os

from stoker.cli.job_flags import SUBMIT_FLAGS, SYNC, refuse_sync
from stoker.cli.open_queue import open_queue
from stoker.cli.output import as_json, notice, plural, print_json, report_change
from stoker.cli.submit_checks import (
    background_command,
    check_job_file,
    check_program,
    ignored_input,
    misplaced_options,
)
from stoker.client.queue import CHUNK, Queue, Receipt
from stoker.client.submit.job_options import flag_values
from stoker.client.submit.job_specs import JobSpecs
from stoker.client.submit.option_values import filled
from stoker.engine.model import JobSpec
from stoker.engine.store import profiles
from stoker.errors import UsageError
from stoker.text.command_line import Option, Parsed, Verb, parse
from stoker.text.durations import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.cli.script_options import Script


VERB = Verb(
    "submit",
    "submit [OPTIONS] [--] COMMAND... | -",
    "Queue a command. It runs in the current folder and environment as soon as GPUs are free.",
    (
        Option("-f --file", "queue each line of a file as a job; - reads stdin", "FILE"),
        *SUBMIT_FLAGS,
        SYNC,
        Option(
            "--dedupe",
            "queue the job only if no job has this key; makes it safe to repeat the command",
            "KEY",
            filled,
        ),
        Option("--dry-run", "show what would be queued, and queue nothing"),
        Option("-q --quiet", "print only job ids"),
    ),
    (
        ("stoker submit python train.py --lr 0.1", ""),
        (
            "stoker submit 'cd data && ./prepare | tee out'",
            "a command given as one quoted argument is run by your shell",
        ),
        ("stoker submit --gpus 2 --after 7 --retries 3 -- python eval.py", ""),
        ("stoker submit --gpu-mem 20G python train.py", "lets jobs share a GPU"),
        ("stoker submit train.sh", "uses the #SBATCH and #stoker options in the script"),
        ("stoker submit --file jobs.txt", "blank lines and # comments are skipped"),
        ("generate-jobs | stoker submit -", "the same from a pipe"),
        ("stoker submit --array 0-99%8 'python train.py --seed $STOKER_ARRAY_INDEX'", ""),
        ("stoker submit --after @ python eval.py", "when the last submitted job has succeeded"),
        ("stoker submit --gpus 0 --begin +2h --name backup ./backup.sh", ""),
        ("stoker --host gpu-box submit --sync . python train.py", "on another machine"),
    ),
    """Options of Stoker go before COMMAND; everything after its first word is passed to it. Several
words are run directly, without a shell; a command given as one quoted argument is run by your
shell.

In a job file, a backslash at the end continues a line. `#stoker OPTIONS` after a command sets
options of that job; on a line of its own, of all jobs below it.""",
    keeps_words=True,
    aliases=("add",),
    words="files",
)


def run(parsed: Parsed) -> int:
    if parsed.words == ["-"] and not parsed.dashed and parsed["file"] is None:
        parsed = Parsed({**parsed.values, "file": "-"}, [], False)
    refuse_sync(parsed)
    queue = open_queue()
    script = None
    text = None if parsed.dashed else misplaced_options(parsed.words)
    if text is not None:
        notice(f"warning: {text}")
    if parsed.words and parsed["file"] is None and os.path.isfile(parsed.words[0]):
        parsed, script = _with_directives(queue, parsed)
    values = flag_values(parsed.values)
    if queue.settings.snapshot == "ask":
        from stoker.features.code.snapshot_question import with_answer

        values = with_answer(queue.settings, values, is_dry=bool(parsed["dry_run"]))
    specs = JobSpecs(queue.settings, queue.devices(), values)
    if parsed["file"] is not None:
        if parsed.words:
            raise UsageError(f"`--file` and a command (`{parsed.words[0]}`) exclude each other")
        return _submit_file(queue, specs, parsed)
    if not parsed.words:
        raise UsageError("no command given", "example: stoker submit python train.py --lr 0.1")
    spec = specs.command(parsed.words, is_argv=parsed.dashed)
    if script is not None and script.slurm is not None:
        from stoker.cli.script_options import slurm_job

        spec = slurm_job(spec, script.slurm, parsed, queue.settings.state_dir)
    for text in (check_program(spec), background_command(spec), ignored_input()):
        if text is not None:
            notice(f"warning: {text}")
    if parsed["dry_run"]:
        return _dry_run(queue, [spec], parsed)
    receipt = queue.submission(parsed["token"]).add([spec], _now())
    started = False
    try:
        started = not spec.held and queue.ensure_daemon()
    finally:
        # The job is queued even if the daemon cannot start.
        _report(queue, parsed, [receipt], started, spec)
    return 0


def _with_directives(queue: Queue, parsed: Parsed) -> tuple[Parsed, Script | None]:
    """Add the options in the comments of a script; the command line overrides them."""
    from stoker.cli.script_options import read_script

    script = read_script(parsed.words, _is_for_slurm(queue, parsed["on"]))
    if script is not None and "--on" in script.flags and parsed["on"] is None:
        place = script.flags[script.flags.index("--on") + 1 :][:1]
        script = read_script(parsed.words, _is_for_slurm(queue, *place))
    if script is None:
        return parsed, None
    own = parse(Verb("submit", "", "", SUBMIT_FLAGS, words="none"), script.flags)
    if not parsed["quiet"]:
        for text in script.notices:
            notice(f"note: {text}")
    merged = Parsed({**own.values, **parsed.values}, list(script.words), True)
    for option in SUBMIT_FLAGS:
        if option.many and option.key in own.values:
            merged.values[option.key] = [*own[option.key], *(parsed[option.key] or ())]
    if script.slurm is not None:
        from stoker.cli.script_options import slurm_defaults

        merged.values.update(slurm_defaults(script.path, own, merged, script.slurm))
    return merged, script


def _is_for_slurm(queue: Queue, name: str | None = None) -> bool:
    """Whether jobs on this backend, or on the default one, go to Slurm."""
    from stoker.features.backends.backend_requests import find_backend, is_local

    name = name or queue.settings.backend
    return not is_local(name) and find_backend(queue.db, str(name)).kind == "slurm"


def _submit_file(queue: Queue, specs: JobSpecs, parsed: Parsed) -> int:
    from stoker.cli.job_lines import check_file, read_batches

    path = parsed["file"]
    check_job_file(path, "submit")
    if parsed["dry_run"]:
        batches = read_batches(path, CHUNK)
        return _dry_run(queue, [specs.line(line) for batch in batches for line in batch], parsed)
    if path != "-":
        # Check the whole file first: an error in line 900 must not leave 899 jobs in the queue.
        from stoker.cli.job_file_after import AfterChecker

        checker = AfterChecker(queue.db, specs.base)
        check_file(path, lambda line: checker.check(line.number, specs.line(line)))
    submission = queue.submission(parsed["token"])
    receipts: list[Receipt] = []
    started = False
    try:
        for batch in read_batches(path, CHUNK):
            receipts.append(submission.add([specs.line(line) for line in batch], _now()))
            if not parsed["hold"]:
                started = queue.ensure_daemon() or started
    except BaseException:
        if receipts:
            notice(f"{sum(r.added for r in receipts)} jobs from earlier lines were queued")
        raise
    if not receipts:
        notice("no jobs queued: the input has only blank lines and comments")
        return 0
    _report(queue, parsed, receipts, started)
    return 0


def _ranges(receipts: list[Receipt]) -> str:
    """The ids of the new jobs; other submits may have taken ids between two chunks."""
    ranges: list[list[int]] = []
    for receipt in receipts:
        if ranges and ranges[-1][1] == receipt.first - 1:
            ranges[-1][1] += receipt.added
        elif receipt.added:
            ranges.append([receipt.first, receipt.first + receipt.added - 1])
    return ", ".join(f"{first}-{last}" for first, last in ranges)


def _report(
    queue: Queue,
    parsed: Parsed,
    receipts: list[Receipt],
    started: bool,
    only: JobSpec | None = None,
) -> None:
    """`only`: the job or array, if it is not a file."""
    if started:
        from stoker.cli.start_notice import STARTED

        notice(STARTED)
    ids = [job for receipt in receipts for job in receipt.ids]
    state = "held" if parsed["hold"] else "queued"
    jobs = f"job {ids[0]}" if len(ids) == 1 else f"{len(ids)} jobs ({ids[0]} to {ids[-1]})"
    brief = f"{jobs} {state}"
    if parsed["json"]:
        report_change(as_json(jobs=ids), brief)
        return
    if parsed["quiet"]:
        report_change("\n".join(map(str, ids)), str(ids[0]) if len(ids) == 1 else brief)
        return
    lines = [
        f"job {job} already has this key" for receipt in receipts for job in receipt.existing[:5]
    ]
    count = sum(receipt.added for receipt in receipts)
    first = next((receipt.first for receipt in receipts if receipt.added), 0)
    program = parsed["program"] or "stoker"
    if count == 1:
        then = f"start: {program} release" if parsed["hold"] else f"follow: {program} log -f"
        lines.append(f"job {first} {state:<28} {then} {first}")
    elif count and only is not None:
        jobs = f"array {first} {state}: jobs {_ranges(receipts)}"
        lines.append(f"{jobs}{' ' * 12}watch: {program} ls --watch array:{first}")
    elif count:
        ids_text = f"{count} jobs {state}: {_ranges(receipts)}"
        lines.append(f"{ids_text}{' ' * 12}watch: {program} ls --watch")
    if count and only is not None and only.after:
        from stoker.client.views.after import uses_selectors, waits_for_words

        if uses_selectors(only):
            which = f"job {first} waits" if count == 1 else "its jobs wait"
            lines.append(f"{which} for {waits_for_words(queue.db, first)}")
    report_change("\n".join(lines))
    if count == 1:
        _suggest(queue, first)


def _suggest(queue: Queue, job: int) -> None:
    """Print advice if the command profile shows that jobs of this kind could share a GPU."""
    memory = profiles.measured_memory(queue.db, job)
    if memory is not None:
        from stoker.engine.profiles.sharing_advice import sharing_advice
        from stoker.engine.store import job_queries
        from stoker.settings import cores

        request = job_queries.job(queue.db, job).request
        advice = sharing_advice(request, memory, queue.devices(), cores(queue.settings))
        if advice is not None:
            notice(advice)


def _dry_run(queue: Queue, specs: list[JobSpec], parsed: Parsed) -> int:
    from stoker.text.commands.shell_words import display
    from stoker.text.terminal import printable

    specs = [_with_ids(queue, spec) for spec in specs]
    if parsed["json"]:
        from stoker.client.views.after import after_json
        from stoker.client.views.job import spec_json

        jobs = [
            {**spec_json(spec), "held": spec.held, "after": [after_json(one) for one in spec.after]}
            for spec in specs
        ]
        print_json(dry_run=jobs)
        return 0
    for spec in specs:
        kind = f"{spec.context.shell} -c" if spec.shell else "no shell"
        command = printable(display(spec.argv, spec.shell))
        print(f"{printable(_in_words(spec))}  {kind}  {command}")
    notice(f"{plural(_count(specs), 'job')}, none queued (--dry-run)")
    return 0


def _with_ids(queue: Queue, spec: JobSpec) -> JobSpec:
    """The job with the ids of the jobs that its `--after` selects now."""
    if not spec.after:
        return spec
    from stoker.client.views.after import resolved

    return spec._replace(after=resolved(queue.db, spec.after))


def _count(specs: list[JobSpec]) -> int:
    """The number of jobs, with those of arrays."""
    if all(spec.array is None for spec in specs):
        return len(specs)
    from stoker.text.array_indexes import parse_array

    return sum(1 if s.array is None else len(parse_array(s.array).indexes) for s in specs)


def _in_words(spec: JobSpec) -> str:
    """`2 GPUs, at most 2h00m, after 7`: the request of a job, without defaults."""
    from stoker.client.views.job import settings_rows
    from stoker.features.backends.views import request_words

    words = [request_words(spec.request)]
    if spec.request.options:
        words.append(f"options {' '.join(spec.request.options)}")
    if spec.request.prefer:
        words.append(f"prefers {','.join(spec.request.prefer)}")
    if spec.request.preemptible:
        words.append("preemptible")
    if spec.snapshot is not None:
        words.append("in a snapshot")
    if spec.name is not None:
        words.append(f"name {spec.name}")
    if spec.tags:
        words.append(f"tags {' '.join(spec.tags)}")
    if spec.priority:
        words.append(f"priority {spec.priority}")
    if spec.time_limit is not None:
        words.append(f"at most {format_duration(spec.time_limit)}")
    own = spec.settings
    if spec.request.preemptible:
        own = own._replace(restartable=False)  # every preemptible job is
    words += [_labelled(label, text) for label, text in settings_rows(own)]
    if spec.array is not None:
        words.append(f"array {spec.array}")
    if spec.after:
        from stoker.client.views.after import after_text

        words += [f"after {after_text(one)}" for one in spec.after]
    if spec.begin_at is not None:
        import time

        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(spec.begin_at))
        words.append(f"not before {when}")
    if spec.held:
        words.append("held")
    return ", ".join(words)


def _labelled(label: str, text: str) -> str:
    """`retries 3`, `warm start: torch`, `keep children`."""
    return f"{label}{':' if ' ' in label and text else ''} {text}".rstrip()


def _now() -> float:
    import time

    return time.time()
