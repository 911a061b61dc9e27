"""The version of a job's Python, from the path of its program."""

from __future__ import annotations

import os
import subprocess

from stoker.engine.supervisor.job_python import python_of_path, python_of_process


def test_version_is_in_the_path_of_the_program() -> None:
    build = "/home/a/.local/share/uv/python/cpython-3.12.4-linux-x86_64-gnu/bin/python3.12"
    assert python_of_path(build) == "3.12.4"
    assert python_of_path("/usr/bin/python3.11") == "3.11"
    assert python_of_path("/usr/bin/python3.13t") == "3.13"


def test_other_programs_have_no_version() -> None:
    for path in ("/bin/bash", "/usr/bin/python3", "/usr/bin/python", "/x/python3.11/sh", ""):
        assert python_of_path(path) == ""


def test_process_that_exited_has_no_version() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert python_of_process(process.pid) == ""
    assert python_of_process(os.getpid()) == python_of_path(os.readlink("/proc/self/exe"))
