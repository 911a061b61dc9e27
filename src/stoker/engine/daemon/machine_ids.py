"""The record of host, versions and GPU models that each attempt refers to."""

from __future__ import annotations

import os
import sys

from stoker import __version__
from stoker.engine.model import Device
from stoker.engine.store.database import Database
from stoker.engine.store.machines import Machine, machine_id

_DRIVER = "/sys/module/nvidia/version"


class MachineIds:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._here = Machine(
            host=os.uname().nodename,
            stoker=__version__,
            python=".".join(map(str, sys.version_info[:3])),
            driver=driver_version(),
            gpus="",
        )
        self._ids: dict[tuple[str, ...], int] = {}  # by GPU models

    def of(self, devices: tuple[Device, ...]) -> int:
        """The id of this host with these GPUs. Call this inside a transaction."""
        models = tuple(device.model for device in devices)
        known = self._ids.get(models)
        if known is None:
            machine = self._here._replace(gpus=_in_words(models))
            known = self._ids[models] = machine_id(self._db, machine)
        return known

    def forget(self) -> None:
        """The transaction that stored them may have been rolled back: store them again."""
        self._ids.clear()


def driver_version() -> str:
    """The version of the NVIDIA driver; "" without one."""
    try:
        with open(_DRIVER, encoding="ascii", errors="replace") as file:
            return file.read(100).strip()
    except OSError:
        return ""


def _in_words(models: tuple[str, ...]) -> str:
    """`2 x NVIDIA H200`; "" without GPUs, or if their models are not known."""
    counts: dict[str, int] = {}
    for model in models:
        if model:
            counts[model] = counts.get(model, 0) + 1
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())
