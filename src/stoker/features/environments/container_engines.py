"""Programs that run containers, and what they can do with one that is running.

A container of docker is not a child of the process that started it: it goes on when that process
is killed. It has a name made from the tag of its attempt, and is removed by that name. Apptainer
runs the command as a child, like any other program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from stoker.text.activation import DOCKER, ENGINES, PODMAN

QUEUE_LABEL = "stoker.queue"


def find_engine(path: str | None) -> str | None:
    """The first engine among the programs in a PATH, or None."""
    for engine in ENGINES:
        if find_program(engine, path) is not None:
            return engine
    return None


def find_program(name: str, path: str | None) -> str | None:
    """The path of a program in a PATH, or None."""
    for folder in (path or os.defpath).split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return os.path.abspath(candidate)
    return None


def is_detached(engine: str) -> bool:
    """Whether a container goes on after the death of the process that started it."""
    return engine in (DOCKER, PODMAN)


def container_name(tag: int) -> str:
    return f"stoker-{tag:x}"


def remove_words(program: str, tag: int) -> list[str]:
    """The command that kills and removes the container of an attempt, if there is one."""
    return [program, "rm", "--force", container_name(tag)]


def pause_words(program: str, tag: int, *, is_over: bool) -> list[str]:
    return [program, "unpause" if is_over else "pause", container_name(tag)]


def start_helper(words: list[str], env: Mapping[bytes, bytes]) -> int | None:
    """Start a command of an engine without output; returns its PID, None if that is impossible."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        return os.posix_spawn(
            words[0],
            words,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)],
            setsid=True,
        )
    except OSError:
        return None
    finally:
        os.close(null)


def remove_all(base: int) -> None:
    """Kill and remove the containers of all attempts of a queue, and wait for that."""
    import subprocess

    for engine in filter(is_detached, ENGINES):
        program = find_program(engine, os.environ.get("PATH"))
        if program is None:
            continue
        listing = [program, "ps", "--all", "--quiet", "--filter", f"label={QUEUE_LABEL}={base:x}"]
        try:
            found = subprocess.run(
                listing, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
            ).stdout.split()
            if found:
                remove = [os.fsencode(program), b"rm", b"--force", *found]
                subprocess.run(remove, capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue  # an engine that does not answer has to be repaired first
