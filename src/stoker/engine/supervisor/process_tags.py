"""Process tags: a number that all processes of an attempt inherit.

The tag is the soft limit on file locks (RLIMIT_LOCKS), which Linux has not enforced since 2.4. The
tag survives fork, exec, setsid, double forks, emptied environments and closed descriptors, and one
system call reads it from any process of the same user.

Some programs reset the limit (`su` and `sudo` through PAM, `ulimit -x`). Therefore the
environment of each job also contains the tags of its attempt and of all enclosing attempts.
job_processes.py uses both, together with the process tree and the session.
"""

from __future__ import annotations

import resource

ENVIRONMENT_VARIABLE = b"STOKER_PROCESS_TAGS"

RLIMIT_LOCKS = 10  # as the kernel numbers it; the module resource has no name for it
_UNTAGGED = resource.RLIM_INFINITY
# The tag of daemons and runners: they do not belong to the job that started them.
DETACHED = (1 << 62) - 1
_ATTEMPT_BITS = 32

Limits = tuple[int, int]


def tag_of(base: int, attempt: int) -> int:
    """The tag of an attempt of the store with the number `base` (at most 29 bits)."""
    return base << _ATTEMPT_BITS | attempt


def base_of(tag: int) -> int:
    return tag >> _ATTEMPT_BITS


def attempt_of(tag: int) -> int:
    return tag & ((1 << _ATTEMPT_BITS) - 1)


def own_limits() -> Limits:
    """The limits of this process, for `restore`."""
    return resource.getrlimit(RLIMIT_LOCKS)


def set_tag(tag: int) -> None:
    """Tag the processes started from now on, unless the hard limit forbids it."""
    try:
        resource.setrlimit(RLIMIT_LOCKS, (tag, resource.getrlimit(RLIMIT_LOCKS)[1]))
    except (ValueError, OSError):
        pass  # `ulimit -Hx`: the environment, the session and the process tree remain


def restore(limits: Limits) -> None:
    """Reset the tag of this process after it started a tagged one."""
    resource.setrlimit(RLIMIT_LOCKS, limits)


def detach() -> None:
    """Separate this process, and those that it starts, from all attempts."""
    set_tag(DETACHED)


def retag(pid: int, limits: Limits) -> None:
    """Give another process the tag in `limits`."""
    try:
        resource.prlimit(pid, RLIMIT_LOCKS, limits)
    except (ProcessLookupError, PermissionError, ValueError):
        pass


def read_tag(pid: int) -> int | None:
    """The tag of a process; None if it has none, has exited, or belongs to another user."""
    try:
        tag = resource.prlimit(pid, RLIMIT_LOCKS)[0]
    except (ProcessLookupError, PermissionError):
        return None
    return None if tag == _UNTAGGED else tag


def tags_in_environment(pid: int) -> tuple[int, ...]:
    """The tags that a process was started with, outermost attempt first."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = b"\0" + file.read()
    except OSError:
        return ()
    value = data.partition(b"\0" + ENVIRONMENT_VARIABLE + b"=")[2].partition(b"\0")[0]
    return decode_tags(value)


def encode_tags(outer: bytes, tag: int) -> bytes:
    """The value of the environment variable; `outer` is that of the enclosing attempt, or empty."""
    return outer + b":%x" % tag if outer else b"%x" % tag


def decode_tags(value: bytes) -> tuple[int, ...]:
    """
    >>> decode_tags(encode_tags(encode_tags(b"", 255), 16))
    (255, 16)
    >>> decode_tags(b"not a tag")
    ()
    """
    try:
        return tuple(int(word, 16) for word in value.split(b":")) if value else ()
    except ValueError:
        return ()
