"""Which job of an earlier run a line of a job file is: what `stoker run --resume` compares.

Two lines are the same job when they run the same thing in the same place with the same resources:
command, folder, declared environment variables, GPU count and the GPUs that qualify. Options that
only guide the schedule (retries, time limit, memory to reserve) do not count, so that they can be
changed for the jobs that failed. Identical lines are told apart by their order.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.core.model import JobSpec

_KEY_BYTES = 16


def job_identity(
    spec: JobSpec,
    declared_env: Iterable[tuple[str, str]],
    declared_resources: Iterable[tuple[str, object]],
) -> str:
    """32 hex digits, equal for equal jobs. Declared is what options say, not what a host has.

    The rest of the environment differs between two logins and is not part of the job.
    """
    import hashlib

    parts = (
        spec.argv, spec.shell, spec.context.cwd, spec.stdout, spec.stderr,
        sorted(dict(declared_env).items()), sorted(declared_resources),
    )  # fmt: skip
    return hashlib.blake2b(repr(parts).encode(), digest_size=_KEY_BYTES).hexdigest()


class Occurrences:
    """Numbers identical jobs in the order of their lines: `KEY:0`, `KEY:1`."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next_key(self, identity: str) -> str:
        number = self._counts.get(identity, 0)
        self._counts[identity] = number + 1
        return f"{identity}:{number}"
