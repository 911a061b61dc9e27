"""Parse what Slurm's commands print, and say in plain words what Slurm reports."""

from __future__ import annotations

from collections.abc import Iterator

from stoker.errors import UsageError
from stoker.features.backends.nodes import DOWN, DRAINED, UP, Node
from stoker.features.backends.protocol import ENDED, PENDING, RUNNING, UNKNOWN, Status
from stoker.record import Record
from stoker.text.durations import parse_duration

# Job name first: it holds our token. The array id is %F, the task or range of tasks %K.
SQUEUE_FORMAT = "%j|%F|%K|%T|%r|%N"
SINFO_FORMAT = "NodeHost:.100|,StateLong:.40|,Gres:.200|,GresUsed:.200|,CPUs:.20|,Reason:.200"

_PENDING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
_ALIVE = (
    "RUNNING",
    "COMPLETING",
    "CONFIGURING",
    "SUSPENDED",
    "STOPPED",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
)
# How a job ended, as the cause of what was running in it.
_CAUSES = {
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "CANCELLED": "engine_cancel",
    "OUT_OF_MEMORY": "host_oom",
    "PREEMPTED": "preempted",
    "REVOKED": "engine_cancel",
}
_ENDS = {
    "COMPLETED": "completed",
    "FAILED": "its worker failed",
    "TIMEOUT": "time limit",
    "CANCELLED": "cancelled in Slurm",
    "OUT_OF_MEMORY": "out of memory",
    "NODE_FAIL": "its node failed",
    "PREEMPTED": "preempted by another job",
    "BOOT_FAIL": "its node did not boot",
    "DEADLINE": "deadline reached",
    "REVOKED": "moved to another cluster",
    "LAUNCH_FAILED": "its worker could not be started",
    "RECONFIG_FAIL": "its node could not be configured",
}
# Ends that slurmd reported. The others may be those of a node that does not answer.
_CERTAIN = ("COMPLETED", "FAILED", "OUT_OF_MEMORY")
# A node that is powered down is started when it is needed.
_NODE_UP = (
    "idle",
    "mixed",
    "allocated",
    "completing",
    "planned",
    "reserved",
    "powered_down",
    "powering_up",
    "power_up",
    "power_down",
    "powering_down",
)
# Slurm's reason codes of waiting jobs, as sentences.
_REASONS = {
    "Resources": "waits for free resources",
    "Priority": "other jobs in Slurm have a higher priority",
    "Dependency": "waits for another Slurm job",
    "DependencyNeverSatisfied": "waits for a Slurm job that failed, so it never starts",
    "JobHeldUser": "held by the user in Slurm",
    "JobHeldAdmin": "held by an administrator",
    "BeginTime": "its begin time has not come",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "it requests more nodes than the partition allows",
    "PartitionTimeLimit": "its time limit exceeds that of the partition",
    "ReqNodeNotAvail": "a requested node is not available",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": (
        "the nodes that it needs are down, drained or reserved"
    ),
    "QOSMaxJobsPerUserLimit": "you run as many jobs as the QOS allows",
    "QOSMaxGRESPerUser": "your jobs use as many GPUs as the QOS allows",
    "QOSGrpGRES": "jobs of this QOS use all GPUs that it may use",
    "AssocGrpGRES": "your account uses all GPUs that it may use",
    "AssocMaxJobsLimit": "you run as many jobs as your account allows",
    "AssocGrpCpuLimit": "your account uses all CPUs that it may use",
    "Licenses": "waits for a license",
    "Reservation": "waits for its reservation",
    "Cleaning": "being requeued",
    "None": "not considered by Slurm yet",
}

PARTITION_FORMAT = "%P|%l"


class Partition(Record):
    name: str
    is_default: bool
    seconds: float | None  # the longest time limit of a job; None: any


class Listed(Record):
    """One line of squeue: a task of an array, or several waiting ones."""

    name: str
    array: str
    tasks: tuple[int, ...]
    status: Status
    is_cut: bool = False  # there are more tasks than were printed


def parse_queue(text: str) -> Iterator[Listed]:
    """The lines of `squeue -o SQUEUE_FORMAT`. Lines in another format are skipped."""
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) < 6:
            continue
        name, array, tasks, state, reason, node = (field.strip() for field in fields[:6])
        yield Listed(
            name=name,
            array=array,
            tasks=tuple(parse_tasks(tasks)),
            status=status_of(state, reason, node),
            is_cut="..." in tasks,
        )


