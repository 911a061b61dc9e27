"""Executes a command in the environment of the uv project that contains the current folder.

    python -I -S uv_start.py UV COMMAND ...

`uv run` would stay the parent of the command, and send each signal of the job a second time. So it
runs a program that prints its environment, after uv has locked and installed what is missing, and
this process then executes the command with that environment: it keeps its PID.
"""

import os
import sys

_PRINT_ENVIRONMENT = r"""
import os, sys
for key, value in os.environb.items():
    sys.stdout.buffer.write(key + b"=" + value + b"\0")
"""


def main() -> None:
    uv, command = sys.argv[1], [os.fsencode(word) for word in sys.argv[2:]]
    reading, writing = os.pipe()
    printer = [sys.executable, "-I", "-S", "-c", _PRINT_ENVIRONMENT]
    try:
        pid = os.posix_spawnp(
            uv,
            [uv, "run", "--quiet", "--", *printer],
            os.environb,
            file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_CLOSE, reading)],
        )
    except OSError as error:
        fail(f"cannot activate the uv environment: {uv}: {error.strerror}")
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        how = f"exited with {status}" if status > 0 else f"was killed by signal {-status}"
        fail(f"cannot activate the uv environment: `uv run` {how}")
    pairs = (pair.partition(b"=") for pair in text.split(b"\0") if pair)
    env = {key: value for key, _, value in pairs}
    try:
        os.execvpe(command[0], command, env)
    except FileNotFoundError:
        fail(f"{os.fsdecode(command[0])}: command not found", 127)
    except OSError as error:
        fail(f"{os.fsdecode(command[0])}: {error.strerror}")


def fail(text: str, code: int = 126) -> None:
    # surrogateescape: the name of a program may be any bytes.
    os.write(2, os.fsencode(f"stoker: {text}\n"))
    os._exit(code)


if __name__ == "__main__":
    main()
