"""One call of `schedule`: its options are carried out in the order init, release, status, task."""

from __future__ import annotations

from stoker.compat.foreground.entry import write_line, write_notice
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
    state = StateFile(gpus.actual_state, gpus.count or DEFAULT_COUNT)
    entries = state.read()  # every call creates or repairs the file, even one with a usage error
    call = parse(arguments)
    if state.was_damaged:
        write_notice(
            f"the state file `{state.path}` was damaged and has been reset; "
            "set the number of GPUs with `schedule -i N`"
        )
    if call.wants_help:
        write_line(HELP.rstrip("\n"))
        return 0
    if call.init:
        entries = state.change(lambda _: fresh(call.init[0], call.init[1:]))
    if call.release:
        entries = state.change(lambda old: _released(old, call.release))
        for index in call.release:
            if 0 <= index < len(entries) and not entries[index].avail:
                write_notice(
                    f"GPU {index} stays in use until process {entries[index].task_pid} exits"
                )
    if call.status:
        write_line(status_text(entries).rstrip("\n"))
    if call.task and gpus.driver_error is not None:
        write_notice(
            f"cannot lease the GPUs, so other processes may use them too: {gpus.driver_error}"
        )
    return run_task(call, gpus, state) if call.task else 0


def _released(entries: list[Entry], indices: tuple[int, ...]) -> list[Entry]:
    return [FREE if index in indices else entry for index, entry in enumerate(entries)]
