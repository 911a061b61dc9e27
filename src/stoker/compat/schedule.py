"""`schedule "python train.py"`: wait for a GPU, run one task on it, free it.

Users of iterait/scheduler know it; also installed as `scheduler.py`.
"""

from __future__ import annotations

import sys

from stoker.compat.door import enter, write_line
from stoker.compat.schedule_gpus import Gpus
from stoker.compat.schedule_options import HELP, parse
from stoker.compat.schedule_run import run_task
from stoker.compat.schedule_state import DEFAULT_COUNT, FREE, Entry, StateFile, fresh, status_text


def main() -> int:
    return enter(run)


def run(arguments: list[str]) -> int:
    gpus = Gpus()
    state = StateFile(gpus.truth, gpus.count or DEFAULT_COUNT)
    entries = state.read()  # every call makes the file, even a wrong one, and puts it right
    call = parse(arguments)
    if state.was_damaged:
        _say(f"the state file `{state.path}` was damaged and is begun anew; `schedule -i N` says "
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
                _say(f"GPU {index} is in use (PID {entries[index].task_pid}) until that ends")
    if call.status:
        write_line(status_text(entries).rstrip("\n"))
    if call.task and gpus.trouble is not None:
        _say(f"the GPUs cannot be leased, so others may be on them: {gpus.trouble}")
    return run_task(call, gpus, state) if call.task else 0


def _released(entries: list[Entry], indices: tuple[int, ...]) -> list[Entry]:
    return [FREE if index in indices else entry for index, entry in enumerate(entries)]


def _say(text: str) -> None:
    """Beside stdout, which scripts read."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
