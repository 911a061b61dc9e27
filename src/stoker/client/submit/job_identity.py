"""Job identity: how `stoker run --resume` matches a line of a job file with an earlier job.

Two lines are the same job if these are equal: command, folder, declared environment variables, GPU
count and the GPUs that qualify. Options that only affect scheduling (retries, time limit, memory
to reserve) are ignored, so that users can change them for failed jobs. Identical lines are
distinguished by their order.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.model import JobSpec

_KEY_BYTES = 16


def job_identity(
    spec: JobSpec,
    declared_env: Iterable[tuple[str, str]],
    declared_resources: Iterable[tuple[str, object]],
) -> str:
    """Return 32 hex digits that are equal for equal jobs.

    Only what options declare counts. The inherited environment differs between logins and is not
    part of the identity.
    """
    import hashlib

    parts = (
        spec.argv,
        spec.shell,
        spec.context.cwd,
        spec.stdout,
        spec.stderr,
        sorted(dict(declared_env).items()),
        sorted(declared_resources),
    )
    return hashlib.blake2b(repr(parts).encode(), digest_size=_KEY_BYTES).hexdigest()


class Occurrences:
    """Numbers identical jobs in the order of their lines: `IDENTITY:0`, `IDENTITY:1`."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next_key(self, identity: str) -> str:
        number = self._counts.get(identity, 0)
        self._counts[identity] = number + 1
        return f"{identity}:{number}"