def parse_tasks(text: str) -> Iterator[int]:
    """The tasks of an array.

    >>> list(parse_tasks("3,7-9%2"))
    [3, 7, 8, 9]
    >>> list(parse_tasks("N/A"))
    [0]
    """
    text = text.partition("%")[0]
    if not text or text in ("N/A", "4294967294"):
        yield 0
        return
    for part in text.strip("[]").split(","):
        first, _, last = part.partition("-")
        last, _, step = last.partition(":")
        last = last.rstrip(".")  # a list that was cut ends with dots
        if first.isdigit():
            yield from range(int(first), int(last or first) + 1, int(step or 1))


def status_of(state: str, reason: str, node: str) -> Status:
    """A job as Slurm reports it."""
    word = _whole_word(state.split(" ")[0])
    if word in _PENDING:
        return Status(state=PENDING, reason=pending_words(reason))
    if word in _ALIVE:
        return Status(state=RUNNING, node=node)
    if word not in _ENDS:
        return Status(state=UNKNOWN)  # of a newer version
    words = _ENDS[word]
    return Status(
        state=ENDED,
        reason=words,
        node=node,
        cause=_CAUSES.get(word, "lost"),
        is_certain=word in _CERTAIN,
    )


def _whole_word(word: str) -> str:
    """The word that sacct has cut: `OUT_OF_ME+`."""
    if not word.endswith("+"):
        return word
    known = [one for one in (*_PENDING, *_ALIVE, *_ENDS) if one.startswith(word[:-1])]
    return known[0] if known else word


def pending_words(reason: str) -> str:
    """Why a job waits: in plain words, with Slurm's own word.

    >>> pending_words("Priority")
    'other jobs in Slurm have a higher priority (Priority)'
    """
    code = reason.strip("() ")
    key = code.partition(",")[0] if code.startswith("ReqNodeNotAvail") else code
    words = _REASONS.get(key)
    return f"{words} ({code})" if words is not None else code.replace("_", " ")


def parse_partitions(text: str) -> list[Partition]:
    """The lines of `sinfo -a -o PARTITION_FORMAT`.

    >>> parse_partitions("gpu*|1-00:00:00\\nlong|infinite\\n")
    [Partition(name='gpu', is_default=True, seconds=86400.0), Partition(name='long', \
is_default=False, seconds=None)]
    """
    found = []
    for line in text.splitlines():
        name, _, limit = line.strip().partition("|")
        found.append(Partition(name.rstrip("*"), name.endswith("*"), parse_limit(limit)))
    return found


def parse_limit(text: str) -> float | None:
    """Seconds of a time limit of Slurm; None if there is none.

    >>> parse_limit("90"), parse_limit("1:30"), parse_limit("infinite")
    (5400.0, 90.0, None)
    """
    try:
        return parse_duration(f"{text}m" if text.isdigit() else text) or None
    except UsageError:
        return None


def parse_nodes(text: str) -> list[Node]:
    """The lines of `sinfo -N -O SINFO_FORMAT`; a node in several partitions counts once."""
    nodes: dict[str, Node] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) < 6:
            continue
        name, state, gres, used, cpus, reason = fields[:6]
        gpus, model = parse_gres(gres)
        word = state.rstrip("*~#!%$@^-+").lower()
        nodes[name] = Node(
            name=name,
            gpus=gpus,
            used_gpus=parse_gres(used)[0],
            state=_node_state(word),
            model=model,
            cpus=int(cpus) if cpus.isdigit() else 0,
            note="" if _node_state(word) == UP else _node_note(word, reason),
        )
    return list(nodes.values())


def _node_state(word: str) -> str:
    if word.startswith("drain"):
        return DRAINED
    return UP if word in _NODE_UP else DOWN


def _node_note(word: str, reason: str) -> str:
    return f"{word}: {reason}" if reason and reason.lower() != "none" else word


def parse_gres(text: str) -> tuple[int, str]:
    """The number of GPUs and their type in a list of generic resources.

    >>> parse_gres("gpu:h200:8(S:0-1),shard:16")
    (8, 'h200')
    >>> parse_gres("gpu:2(IDX:0-1)")
    (2, '')
    """
    count, model = 0, ""
    depth, part, parts = 0, "", []
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append(part)
            part = ""
        else:
            part += char
    for one in (*parts, part):
        words = one.partition("(")[0].split(":")
        if words[0].removeprefix("gres/") != "gpu":
            continue
        if words[-1].isdigit():
            count += int(words[-1])
        if len(words) == 3:
            model = words[1]
    return count, model
