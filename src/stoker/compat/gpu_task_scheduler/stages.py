"""Stages: several kinds of work (training, then generation) may share a result folder.

Stages differ in their task class or their log file.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from stoker.compat.gpu_task_scheduler.class_by_name import split_name
from stoker.compat.gpu_task_scheduler.folder_records import Stage


def stage_of(task_class: type | str, rules: Mapping[str, Any]) -> Stage:
    if isinstance(task_class, str):
        module, name = split_name(task_class)
    else:
        module = getattr(task_class, "__module__", "")
        name = getattr(task_class, "__qualname__", "")
    if module == "__main__":
        module = _script(str(rules["result_root_folder"]))
    log = rules["log_file"]
    return Stage(_digest(f"{module}:{name} {log}"), _digest(f"{name} {log}"))


def _script(results: str) -> str:
    """The path of the main script relative to the results, so that a project can be moved."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        return "__main__"
    return os.path.relpath(os.path.realpath(path), os.path.realpath(results))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
