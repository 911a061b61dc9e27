"""`GPUTaskScheduler`: slots take the instances in order, skip finished ones and run the others.

Instances that failed or were interrupted before run again. The tasks are run by the engine, a
separate process (engine.py); the user's task class is called in this process.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from types import FrameType
from typing import Any

from stoker.compat.gpu_task_scheduler import hide_gpus as hiding
from stoker.compat.gpu_task_scheduler import task_file as pickles
from stoker.compat.gpu_task_scheduler.config import ConfigManager
from stoker.compat.gpu_task_scheduler.exit_status import count_failed
from stoker.compat.gpu_task_scheduler.folder_records import Folder, stage_of
from stoker.compat.gpu_task_scheduler.log import SchedulerLog
from stoker.engine.supervisor.regular_files import open_for_output
from stoker.errors import Broken, Error
from stoker.record import Record

_ENGINE = "stoker.compat.gpu_task_scheduler.engine"
_CHILD = "gpu_task_scheduler.start_gpu_task"
_READ = 1 << 16


class GPUTaskScheduler:
    def __init__(self, config: dict[str, Any], gpu_task_class: type) -> None:
        hiding.show_all()
        own = dict(config)
        if "scheduler_config" in own:  # do not change the caller's dict
            own["scheduler_config"] = {**own["scheduler_config"]}
            if "gpu" in own["scheduler_config"]:
                own["scheduler_config"]["gpu"] = copy.copy(own["scheduler_config"]["gpu"])
        self._config_manager = ConfigManager(own)
        self._config = self._config_manager.get_all_scheduler_config()
        self._gpu_task_class = gpu_task_class
        self._log = SchedulerLog(self._config["scheduler_log_file_path"])

    def start(self) -> None:
        """Run all instances and return when they have finished. SIGUSR1 drains."""
        run = _Run(self._config_manager, self._gpu_task_class, self._log)
        previous = _install_drain_handler(run)
        try:
            run.work()
        finally:
            run.close()
            self._log.close()
            if previous is not None:
                signal.signal(signal.SIGUSR1, previous)
        count_failed(run.failed)


def _install_drain_handler(run: _Run) -> Any:
    """Handle SIGUSR1, unless the program does; returns the previous handler, if replaced."""
    try:
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            return signal.signal(signal.SIGUSR1, run.drain)
    except ValueError:
        pass  # not the main thread
    return None


# -- one call of start -----------------------------------------------------------------------------


class _Instance(Record):
    name: str
    config: dict[Any, Any]
    folder: Folder


class _Running(Record):
    instance: _Instance
    pickle: str
    slot: str | None = None  # None while it waits for a slot


class _Run:
    """One call of `start`."""

    def __init__(self, manager: ConfigManager, task_class: type, log: SchedulerLog) -> None:
        self._manager = manager
        self._rules = manager.get_all_scheduler_config()
        self._log = log
        self._class: Any = task_class
        self._stage = stage_of(task_class, self._rules)
        self._origin = pickles.origin_of(task_class)
        self._free = [str(gpu["env"]["CUDA_VISIBLE_DEVICES"]) for gpu in manager.get_gpu_envs()]
        self._order = list(self._free)
        self._env = {"MPLBACKEND": "Agg", **os.environ}
        self._cwd = os.getcwd()
        self._engine: _EngineClient | None = None
        self._running: dict[int, _Running] = {}
        self._starting: list[tuple[int, str]] = []  # not logged yet
        self._postponed: list[_Instance] = []  # their folder is in use
        self._used: set[str] = set()  # folders that were not skipped
        self._count = 0
        self._is_draining = False
        self.failed = 0

    def drain(self, number: int, frame: FrameType | None) -> None:
        self._is_draining = True
        os.write(2, b"draining: running tasks finish, no more are started\n")

    def work(self) -> None:
        while True:
            while self._free and (instance := self._next()) is not None:
                self._take(instance)
            if self._is_over():
                for slot in self._free:
                    self._log.finished(f"gpu{slot}")
                self._free.clear()
            if not self._running:
                break
            self._handle_event()
        if self._engine is not None:
            self._engine.send(end=True)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        for running in self._running.values():  # interrupted: they run again in the next `start`
            running.instance.folder.leave()
            pickles.remove(running.pickle)  # unless the engine has renamed it

    # -- one instance --------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._is_draining or not (self._postponed or self._manager.get_num_left_config())

    def _next(self) -> _Instance | None:
        """The next instance whose folder is not in use."""
        if self._is_draining:
            return None
        for index, instance in enumerate(self._postponed):
            if not self._is_in_use(instance):
                return self._postponed.pop(index)
        while self._manager.get_num_left_config():
            instance = self._create_instance()
            if not (self._rules["force_rerun"] and self._is_in_use(instance)):
                return instance
            self._postponed.append(instance)
        return None

    def _create_instance(self) -> _Instance:
        found, identity = self._manager.next_with_identity()
        folder = Folder(found["work_dir"], self._stage, identity.text)
        return _Instance(found["test_config_string"], found["config"], folder)

    def _is_in_use(self, instance: _Instance) -> bool:
        path = os.path.abspath(instance.folder.path)
        folders = (running.instance.folder for running in self._running.values())
        return any(os.path.abspath(folder.path) == path for folder in folders)

    def _take(self, instance: _Instance) -> None:
        """Skip the instance, or start it and wait until it has a slot."""
        slot = self._free[0]
        if not self._may_run(instance):
            self._log.receives(f"gpu{slot}", instance.name)
            self._log.skips(f"gpu{slot}", instance.name)
            return
        instance.folder.begin()
        self._used.add(os.path.abspath(instance.folder.path))
        self._count += 1
        number = self._count
        try:
            message, pickle = self._prepare(instance)
        except Exception as error:
            self._log.receives(f"gpu{slot}", instance.name)
            self._fail_unstarted(instance, slot, error)
            return
        self._running[number] = _Running(instance, pickle)
        if self._engine is None:
            self._engine = _EngineClient(self._order, self._env)
        self._engine.send(job=number, **message)
        while number in self._running and self._running[number].slot is None:
            self._handle_event()

    def _may_run(self, instance: _Instance) -> bool:
        folder = instance.folder
        if not os.path.exists(folder.path):
            return folder.make() or bool(self._rules["force_rerun"])
        if self._rules["force_rerun"]:
            return True
        return os.path.abspath(folder.path) not in self._used and not folder.is_finished()

    def _prepare(self, instance: _Instance) -> tuple[dict[str, Any], str]:
        task = self._class(instance.config, instance.folder.path)
        env = {**_environment(self._env), **task.required_env()}
        for key, value in env.items():
            if not (isinstance(key, str) and isinstance(value, str)):
                raise TypeError(f"required_env() has {key!r}: {value!r}, but both must be strings")
        origin = self._origin
        path = pickles.write(self._rules["temp_folder"], pickles.pack(task, origin), origin)
        argv = [sys.executable, "-P", "-m", _CHILD, path, origin.module, origin.path, self._cwd]
        folder = instance.folder
        message = {
            "argv": argv,
            "env": env,
            "log": self._output(instance),
            "pickle": path,
            "folder": os.path.abspath(folder.path),
            "stage": folder.stage,
            "params": folder.params,
        }
        return message, path

    def _output(self, instance: _Instance) -> str:
        name = self._rules["log_file"]
        if name is None:
            return os.devnull
        return os.path.abspath(os.path.join(instance.folder.path, name))

    def _fail_unstarted(self, instance: _Instance, slot: str, error: Exception) -> None:
        """Record an exception of the task class; the traceback goes to the log of the instance."""
        descriptor = open_for_output(os.fsencode(self._output(instance)), truncate=True)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            traceback.print_exception(error, file=file)
        self._end(instance, slot, f"{type(error).__name__}: {error}")

    # -- events of the engine ------------------------------------------------------------------

    def _handle_event(self) -> None:
        assert self._engine is not None
        event = self._engine.receive()
        if "says" in event:
            self._log.notice(event["says"])
        elif "starting" in event:
            self._free_slot(event["starting"])  # if it was requeued
            self._starting.append((event["starting"], event["device"]))
        elif "ended" in event:
            slot = self._free_slot(event["ended"])
            running = self._running.pop(event["ended"])
            self._end(running.instance, slot, event["why"])
        self._log_starts()

    def _free_slot(self, number: int) -> str:
        running = self._running[number]
        if running.slot is None:
            return self._order[0]
        self._running[number] = running._replace(slot=None)
        self._free.append(running.slot)
        self._free.sort(key=self._order.index)
        return running.slot

    def _log_starts(self) -> None:
        """Log starts in free slots; the engine may report a start before the end that freed it."""
        for number, slot in list(self._starting):
            if slot in self._free:
                self._starting.remove((number, slot))
                self._free.remove(slot)
                running = self._running[number] = self._running[number]._replace(slot=slot)
                self._log.receives(f"gpu{slot}", running.instance.name)

    def _end(self, instance: _Instance, slot: str, reason: str | None) -> None:
        instance.folder.end(reason is None)
        if reason is not None:
            self.failed += 1
            log = self._rules["log_file"]
            hint = f"; see {os.path.join(instance.folder.path, log)}" if log is not None else ""
            self._log.fails(f"gpu{slot}", instance.name, f"{reason}{hint}")
        self._log.finishes(f"gpu{slot}", instance.name)


# -- the connection to the engine ------------------------------------------------------------------


class _EngineClient:
    """Starts the engine with the slots; closing the connection ends all running tasks."""

    def __init__(self, devices: list[str], env: dict[str, str]) -> None:
        self._channel, engine_end = socket.socketpair()
        self._rest = b""
        words = [sys.executable, "-P", "-m", _ENGINE, str(engine_end.fileno()), json.dumps(devices)]
        try:
            # In its own session: the program handles Ctrl-C and then closes the connection.
            self._process = subprocess.Popen(
                words,
                env=env,
                stdin=subprocess.DEVNULL,
                pass_fds=[engine_end.fileno()],
                start_new_session=True,
            )
        finally:
            engine_end.close()

    def send(self, **order: Any) -> None:
        try:
            self._channel.sendall(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            pass  # `receive` raises the error

    def receive(self) -> dict[str, Any]:
        """Wait for the next event. Raises Error if the engine failed."""
        while b"\n" not in self._rest:
            data = self._channel.recv(_READ)
            if not data:
                raise self._broken()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        if "error" in event:
            raise Error(event["error"], event["hint"])
        return event

    def close(self) -> None:
        """Close the connection; returns when no process of a task is left."""
        self._channel.close()
        try:
            self._process.wait()
        except BaseException:  # a second Ctrl-C
            self._process.send_signal(signal.SIGKILL)  # its cleanup process ends the tasks
            self._process.wait()
            raise

    def _broken(self) -> Error:
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Broken(
            f"the scheduler process (pid {self._process.pid}) died: {how}",
            "its tasks were ended too; run the program again",
        )


def _environment(base: dict[str, str]) -> dict[str, str]:
    """The variables that differ from `base`: a task gets the environment at its start."""
    changed = {key: value for key, value in os.environ.items() if base.get(key) != value}
    changed.pop("CUDA_VISIBLE_DEVICES", None)  # set by the slot
    return changed
