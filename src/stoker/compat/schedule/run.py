"""One task of `schedule` from the end of the line to its exit code."""

from __future__ import annotations

import os
import signal
import time

from stoker.compat.foreground.entry import write_line, write_notice
from stoker.compat.foreground.jobs import wants_zero
from stoker.compat.schedule.gpus import TIME, Gpus
from stoker.compat.schedule.options import STDOUT, Call
from stoker.compat.schedule.state_file import Entry, StateFile
from stoker.compat.schedule.state_repair import StateRepair
from stoker.compat.schedule.task import (
    Signals,
    Task,
    check_program,
    exit_code,
    number_in,
    stop_here,
)
from stoker.compat.schedule.wait import QueuePlace
from stoker.core.record import Record
from stoker.daemon.gpus.process_owners import user_name
from stoker.devices.leases.lease import Lease
from stoker.errors import UsageError
from stoker.settings import load_settings
from stoker.supervisor.regular_files import open_for_output

# In case of things that are no news, such as a process ahead of us that somebody stopped.
_LOOK_ANYWAY_SECONDS = 1.0
_TELL_SECONDS = 0.2
_AVOIDED_SECONDS = 0.9  # then it is looked at again
_KILL_DELAY = 3.0  # seconds between the second Ctrl-C and a third that counts


class GrantedGpus(Record):
    """Our turn has come."""

    lease: Lease
    gpus: tuple[int, ...]


def run_task(call: Call, gpus: Gpus, state: StateFile) -> int:
    check_program(call.task[0])
    _check_possible(call, len(state.peek()))
    for path in (call.out, call.err):
        _check_output(path)
    signals = Signals()
    place = QueuePlace(call, gpus.claim)
    try:
        turn = _wait(call, gpus, place, state, signals)
        if isinstance(turn, int):
            return 128 + turn  # also when it was told to give up: the task was not run
        words = number_in(call.task, turn.gpus[0])
        if call.is_cx:
            words += (f"model.n_gpus={len(turn.gpus)}",)
        began = time.time()
        task = Task(words, _environment(gpus, turn.gpus), call.out, call.err, turn.lease,
                    is_warned=call.is_second)  # fmt: skip
        _tell(gpus, state, turn.gpus, words, task.pid, began, call.is_second)
    finally:
        place.leave()  # not before the file shows who is there
    mender = StateRepair(task.pid)
    task.ignore(mender.pid)
    task.go()
    outcome = task.wait(signals, _kill_delay(), load_settings().grace)
    gpus.ours.clear()
    gpus.await_release(turn.gpus)
    state.read()
    mender.dismiss()
    if call.is_verbose or call.is_second:
        _print_summary(call, words, began, time.time())
    if outcome.detail is not None:
        write_notice(f"error: {outcome.detail}")
    return 0 if wants_zero(call.exits_zero) else exit_code(outcome)


def _check_possible(call: Call, count: int) -> None:
    """What the end of no task could ever make possible is not waited for."""
    known = f"schedule knows {count} GPUs; -i N says that there are N"
    for index in call.force:
        if not 0 <= index < count:
            raise UsageError(f"there is no GPU {index}", known)
    if call.needs > count:
        raise UsageError(f"there are no {call.needs} GPUs" if count else "there is no GPU", known)


def _check_output(path: str | None) -> None:
    if path is not None and path != STDOUT:
        try:
            os.close(open_for_output(os.fsencode(path), truncate=False))
        except OSError as error:
            raise UsageError(f"cannot write `{path}`: {error.strerror}") from None


def _wait(
    call: Call, gpus: Gpus, place: QueuePlace, state: StateFile, signals: Signals
) -> GrantedGpus | int:
    """Our turn, or the signal that called it off."""
    began = time.monotonic()
    told: set[str] = set()
    avoided: dict[int, float] = {}  # until when
    while True:
        for number in signals.take():
            if number != signal.SIGTSTP:
                return number
            place.rest()
            stop_here()
        entries = state.peek()
        now = time.monotonic()
        usable = [i for i, e in enumerate(entries) if not e.is_withheld and avoided.get(i, 0) < now]
        found = place.look(usable)
        if found is not None:
            strangers = gpus.strangers(found[1])
            if not strangers:
                return GrantedGpus(*found)
            found[0].close()
            for index, who in strangers.items():
                avoided[index] = time.monotonic() + _AVOIDED_SECONDS
                _say_once(f"GPU {index} is not used while {who}", told)
            continue  # others may be free
        if now > began + _TELL_SECONDS:  # who only just came before us may be gone at once
            _tell_waiting(call, place, entries, told)
        place.wait(signals.wake, state.path, _LOOK_ANYWAY_SECONDS if told else _TELL_SECONDS)


def _tell_waiting(call: Call, place: QueuePlace, entries: list[Entry], told: set[str]) -> None:
    if call.force and any(entry.avail for entry in entries):
        where = f"GPU(s) {call.force_text}" if call.force_text else f"GPU {call.force[0]}"
        text = f"Scheduler (PID: {os.getpid()}) is waiting for {where}."
        if text not in told:
            write_line(text)
            told.add(text)
    elif not told:
        ahead = place.ahead
        behind = f", behind {ahead} {'other' if ahead == 1 else 'others'}" if ahead else ""
        _say_once(f"waiting for a free GPU{behind}", told)


def _say_once(text: str, told: set[str]) -> None:
    if text not in told:
        write_notice(text)
        told.add(text)


def _environment(gpus: Gpus, indices: tuple[int, ...]) -> dict[str, str]:
    visible = gpus.visible(indices)
    return {
        "GPU": _names(indices),
        "CUDA_VISIBLE_DEVICES": visible,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # or an index would mean another card to CUDA
        "STOKER_GPUS": visible,
        "STOKER_GPU_UUIDS": gpus.uuids(indices),
    }


def _names(indices: tuple[int, ...]) -> str:
    return ",".join(f"cuda{index}" for index in indices)


def _tell(
    gpus: Gpus,
    state: StateFile,
    indices: tuple[int, ...],
    words: tuple[str, ...],
    pid: int,
    began: float,
    is_second: bool,
) -> None:
    if not pid:
        return  # it could not be started, which its outcome tells
    start, user = time.strftime(TIME, time.localtime(began)), user_name(os.getuid())
    for index in indices:
        gpus.ours[index] = Entry(False, f"cuda{index}", list(words), pid, start, user)
    state.read()
    names = ",".join(map(str, indices)) if is_second else _names(indices)
    write_line(f"GPU: {names}\nSCH PID: {os.getpid()}\nTASK PID: {pid}\n"
               f"SCH PGID: {os.getpgid(0)}\nTASK PGID: {pid}")  # fmt: skip


def _kill_delay() -> float:
    try:
        return float(os.environ["STOKER_SCHEDULE_KILL_DELAY"])
    except (KeyError, ValueError):
        return _KILL_DELAY


def _print_summary(call: Call, words: tuple[str, ...], began: float, ended: float) -> None:
    minutes, seconds = divmod(int(ended - began), 60)
    hours, minutes = divmod(minutes, 60)
    files = (
        f"stdout: {call.out or '<stdout>'}\n"
        f"stderr: {'<stdout>' if call.err == STDOUT else call.err or '<stderr>'}\n"
    )
    write_line(
        f"\ntask: {list(words)}\n{'' if call.is_second else files}"
        f"start: {time.strftime(TIME, time.localtime(began))}\n"
        f"end: {time.strftime(TIME, time.localtime(ended))}\n"
        f"total time: {hours}:{minutes}:{seconds}\n"
    )
