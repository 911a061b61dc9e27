"""Process tags: a number that the kernel copies to every process of an attempt.

The tag is the soft limit on file locks (RLIMIT_LOCKS), which Linux has not enforced since 2.4. The
kernel passes it on through fork, exec, setsid, double forks, emptied environments and closed
descriptors, and one system call reads it from any process of the same user.

Some programs reset the limit (`su` and `sudo` through PAM, `ulimit -x`). Therefore each job also
finds the tags of its own attempt and of all attempts around it in its environment, and
job_processes.py uses both, beside the process tree and the session.
"""

from __future__ import annotations

import resource

ENVIRONMENT_VARIABLE = b"STOKER_PROCESS_TAGS"

_RLIMIT_LOCKS = 10
_UNTAGGED = resource.RLIM_INFINITY
# Daemons and runners: whatever job started them, they are not part of it.
DETACHED = (1 << 62) - 1
_ATTEMPT_BITS = 32

Limits = tuple[int, int]


def tag_of(base: int, attempt: int) -> int:
    """The tag of an attempt of the store whose own number is `base` (at most 29 bits)."""
    return base << _ATTEMPT_BITS | attempt


def base_of(tag: int) -> int:
    return tag >> _ATTEMPT_BITS


def attempt_of(tag: int) -> int:
    return tag & ((1 << _ATTEMPT_BITS) - 1)


def own_limits() -> Limits:
    """What `restore` needs to give this process its own tag back."""
    return resource.getrlimit(_RLIMIT_LOCKS)


def set_tag(tag: int) -> None:
    """Processes started from now on carry this tag, unless the hard limit forbids it."""
    try:
        resource.setrlimit(_RLIMIT_LOCKS, (tag, resource.getrlimit(_RLIMIT_LOCKS)[1]))
    except (ValueError, OSError):
        pass  # `ulimit -Hx`: the environment, the session and the process tree remain


def restore(limits: Limits) -> None:
    """Give this process its own tag back after it started a tagged one."""
    resource.setrlimit(_RLIMIT_LOCKS, limits)


def detach() -> None:
    """Make this process, and what it starts, part of no attempt."""
    set_tag(DETACHED)


def retag(pid: int, limits: Limits) -> None:
    """Give another process the tag in `limits`."""
    try:
        resource.prlimit(pid, _RLIMIT_LOCKS, limits)
    except (ProcessLookupError, PermissionError, ValueError):
        pass


def read_tag(pid: int) -> int | None:
    """The tag of a process; None when it has none, is gone, or belongs to another user."""
    try:
        tag = resource.prlimit(pid, _RLIMIT_LOCKS)[0]
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
    """The variable's value for an attempt inside of `outer` (empty: inside of none)."""
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
