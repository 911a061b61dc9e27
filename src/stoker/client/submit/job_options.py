"""The options of a job, declared once for the command line, job files, Python and web forms.

The command line, `#stoker` lines, the Python API, web forms and their documentation are made from
JOB_OPTIONS. An option that the scheduling policy does not read, such as --grace, touches six files:

    this one                               the option, with `in_settings`
    engine/job_settings.py                 its type and default
    python/options.py                      its type for editors
    where it takes effect                  as `job.settings.NAME` in the daemon, or
                                           `order.settings.NAME` in the runner
    frontend/src/screens/option-fields.ts  an input, if the web UI offers it
    frontend/src/words.ts                  the label of the input

The rest follows: dry runs, `show`, JSON and its schema, sweep files, web forms, profiles, stored
jobs, reruns, clones, and jobs on backends (tests/features/backends/test_new_option.py). A new kind
of value also needs its type in forms (web/option_forms.py).

An option that the policy or a query reads is a field of Request or JobSpec (engine/model.py)
instead, set in `parse_options` (parsed_options.py), with a column (engine/store/schema.sql) that
engine/store/submit.py writes, engine/store/reruns.py copies and engine/store/ready_jobs.py reads;
client/views/job.py and client/views/job_types.py show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.client.submit import option_values as kinds
from stoker.client.submit.option_values import Kind
from stoker.errors import UsageError, about, name_option
from stoker.record import Record
from stoker.text.command_line import Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class JobOption(Record):
    """One option of a job."""

    key: str  # in Python, JSON and sweep files
    flags: str
    value: str | None  # name of the value in help texts; None for a switch
    kind: Kind
    help: str
    repeats: bool = False  # the flag may be repeated; its values are joined
    optional: bool = False  # the flag may have a value: --warm or --warm=torch
    is_single: bool = False  # only for one job, not for all jobs of a sweep
    in_queue: bool = False  # only for jobs in the queue, not for `stoker run`
    in_settings: bool = False  # its value is one of JobSettings (engine/job_settings.py)


JOB_OPTIONS = (
    JobOption("gpus", "-G --gpus", "N", kinds.GPU_COUNT,
              "number of GPUs (default: 1 if this host has GPUs, else 0)"),
    JobOption("gpu_mem", "-M --gpu-mem", "SIZE", kinds.MEMORY,
              "GPU memory to reserve on each GPU, e.g. 20G; auto: as much as was measured"),
    JobOption("gpu_ids", "--gpu-ids", "LIST", kinds.GPU_NAMES,
              "use only these GPUs, by index or UUID: 0,2"),
    JobOption("prefer", "--prefer", "LIST", kinds.GPU_NAMES,
              "use these GPUs if they are free: 0,2"),
    JobOption("gpu_model", "--gpu-model", "NAME", kinds.NAME,
              "use only GPUs whose model name contains this, e.g. H200"),
    JobOption("min_gpu_mem", "--min-gpu-mem", "SIZE", kinds.SIZE,
              "use only GPUs with at least this much memory, e.g. 40G"),
    JobOption("exclusive", "--exclusive", None, kinds.SWITCH,
              "do not share GPUs, even if they have several slots"),
    JobOption("share", "--share", "HOW", kinds.SHARE,
              "how to share the GPU: mps (NVIDIA's MPS), mps:50 (with half of its threads at most),"
              " or time (time slices)"),
    JobOption("cpus", "--cpus", "N", kinds.CORE_COUNT,
              "number of CPU cores to reserve (default: 1, or a part of one if the host has fewer"
              " cores than GPU slots)"),
    JobOption("mem", "--mem", "SIZE", kinds.MEMORY,
              "memory of the host to reserve, e.g. 16G; auto uses the peak of earlier runs"),
    JobOption("need", "--need", "NAME=N", kinds.NEEDS,
              "amount of a counter that the settings define under [resources], e.g. licence=1",
              repeats=True),
    JobOption("on", "--on", "NAME", kinds.NAME,
              "run on this backend, e.g. a Slurm cluster (see `stoker backend`); local: this host"),
    JobOption("nodes", "--nodes", "N", kinds.NODE_COUNT,
              "run on N nodes of the backend, with --gpus GPUs on each"),
    JobOption("option", "--option", "K=V", kinds.ENGINE_OPTIONS,
              "option for the engine of the backend, e.g. partition=gpu", repeats=True),
    JobOption("on_oom", "--on-oom", "HOW", kinds.WAY,
              "after a GPU out-of-memory error: retry with more memory (bigger), on another GPU"
              " (elsewhere) or on whole GPUs (alone), or fail", in_settings=True),
    JobOption("name", "-n --name", "NAME", kinds.JOB_NAME, "name of the job, to select it by",
              is_single=True),
    JobOption("cwd", "-C --cwd", "DIR", kinds.PATH, "working directory (default: the current one)"),
    JobOption("env", "-E --env", "K=V", kinds.ENV,
              "set an environment variable; NAME alone copies it", repeats=True),
    JobOption("env_file", "--env-file", "FILE", kinds.ENV_FILE,
              "set environment variables from a file with one K=V per line", repeats=True),
    JobOption("priority", "-p --priority", "N", kinds.WHOLE,
              "a higher number starts first (default: 0)"),
    JobOption("after", "-d --after", "JOB[:COND]", kinds.AFTER,
              "start after job 7 succeeded (7 or 7:ok), finished (7:any) or failed (7:notok); also"
              " 3-9, a name, a tag, 7_3 (index 3 of array 7) or @ (the last job)",
              repeats=True, is_single=True,
              in_queue=True),
    JobOption("array", "--array", "INDICES", kinds.ARRAY,
              "queue one job for each index, which is in $STOKER_ARRAY_INDEX: 0-99, 1,3,5-7,"
              " 0-15:4; 0-99%8 runs at most 8 at once", is_single=True, in_queue=True),
    JobOption("time_limit", "-t --time-limit", "TIME", kinds.MINUTES,
              "stop the job after this long: 90s, 30m, 2h, HH:MM:SS (0: no limit; without unit:"
              " minutes)"),
    JobOption("grace", "--grace", "TIME", kinds.SECONDS,
              "time between SIGTERM and SIGKILL (without unit: seconds)", in_settings=True),
    JobOption("signal", "--signal", "SIG[@TIME]", kinds.SIGNAL,
              "send a signal before the time limit, or when a preemptible job has to give way:"
              " USR1@60 sends it 60 s before (B:USR1@60: only to the shell)",
              in_settings=True),
    JobOption("retries", "-r --retries", "N", kinds.COUNT,
              "retry up to N times if the job fails, with increasing delays", in_settings=True),
    JobOption("restartable", "--restartable", None, kinds.SWITCH,
              "run the job again if it is lost (crash, reboot) or exits with 75",
              in_settings=True),
    JobOption("preemptible", "--preemptible", None, kinds.SWITCH,
              "use idle GPUs and give way: when another job needs the GPU, the job is asked to save"
              " its work, stopped and queued again", in_queue=True),
    JobOption("begin", "--begin", "TIME", kinds.BEGIN,
              "do not start before: 14:30, +2h, 2026-12-24T18:00", is_single=True, in_queue=True),
    JobOption("tags", "-T --tag", "TAG", kinds.TAGS, "tag to select jobs by; a,b sets two tags",
              repeats=True),
    JobOption("group", "--group", "NAME", kinds.NAME,
              "fair-share group; the group that uses the fewest GPUs goes first",
              is_single=True, in_queue=True),
    JobOption("stdout", "-o --stdout", "PATH", kinds.PATH,
              "write output to this file; %j is the job id, %a the index in an array, %x the name"
              " (default: see `stoker log`)",
              is_single=True),
    JobOption("stderr", "-e --stderr", "PATH", kinds.PATH,
              "write stderr to this file (default: same as --stdout)", is_single=True),
    JobOption("hold", "--hold", None, kinds.SWITCH,
              "do not start the job before `stoker release`", in_queue=True),
    JobOption("keep_children", "--keep-children", None, kinds.SWITCH,
              "when the command exits, do not kill its background processes", in_settings=True),
    JobOption("warm", "--warm", "MODULES", kinds.MODULES,
              "fork the Python program from a process that has imported these modules, e.g."
              " torch,numpy (default: those that earlier runs imported)", optional=True,
              in_settings=True),
    JobOption("notify", "--notify", "WHEN[:WHERE]", kinds.NOTIFY,
              "send a notification: end, failure, first-failure or sweep-end (of the jobs submitted"
              " together), time-limit (near), gpu-lost, all; none: not even the default. WHERE: a"
              " place from `stoker notify ls`", repeats=True),
    JobOption("snapshot", "--snapshot", None, kinds.SWITCH,
              "copy the code of the folder's git repository now, and run the job in the copy",
              in_queue=True),
    JobOption("no_snapshot", "--no-snapshot", None, kinds.SWITCH,
              "run the job in its folder, although the settings ask for snapshots",
              in_queue=True),
    JobOption("no_bind", "--no-bind", None, kinds.SWITCH,
              "do not bind the job to the CPUs near its GPUs (hosts with several NUMA nodes)",
              in_settings=True),
    JobOption("conda", "--conda", "ENV", kinds.NAME,
              "run in this conda environment (conda, mamba, micromamba), by name or path"),
    JobOption("venv", "--venv", "PATH", kinds.PATH,
              "run in this virtual environment of Python"),
    JobOption("uv", "--uv", None, kinds.SWITCH,
              "run in the environment of the uv project that contains the working directory"),
    JobOption("module", "--module", "NAME", kinds.TEXTS,
              "load this environment module first, e.g. cuda/12.4; in the order given",
              repeats=True),
    JobOption("container", "--container", "IMAGE", kinds.NAME,
              "run in a container of this image (docker, podman, apptainer) with the job's GPUs"),
    JobOption("mount", "--mount", "SRC:DST", kinds.TEXTS,
              "with --container: a folder that it can use, at this path; SRC:DST:ro for reading",
              repeats=True),
    JobOption("profile", "--profile", "NAME", kinds.TEXTS,
              "use the options of this profile in the settings; other options override them",
              repeats=True),
)  # fmt: skip
DEDUPE = JobOption("dedupe", "--dedupe", "KEY", kinds.NAME, "", is_single=True)
BY_KEY = {option.key: option for option in (*JOB_OPTIONS, DEDUPE)}
NAMES = tuple(BY_KEY)


def flag_options(options: Iterable[JobOption] = JOB_OPTIONS) -> tuple[Option, ...]:
    """Job options as options of the command-line parser."""
    return tuple(
        Option(
            one.flags,
            one.help,
            one.value,
            one.kind.parse,
            many=one.repeats,
            optional=one.optional,
            completes=one.kind.completes,
        )
        for one in options
    )


def flag_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Job options among the values of a parsed command line, by key; repeated flags are joined."""
    found = {}
    for option in BY_KEY.values():
        value = values.get(option.flags.split()[-1].lstrip("-").replace("-", "_"))
        if value is not None:
            found[option.key] = (
                tuple(x for some in value for x in some) if option.repeats else value
            )
    return found


