"""One `start`: slots take instances in order, skip what is finished and run the rest.

What failed or was interrupted before is run again. The engine that runs them is in a process of its
own (task_scheduler_engine.py); what people made (their task class) is called here.
"""

from __future__ import annotations

import os
import sys
import traceback
from functools import partial
from types import FrameType
from typing import Any

from stoker.compat.gpu_task_scheduler import task_file as pickles
from stoker.compat.gpu_task_scheduler.class_by_name import NamedTask
from stoker.compat.gpu_task_scheduler.config import ConfigManager
from stoker.compat.gpu_task_scheduler.engine_client import Link, environment
from stoker.compat.gpu_task_scheduler.folder_records import Folder
from stoker.compat.gpu_task_scheduler.log import SchedulerLog
from stoker.compat.gpu_task_scheduler.stages import stage_of
from stoker.core.record import Record
from stoker.supervisor.regular_files import open_for_output

_CHILD = "gpu_task_scheduler.start_gpu_task"


class _Instance(Record):
    name: str
    config: dict[Any, Any]
    folder: Folder


class _Running(Record):
    instance: _Instance
    pickle: str
    slot: str | None = None  # None while it waits for one


class Run:
    """One call of `start`."""

    def __init__(self, manager: ConfigManager, task_class: type | str, log: SchedulerLog) -> None:
        self._manager = manager
        self._rules = manager.get_all_scheduler_config()
        self._log = log
        self._class: Any = task_class
        if isinstance(task_class, str):
            self._class = partial(NamedTask, task_class)
        self._stage = stage_of(task_class, self._rules)
        self._origin = pickles.origin_of(task_class)
        self._free = [str(one["env"]["CUDA_VISIBLE_DEVICES"]) for one in manager.get_gpu_envs()]
        self._order = list(self._free)
        self._env = {"MPLBACKEND": "Agg", **os.environ}
        self._cwd = os.getcwd()
        self._link: Link | None = None
        self._running: dict[int, _Running] = {}
        self._starting: list[tuple[int, str]] = []  # not taken note of yet
        self._later: list[_Instance] = []  # their folder is in use
        self._taken: set[str] = set()  # folders that were not skipped
        self._count = 0
        self._drains = False
        self.failed = 0

    def drain(self, number: int, frame: FrameType | None) -> None:
        self._drains = True
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
            self._hear()
        if self._link is not None:
            self._link.send(end=True)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        for running in self._running.values():  # interrupted: they run again next time
            running.instance.folder.leave()
            pickles.remove(running.pickle)  # if the engine could not keep it

    # -- one instance --------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._drains or not (self._later or self._manager.get_num_left_config())

    def _next(self) -> _Instance | None:
        """The next whose folder is not in use."""
        if self._drains:
            return None
        for index, instance in enumerate(self._later):
            if not self._is_in_use(instance):
                return self._later.pop(index)
        while self._manager.get_num_left_config():
            instance = self._made()
            if not (self._rules["force_rerun"] and self._is_in_use(instance)):
                return instance
            self._later.append(instance)
        return None

    def _made(self) -> _Instance:
        found, whose = self._manager.next_with_identity()
        folder = Folder(found["work_dir"], self._stage, whose.text)
        return _Instance(found["test_config_string"], found["config"], folder)

    def _is_in_use(self, instance: _Instance) -> bool:
        path = os.path.abspath(instance.folder.path)
        folders = (running.instance.folder for running in self._running.values())
        return any(os.path.abspath(folder.path) == path for folder in folders)

    def _take(self, instance: _Instance) -> None:
        """Skip it, or start it and wait until it has a slot."""
        slot = self._free[0]
        if not self._may_run(instance):
            self._log.receives(f"gpu{slot}", instance.name)
            self._log.skips(f"gpu{slot}", instance.name)
            return
        instance.folder.begin()
        self._taken.add(os.path.abspath(instance.folder.path))
        self._count += 1
        number = self._count
        try:
            order, pickle = self._prepare(instance)
        except Exception as error:
            self._log.receives(f"gpu{slot}", instance.name)
            self._refuse(instance, slot, error)
            return
        self._running[number] = _Running(instance, pickle)
        if self._link is None:
            self._link = Link(self._order, self._env)
        self._link.send(job=number, **order)
        while number in self._running and self._running[number].slot is None:
            self._hear()

    def _may_run(self, instance: _Instance) -> bool:
        folder = instance.folder
        if not os.path.exists(folder.path):
            return folder.make() or bool(self._rules["force_rerun"])
        if self._rules["force_rerun"]:
            return True
        return os.path.abspath(folder.path) not in self._taken and not folder.is_finished()

    def _prepare(self, instance: _Instance) -> tuple[dict[str, Any], str]:
        task = self._class(instance.config, instance.folder.path)
        env = {**environment(self._env), **task.required_env()}
        for key, value in env.items():
            if not (isinstance(key, str) and isinstance(value, str)):
                raise TypeError(f"required_env() has {key!r}: {value!r}, and variables are text")
        origin = self._origin
        path = pickles.write(self._rules["temp_folder"], pickles.pack(task, origin), origin)
        argv = [sys.executable, "-P", "-m", _CHILD, path, origin.module, origin.path, self._cwd]
        folder = instance.folder
        order = {
            "argv": argv, "env": env, "log": self._output(instance), "pickle": path,
            "folder": os.path.abspath(folder.path), "stage": folder.stage, "params": folder.params,
        }  # fmt: skip
        return order, path

    def _output(self, instance: _Instance) -> str:
        name = self._rules["log_file"]
        if name is None:
            return os.devnull
        return os.path.abspath(os.path.join(instance.folder.path, name))

    def _refuse(self, instance: _Instance, slot: str, error: Exception) -> None:
        """Its class would not have it; what a traceback can tell is where its output would be."""
        descriptor = open_for_output(os.fsencode(self._output(instance)), truncate=True)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            traceback.print_exception(error, file=file)
        self._end(instance, slot, f"{type(error).__name__}: {error}")

    # -- what the engine tells -----------------------------------------------------------------

    def _hear(self) -> None:
        assert self._link is not None
        what = self._link.receive()
        if "says" in what:
            self._log.says(what["says"])
        elif "starting" in what:
            self._leave_slot(what["starting"])  # one that asked to be run again
            self._starting.append((what["starting"], what["device"]))
        elif "ended" in what:
            slot = self._leave_slot(what["ended"])
            running = self._running.pop(what["ended"])
            self._end(running.instance, slot, what["why"])
        self._note_starts()

    def _leave_slot(self, number: int) -> str:
        running = self._running[number]
        if running.slot is None:
            return self._order[0]
        self._running[number] = running._replace(slot=None)
        self._free.append(running.slot)
        self._free.sort(key=self._order.index)
        return running.slot

    def _note_starts(self) -> None:
        """The engine may tell of a start in a slot before the end that made it free."""
        for number, slot in list(self._starting):
            if slot in self._free:
                self._starting.remove((number, slot))
                self._free.remove(slot)
                running = self._running[number] = self._running[number]._replace(slot=slot)
                self._log.receives(f"gpu{slot}", running.instance.name)

    def _end(self, instance: _Instance, slot: str, why: str | None) -> None:
        instance.folder.end(why is None)
        if why is not None:
            self.failed += 1
            log = self._rules["log_file"]
            where = f"; see {os.path.join(instance.folder.path, log)}" if log is not None else ""
            self._log.fails(f"gpu{slot}", instance.name, f"{why}{where}")
        self._log.finishes(f"gpu{slot}", instance.name)
