"""gpu_task_scheduler: records of result folders, running markers and stages."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from pathlib import Path

import pytest

from stoker.compat.gpu_task_scheduler.folder_records import Folder, params_of
from tests.compat.gts_project import MAIN, Project
from tests.helpers import is_alive
from tests.lab import Lab, wait_until

# Recreates its folder, writes its PID and waits until the file `open` exists.
RECREATES = """
    import os, shutil, time
    from gpu_task_scheduler.gpu_task import GPUTask

    class Task(GPUTask):
        def main(self):
            shutil.rmtree(self._work_dir)
            os.makedirs(self._work_dir)
            with open("pids", "a") as file:
                file.write(f"{os.getpid()}\\n")
            while not os.path.exists("open"):
                time.sleep(0.02)
"""


@pytest.fixture
def project(lab: Lab) -> Project:
    return Project(lab)


def wait_for_task(project: Project) -> int:
    wait_until(lambda: project.lines("pids"), what="a running task")
    return int(project.lines("pids")[-1])


def markers(folder: Path) -> list[str]:
    """The attributes of a folder that Stoker has set."""
    return [name for name in os.listxattr(folder) if "stoker" in name]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_task_that_recreated_its_folder_runs_again(
    project: Project, number: int
) -> None:
    project.write(task=RECREATES)
    project.configure({"a": [1]})
    program = project.popen()
    pid = wait_for_task(project)
    program.send_signal(number)
    program.communicate()
    wait_until(lambda: not is_alive(pid))
    folder = project.path("results/a-1,")
    wait_until(lambda: params_of(str(folder)), what="the record")
    wait_until(lambda: not markers(folder.parent), what="the removal of the marker")
    project.path("open").touch()
    project.ok()
    assert len(project.lines("pids")) == 2
    assert os.listdir(folder.parent) == ["a-1,"] and not markers(folder.parent)
    project.ok()
    assert len(project.lines("pids")) == 2


def test_task_runs_again_after_a_power_failure_while_it_recreates_its_folder(
    tmp_path: Path,
) -> None:
    """No process was left to write the record."""
    stage = "stage"
    path = tmp_path / "results/a-1,"
    before = Folder(str(path), stage, "params")
    assert before.make()
    before.begin()
    shutil.rmtree(path)
    path.mkdir()
    after = Folder(str(path), stage, "params")
    assert after.is_finished()  # while the task runs
    before.release()  # as the kernel does when the process dies
    assert not after.is_finished()
    after.begin()
    after.end(True)
    assert Folder(str(path), stage, "params").is_finished()
    shutil.rmtree(path)
    path.mkdir()
    assert after.is_finished()  # no record and no marker: created by another program


def test_second_program_does_not_run_a_task_that_recreated_its_folder(project: Project) -> None:
    project.write(task=RECREATES)
    project.configure({"a": [1]})
    program = project.popen()
    wait_for_task(project)
    project.ok()
    assert project.messages()[-2] == "INFO gpu0 skips task a-1,"
    project.path("open").touch()
    program.communicate()
    assert program.returncode == 0
    assert len(project.lines("pids")) == 1


def test_marker_is_a_hidden_file_if_the_file_system_has_no_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    for name in ("setxattr", "getxattr", "removexattr"):
        monkeypatch.setattr(f"os.{name}", refuse)
    path = tmp_path / "a-1,"
    folder = Folder(str(path), "stage", "params")
    assert folder.make()
    folder.begin()
    shutil.rmtree(path)
    path.mkdir()
    folder.release()
    assert not folder.is_finished()
    assert len(list(tmp_path.glob(".stoker-begun-*"))) == 1
    folder.leave()
    assert not folder.is_finished()
    assert os.listdir(tmp_path) == ["a-1,"]


# -- stages ----------------------------------------------------------------------------------------

STAGE = """
    import os
    from gpu_task_scheduler.gpu_task import GPUTask
    class Task(GPUTask):
        def main(self):
            with open("ran", "a") as file: file.write(__name__ + "\\n")
            if os.path.exists("broken"): raise RuntimeError("no luck")
"""


def test_stages_with_classes_of_the_same_name_are_recorded_separately(project: Project) -> None:
    project.write(first=STAGE, second=STAGE, main=MAIN.replace("from task", "from first"))
    project.configure({"a": [1]})
    project.ok()
    project.path("broken").touch()
    project.write(main=MAIN.replace("from task", "from second"))
    project.configure({"a": [1]}, force_rerun=True)
    assert project.run().returncode == 1
    project.path("broken").unlink()
    project.configure({"a": [1]})
    project.write(main=MAIN.replace("from task", "from first"))
    project.ok()
    assert project.lines("ran") == ["first", "second"]
    project.write(main=MAIN.replace("from task", "from second"))
    project.ok()
    assert project.lines("ran") == ["first", "second", "second"]


def test_classes_of_different_main_scripts_are_different_stages(project: Project) -> None:
    project.configure({"a": [1]})
    script = (
        STAGE
        + """
    from config import config
    from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
    GPUTaskScheduler(config, Task).start()
    """
    )
    project.write(train=script, generate=script)
    project.ok("train.py")
    project.configure({"a": [1]}, force_rerun=True)
    project.path("broken").touch()
    assert project.run("generate.py").returncode == 1
    project.path("broken").unlink()
    project.configure({"a": [1]})
    project.ok("train.py")
    assert len(project.lines("ran")) == 2
    project.folder = project.folder.rename(project.folder.with_name("moved"))
    project.ok("generate.py")
    assert len(project.lines("ran")) == 3