def file_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a sweep file, whose values are written as on the command line."""
    values: dict[str, Any] = {}
    for key, value in options.items():
        option = BY_KEY["tags" if key == "tag" else key]
        if isinstance(value, Mapping):
            value = [f"{name}={text}" for name, text in value.items()]
        elif isinstance(value, list) and not option.repeats:
            value = ",".join(map(str, value))
        for one in value if isinstance(value, list) else [value]:
            if one is None or one is False:
                continue
            try:
                read = option.kind.parse(str(one))
            except UsageError as error:
                raise name_option(f"`{key}`", error, key) from None
            values[option.key] = (*values.get(option.key, ()), *read) if option.repeats else read
    return values


def check_names(options: Iterable[str], known: tuple[str, ...], what: str) -> None:
    """Raise UsageError for an unknown option, with the most similar known one as hint."""
    for key in options:
        if key not in known:
            from stoker.text.suggestions import nearest

            near = nearest(key, known)
            hint = f"did you mean `{near}`?" if near else f"options: {', '.join(known)}"
            raise UsageError(f"`{key}` is not an option of {what}", hint)


def check_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check Python or JSON values one by one. Raises UsageError that names the option."""
    check_names(options, NAMES, "a job")
    values = {}
    for key, value in options.items():
        if value is not None:
            with about(key):
                try:
                    values[key] = BY_KEY[key].kind.check(value)
                except UsageError as error:
                    raise name_option(f"`{key}`", error) from None
    return values


def as_flag(key: str, value: object = None) -> str:
    """The option on the command line: "`--gpus`" for errors, "--gpus 2" for hints."""
    flag = BY_KEY[key].flags.split()[-1]
    return f"`{flag}`" if value is None else f"{flag} {value}"


def as_keyword(key: str, value: object = None) -> str:
    """The option in Python and JSON: "`gpus`" for errors, "gpus=2" for hints."""
    if value is None:
        return f"`{key}`"
    return f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}"
