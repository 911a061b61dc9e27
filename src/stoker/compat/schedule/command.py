"""One call of `schedule`: what it asks for is done in the order init, release, status, task."""

from __future__ import annotations

from stoker.compat.foreground.entry import say, write_line
from stoker.compat.schedule.gpus import Gpus
from stoker.compat.schedule.options import HELP, parse
from stoker.compat.schedule.run import run_task
from stoker.compat.schedule.state_file import (
    DEFAULT_COUNT,
    FREE,
    Entry,
    StateFile,
    fresh,
    status_text,
)


def run(arguments: list[str]) -> int:
    gpus = Gpus()
    state = StateFile(gpus.truth, gpus.count or DEFAULT_COUNT)
    entries = state.read()  # every call makes the file, even a wrong one, and puts it right
    call = parse(arguments)
    if state.was_damaged:
        say(f"the state file `{state.path}` was damaged and is begun anew; `schedule -i N` says "
            f"how many GPUs there are")  # fmt: skip
    if call.wants_help:
        write_line(HELP.rstrip("\n"))
        return 0
    if call.init:
        entries = state.change(lambda _: fresh(call.init[0], call.init[1:]))
    if call.release:
        entries = state.change(lambda old: _released(old, call.release))
        for index in call.release:
            if 0 <= index < len(entries) and not entries[index].avail:
                say(f"GPU {index} is in use (PID {entries[index].task_pid}) until that ends")
    if call.status:
        write_line(status_text(entries).rstrip("\n"))
    if call.task and gpus.trouble is not None:
        say(f"the GPUs cannot be leased, so others may be on them: {gpus.trouble}")
    return run_task(call, gpus, state) if call.task else 0


def _released(entries: list[Entry], indices: tuple[int, ...]) -> list[Entry]:
    return [FREE if index in indices else entry for index, entry in enumerate(entries)]
