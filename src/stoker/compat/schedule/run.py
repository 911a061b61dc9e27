"""Run one task of `schedule`: wait in the queue, start it, return its exit code."""

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
    stop_self,
)
from stoker.compat.schedule.wait import QueuePlace
from stoker.engine.daemon.gpus.process_owners import user_name
from stoker.engine.devices.leases.lease import Lease
from stoker.engine.supervisor.regular_files import open_for_output
from stoker.errors import UsageError
from stoker.record import Record
from stoker.settings import load_settings

# Poll for changes that cause no file event, e.g. a process ahead of us that was stopped.
_POLL_SECONDS = 1.0
_NOTICE_SECONDS = 0.2  # waiting time before the first message
_RETRY_SECONDS = 0.9  # before a GPU with other processes is tried again
_KILL_DELAY = 3.0  # seconds between the second Ctrl-C and a third that counts


class GrantedGpus(Record):
    """The leased GPUs of the task."""

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
        granted = _wait(call, gpus, place, state, signals)
        if isinstance(granted, int):
            return 128 + granted  # also for SIGUSR1: the task was not run
        words = number_in(call.task, granted.gpus[0])
        if call.is_cx:
            words += (f"model.n_gpus={len(granted.gpus)}",)
        began = time.time()
        task = Task(
            words,
            _environment(gpus, granted.gpus),
            call.out,
            call.err,
            granted.lease,
            ends_at_first_interrupt=call.is_v2,
        )
        _record_start(gpus, state, granted.gpus, words, task.pid, began, call.is_v2)
    finally:
        place.leave()  # after the state file shows the task
    repair = StateRepair(task.pid)
    task.ignore(repair.pid)
    task.resume()
    outcome = task.wait(signals, _kill_delay(), load_settings().grace)
    gpus.own_entries.clear()
    gpus.await_release(granted.gpus)
    state.read()
    repair.dismiss()
    if call.is_verbose or call.is_v2:
        _print_summary(call, words, began, time.time())
    if outcome.detail is not None:
        write_notice(f"error: {outcome.detail}")
    return 0 if wants_zero(call.exits_zero) else exit_code(outcome)


def _check_possible(call: Call, count: int) -> None:
    """Raise UsageError if the task could never start, however long it waits."""
    hint = f"schedule manages {count} GPUs; change that with: schedule -i N"
    for index in call.force:
        if not 0 <= index < count:
            raise UsageError(f"there is no GPU {index}", hint)
    if call.needs > count:
        message = f"the task needs {call.needs} GPUs, but there are {count}"
        raise UsageError(message if count else "there is no GPU", hint)


def _check_output(path: str | None) -> None:
    if path is not None and path != STDOUT:
        try:
            os.close(open_for_output(os.fsencode(path), truncate=False))
        except OSError as error:
            raise UsageError(f"cannot write `{path}`: {error.strerror}") from None


def _wait(
    call: Call, gpus: Gpus, place: QueuePlace, state: StateFile, signals: Signals
) -> GrantedGpus | int:
    """Wait for the GPUs of the call; returns the signal number if a signal ends the wait."""
    began = time.monotonic()
    reported: set[str] = set()
    avoided: dict[int, float] = {}  # GPU: when to try it again
    while True:
        for number in signals.take():
            if number != signal.SIGTSTP:
                return number
            place.release_reservations()
            stop_self()
        entries = state.peek()
        now = time.monotonic()
        usable = [i for i, e in enumerate(entries) if not e.is_disabled and avoided.get(i, 0) < now]
        found = place.try_lease(usable)
        if found is not None:
            others = gpus.other_processes(found[1])
            if not others:
                return GrantedGpus(*found)
            found[0].close()
            for index, processes in others.items():
                avoided[index] = time.monotonic() + _RETRY_SECONDS
                _notice_once(f"GPU {index} is not used while {processes}", reported)
            continue  # another GPU may be free
        if now > began + _NOTICE_SECONDS:  # short waits are not reported
            _report_waiting(call, place, entries, reported)
        place.wait(signals.wake, state.path, _POLL_SECONDS if reported else _NOTICE_SECONDS)


def _report_waiting(
    call: Call, place: QueuePlace, entries: list[Entry], reported: set[str]
) -> None:
    if call.force and any(entry.avail for entry in entries):
        where = f"GPU(s) {call.force_text}" if call.force_text else f"GPU {call.force[0]}"
        text = f"Scheduler (PID: {os.getpid()}) is waiting for {where}."
        if text not in reported:
            write_line(text)
            reported.add(text)
    elif not reported:
        ahead = place.ahead
        behind = f", behind {ahead} {'other' if ahead == 1 else 'others'}" if ahead else ""
        _notice_once(f"waiting for a free GPU{behind}", reported)


def _notice_once(text: str, reported: set[str]) -> None:
    if text not in reported:
        write_notice(text)
        reported.add(text)


def _environment(gpus: Gpus, indices: tuple[int, ...]) -> dict[str, str]:
    visible = gpus.visible(indices)
    return {
        "GPU": _names(indices),
        "CUDA_VISIBLE_DEVICES": visible,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # without it, CUDA may number the GPUs differently
        "STOKER_GPUS": visible,
        "STOKER_GPU_UUIDS": gpus.uuids(indices),
    }


def _names(indices: tuple[int, ...]) -> str:
    return ",".join(f"cuda{index}" for index in indices)


def _record_start(
    gpus: Gpus,
    state: StateFile,
    indices: tuple[int, ...],
    words: tuple[str, ...],
    pid: int,
    began: float,
    is_v2: bool,
) -> None:
    if not pid:
        return  # not started; the outcome has the reason
    start, user = time.strftime(TIME, time.localtime(began)), user_name(os.getuid())
    for index in indices:
        gpus.own_entries[index] = Entry(False, f"cuda{index}", list(words), pid, start, user)
    state.read()
    names = ",".join(map(str, indices)) if is_v2 else _names(indices)
    write_line(
        f"GPU: {names}\nSCH PID: {os.getpid()}\nTASK PID: {pid}\n"
        f"SCH PGID: {os.getpgid(0)}\nTASK PGID: {pid}"
    )


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
        f"\ntask: {list(words)}\n{'' if call.is_v2 else files}"
        f"start: {time.strftime(TIME, time.localtime(began))}\n"
        f"end: {time.strftime(TIME, time.localtime(ended))}\n"
        f"total time: {hours}:{minutes}:{seconds}\n"
    )
