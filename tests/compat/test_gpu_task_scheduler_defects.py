"""gpu_task_scheduler: the defects of the original, fixed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.gts_project import MAIN, Project, without_stderr_times
from tests.engine.gpus.host import GpuHost
from tests.helpers import is_alive
from tests.lab import Lab, wait_until


@pytest.fixture
def project(lab: Lab) -> Project:
    return Project(lab)


FRAGILE = """
    import os, sys
    from gpu_task_scheduler.gpu_task import GPUTask

    class Task(GPUTask):
        def main(self):
            with open("ran", "a") as file:
                file.write(f"{self._config['a']}\\n")
            if self._config["a"] == 2 and not os.path.exists("fixed"):
                raise RuntimeError("no luck")
"""
# Writes its PIDs and waits until the file `open` exists.
WAITS = """
    import os, subprocess, sys, time
    from gpu_task_scheduler.gpu_task import GPUTask

    class Task(GPUTask):
        def main(self):
            helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
            with open("pids", "a") as file:
                file.write(f"{os.getpid()}\\n{helper.pid}\\n")
            while not os.path.exists("open"):
                time.sleep(0.02)
"""


def wait_for_pids(project: Project, count: int) -> list[int]:
    wait_until(lambda: len(project.lines("pids")) >= count, what=f"{count} pids")
    return [int(line) for line in project.lines("pids")]


# -- failures ------------------------------------------------------------------------------------


def test_failed_instance_is_reported_and_runs_again_but_not_the_finished_ones(
    project: Project,
) -> None:
    project.write(task=FRAGILE)
    project.configure({"a": [1, 2, 3]})
    done = project.run()
    assert done.returncode == 1
    log = project.path("results/a-2,/worker.log")
    assert without_stderr_times(done.stderr)[3:5] == [
        f"ERROR gpu0 fails task a-2,: exit code 1; see {log}", "INFO gpu0 finishes task a-2,",
    ]  # fmt: skip
    assert log.read_text().endswith("RuntimeError: no luck\n")
    project.path("fixed").touch()
    assert project.run().returncode == 0
    assert project.lines("ran") == ["1", "2", "3", "2"]
    project.ok()
    assert project.lines("ran") == ["1", "2", "3", "2"]


def test_exit_zero_restores_the_exit_code_of_the_original(project: Project) -> None:
    project.write(task=FRAGILE)
    project.configure({"a": [2]})
    assert project.run(STOKER_COMPAT_EXIT_ZERO="1").returncode == 0
    assert project.run().returncode == 1


def test_program_continues_after_failures_and_keeps_its_output(project: Project) -> None:
    project.write(task=FRAGILE, main=MAIN + """
    import atexit
    atexit.register(print, "at exit")
    file = open("unclosed", "w")
    file.write("written")
    print("after")
    """)  # fmt: skip
    project.configure({"a": [2]}, {"a": [2]})
    done = project.run()
    assert (done.returncode, done.stdout) == (1, "after\nat exit\n")
    assert project.read("unclosed") == "written"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(7)", 7), ("exit(7)", 7), ("sys.exit('no luck')", 1), ("1 / 0", 1),
        ("os._exit(9)", 9), ("sys.exit()", 2), ("sys.exit(0)", 2), ("sys.exit(None)", 2),
        ("raise SystemExit", 2), ("os.kill(os.getpid(), 15)", -15), ("raise KeyboardInterrupt", -2),
    ],
)  # fmt: skip
def test_own_exit_code_of_the_program_is_kept(project: Project, end: str, code: int) -> None:
    """Except 0, if tasks have failed."""
    caught = """
    import argparse, os, sys
    try:
        argparse.ArgumentParser().parse_args(["--nothing"])
    except SystemExit as left:
        assert left.code == 2
    try:
        1 / 0
    except ZeroDivisionError:
        pass
    """
    project.write(task=FRAGILE, main=f"{MAIN}{caught}{end}\n")
    project.configure({"a": [2]}, {"a": ["x"], "b": [1]})
    project.write(task=FRAGILE.replace("== 2 and", "in (2, 'x') and"))
    assert project.run().returncode == code


def test_exit_code_counts_failures(project: Project) -> None:
    project.write(task="""
        import os
        class Task:  # duck typing: not derived from GPUTask
            def __init__(self, config, work_dir): pass
            def required_env(self): return {}
            def main(self): os.kill(os.getpid(), 9)
    """)  # fmt: skip
    project.configure({"a": [1, 2, 3]})
    done = project.run()
    assert done.returncode == 3
    assert "fails task a-1,: killed by SIGKILL; see " in done.stderr


def test_task_can_requeue_itself(project: Project) -> None:
    project.write(task="""
        import os, stoker
        from gpu_task_scheduler.gpu_task import GPUTask
        class Task(GPUTask):
            def main(self):
                with open("ran", "a") as file: file.write("x\\n")
                if os.environ["STOKER_ATTEMPT"] == "1":
                    stoker.requeue()
    """)  # fmt: skip
    project.configure({"a": [1]})
    project.ok(STOKER_RETRY_DELAY="0")
    assert len(project.lines("ran")) == 2
    assert project.messages()[-2:] == ["INFO gpu0 finishes task a-1,", "INFO gpu0 finished"]


@pytest.mark.parametrize("method", ["__init__(self, *_)", "required_env(self)"])
def test_exception_in_the_task_class_fails_only_its_instance(project: Project, method: str) -> None:
    project.write(
        task=f"""
        from gpu_task_scheduler.gpu_task import GPUTask
        class Task(GPUTask):
            def {method}:
                raise OSError("no data")
    """
    )
    project.configure({"a": [1, 2]})
    done = project.run()
    assert done.returncode == 2
    assert "ERROR gpu0 fails task a-1,: OSError: no data; see " in done.stderr
    assert project.read("results/a-2,/worker.log").endswith("OSError: no data\n")


def test_import_error_is_reported_and_the_instance_runs_again(project: Project) -> None:
    project.write(
        task="""
        import os
        from gpu_task_scheduler.gpu_task import GPUTask
        if "STOKER_JOB_ID" in os.environ and not os.path.exists("fixed"):
            import no_such_module
        class Task(GPUTask): ...
    """
    )
    project.configure({"a": [1]})
    assert project.run().returncode == 1
    assert "ModuleNotFoundError" in project.read("results/a-1,/worker.log")
    project.path("fixed").touch()
    project.ok()


def test_failed_stage_does_not_invalidate_the_one_before_it(project: Project) -> None:
    project.write(task=FRAGILE.replace("a'] ==", "a'] !="))
    project.path("fixed").touch()
    project.configure({"a": [1]})
    project.ok()
    project.path("fixed").unlink()
    stage = {"log_file": "second.log", "scheduler_log_file_path": "second_scheduler.log"}
    project.write(task=FRAGILE.replace("Task(GPU", "Second(GPU").replace('"a"] == 2', '"a"] == 1'),
                  main=MAIN.replace("Task,", "Second,").replace("=Task", "=Second")
                  .replace("import Task", "import Second"))  # fmt: skip
    project.configure({"a": [1]}, force_rerun=True, **stage)
    assert project.run().returncode == 1
    project.configure({"a": [1]}, **stage)
    assert project.run().returncode == 1  # not forced: runs again because it failed
    project.write(task=FRAGILE, main=MAIN)
    project.configure({"a": [1]})
    project.ok()
    assert project.messages()[-2] == "INFO gpu0 skips task a-1,"


# -- identity ------------------------------------------------------------------------------------


def test_instances_with_the_same_name_run_in_separate_folders(project: Project) -> None:
    values = ["x" * 30 + end for end in ("1", "2", "3")]
    project.configure({"a": values}, gpu=["0", "1"])
    project.ok()
    found = [
        json.loads(project.read(f"results/{name}/out.json"))["a"] for name in project.results()
    ]
    assert sorted(found) == values
    before = project.results()
    project.ok()
    assert project.results() == before
    assert sum(" skips " in line for line in project.messages()) == 3


def test_folder_of_other_parameters_does_not_count_as_done(project: Project) -> None:
    long = "x" * 30
    for value in (f"{long}1", f"{long}2", f"{long}1"):
        project.configure({"a": [value]})
        project.ok()
    found = [
        json.loads(project.read(f"results/{name}/out.json"))["a"] for name in project.results()
    ]
    assert found == [f"{long}1", f"{long}2"]
    project.write(collect="""
        from config import config
        from gpu_task_scheduler.config_manager import ConfigManager
        config["test_config"] = [{"a": ["x" * 30 + "2", "x" * 30 + "1"]}]
        manager = ConfigManager(config)
        while manager.get_num_left_config() > 0:
            print(open(manager.get_next_config()["work_dir"] + "/out.json").read())
    """)  # fmt: skip
    printed = [json.loads(line)["a"] for line in project.ok("collect.py").splitlines()]
    assert printed == [f"{long}2", f"{long}1"]


def test_slashes_create_nested_folders_as_in_the_original(project: Project) -> None:
    project.configure({"a": ["data/x", "data/y"]})
    for _ in range(2):
        project.ok()
    assert json.loads(project.read("results/a-data/x,/out.json")) == {"a": "data/x"}
    assert sum(" skips " in line for line in project.messages()) == 2


def test_repeated_instance_runs_once_or_one_after_the_other(project: Project) -> None:
    project.write(task="""
        import os
        from gpu_task_scheduler.gpu_task import GPUTask
        class Task(GPUTask):
            def main(self):
                busy = os.path.join(self._work_dir, "busy")
                os.close(os.open(busy, os.O_CREAT | os.O_EXCL))
                with open("ran", "a") as file: file.write("x\\n")
                os.unlink(busy)
    """)  # fmt: skip
    project.configure({"a": [1, 1, 1]}, gpu=["0", "1"])
    project.ok()
    assert len(project.lines("ran")) == 1
    project.configure({"a": [1, 1, 1]}, gpu=["0", "1"], force_rerun=True)
    project.ok()
    assert len(project.lines("ran")) == 4


# -- signals and crashes -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_no_task_outlives_its_program_and_interrupted_tasks_run_again(
    project: Project, number: int
) -> None:
    project.write(task=WAITS)
    project.configure({"a": [1, 2, 3, 4]}, gpu=["0", "1"])
    program = project.popen()
    found = wait_for_pids(project, 4)
    program.send_signal(number)
    program.communicate()
    assert program.returncode != 0
    wait_until(lambda: not any(is_alive(pid) for pid in found))
    assert sorted(project.results()) == ["a-1,", "a-2,"]
    pickles = ["gpu0_worker.pkl", "gpu1_worker.pkl"]
    wait_until(lambda: sorted(os.listdir(project.path("temp"))) == pickles)
    project.path("open").touch()
    project.ok()
    assert not any(" skips " in line for line in project.messages())
    assert len(project.lines("pids")) == 12
    project.ok()
    assert len(project.lines("pids")) == 12


def test_no_task_outlives_the_engine(project: Project) -> None:
    project.write(task=WAITS)
    project.configure({"a": [1]})
    program = project.popen()
    found = wait_for_pids(project, 2)
    parent = int(Path(f"/proc/{found[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    _, errors = program.communicate()
    assert program.returncode == 1
    assert f"the scheduler process (pid {parent}) died: SIGKILL" in errors
    wait_until(lambda: not any(is_alive(pid) for pid in found))


def test_sigusr1_lets_running_tasks_finish_and_starts_no_others(project: Project) -> None:
    project.write(task=WAITS)
    project.configure({"a": [1, 2, 3]})
    program = project.popen()
    wait_for_pids(project, 2)
    program.send_signal(signal.SIGUSR1)
    assert program.stderr is not None
    for line in program.stderr:
        if line.startswith("draining"):
            break
    project.path("open").touch()
    program.communicate()
    assert program.returncode == 0
    assert project.messages() == [
        "INFO gpu0 receives task a-1,", "INFO gpu0 finishes task a-1,", "INFO gpu0 finished",
    ]  # fmt: skip
    project.ok()
    assert sorted(project.results()) == ["a-1,", "a-2,", "a-3,"]


def test_instance_that_another_program_runs_is_skipped(project: Project) -> None:
    project.write(task=WAITS)
    project.configure({"a": [1]})
    program = project.popen()
    wait_for_pids(project, 2)
    project.ok()
    assert project.messages()[1:] == [
        "INFO gpu0 receives task a-1,", "INFO gpu0 skips task a-1,", "INFO gpu0 finished",
    ]  # fmt: skip
    project.path("open").touch()
    program.communicate()
    assert program.returncode == 0


def test_two_programs_may_share_a_temp_folder(lab: Lab) -> None:
    projects = [Project(lab, name) for name in ("one", "two")]
    programs = []
    for number, project in enumerate(projects):
        project.configure({"a": list(range(number, 20, 2))}, gpu=["0", "1"], temp_folder="../temp")
        programs.append(project.popen())
    for project, program in zip(projects, programs, strict=True):
        program.communicate()
        assert program.returncode == 0
        for name in project.results():
            assert f"a-{json.loads(project.read(f'results/{name}/out.json'))['a']}," == name
    assert sorted(os.listdir(lab.folder / "temp")) == ["gpu0_worker.pkl", "gpu1_worker.pkl"]


# -- environment ---------------------------------------------------------------------------------


def test_no_command_needs_to_be_on_the_path(project: Project) -> None:
    project.configure({"a": [1]})
    project.ok(PATH="/nowhere")
    assert project.results() == {"a-1,": ["out.json", "worker.log"]}


def test_pickle_that_other_users_can_write_is_not_read(project: Project) -> None:
    project.path("open.pkl").write_bytes(b"")
    project.path("open.pkl").chmod(0o666)
    words = ["open.pkl", "task", str(project.path("task.py")), str(project.folder)]
    command = [sys.executable, "-m", "gpu_task_scheduler.start_gpu_task", *words]
    env = project.lab.env | {"STOKER_JOB_ID": "1"}
    done = subprocess.run(command, cwd=project.folder, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "error: `open.pkl` may have been written by another user and is not read\n"
    )


GREEDY = """
    import os
    with open("seen", "a") as file:  # like a framework that uses all visible GPUs
        file.write(repr(os.environ.get("CUDA_VISIBLE_DEVICES")) + "\\n")
"""


def test_framework_imported_by_a_task_module_sees_no_gpu_in_the_program(project: Project) -> None:
    project.configure({"a": [1]}, gpu=["5"])
    project.write(greedy=GREEDY, task="""
        from gpu_task_scheduler.gpu_task import GPUTask
        import greedy
        class Task(GPUTask): ...
    """, main=MAIN + "    import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))\n")  # fmt: skip
    assert project.ok() == "None\n"
    assert project.lines("seen") == ["''", "'5'"]
    assert project.run(CUDA_VISIBLE_DEVICES="7").stdout == "7\n"
    assert project.lines("seen")[2] == "''"
    project.ok(CUDA_VISIBLE_DEVICES="7", STOKER_COMPAT_SHOW_GPUS="1")
    assert project.lines("seen")[3] == "'7'"


def test_framework_imported_before_gputask_sees_no_gpu_after_the_scheduler_import(
    project: Project,
) -> None:
    """The usual order: the main script imports the scheduler, the task its framework first."""
    project.configure({"a": [1]}, gpu=["5"])
    task = """
        import greedy
        from gpu_task_scheduler.gpu_task import GPUTask
        class Task(GPUTask): ...
    """
    project.write(greedy=GREEDY, task=task, main="""
        import os
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        from config import config
        from task import Task
        print(os.environ.get("CUDA_VISIBLE_DEVICES"))
        GPUTaskScheduler(config, Task).start()
    """)  # fmt: skip
    assert project.ok(CUDA_VISIBLE_DEVICES="7") == "7\n"
    assert project.lines("seen") == ["''", "'5'"]
    # A second task module, which derives from the first.
    project.write(greedy2=GREEDY, base=task, task="""
        from base import Task as Base
        import greedy2
        from gpu_task_scheduler.gpu_task import GPUTask
        class Task(Base): ...
    """)  # fmt: skip
    project.configure({"a": [2]}, gpu=["5"])
    project.ok(CUDA_VISIBLE_DEVICES="7")
    assert project.lines("seen")[2:] == ["''", "''", "'5'", "'5'"]


def test_module_that_imports_gputask_without_a_task_hides_gpus_only_during_its_import(
    project: Project,
) -> None:
    project.configure({"a": [1]})
    project.write(greedy=GREEDY, helper="""
        from gpu_task_scheduler.gpu_task import GPUTask
        import greedy
        def is_task(one): return isinstance(one, GPUTask)
    """, broken="""
        from gpu_task_scheduler.gpu_task import GPUTask
        raise ImportError("no luck")
    """, main="""
        import os, subprocess
        import helper
        try:
            import broken
        except ImportError:
            pass
        print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
        subprocess.run(["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])
    """)  # fmt: skip
    assert project.ok(CUDA_VISIBLE_DEVICES="7") == "7\n7\n"
    assert project.lines("seen") == ["''"]
    project.write(main="    from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler"
                  + project.read("main.py").replace("\n", "\n    "))  # fmt: skip
    assert project.ok(CUDA_VISIBLE_DEVICES="7") == "7\n7\n"


def test_task_waits_for_a_gpu_that_a_queued_job_uses(host: GpuHost) -> None:
    gate, lab = host.gate(), host.lab()
    lab.start(gate, "--gpu-ids", "1")
    project = Project(host.lab())
    project.configure({"a": [1]}, gpu=["1"])
    program = project.popen()
    assert program.stderr is not None
    assert without_stderr_times(program.stderr.readline()) == [
        "WARNING waiting for a GPU: leased to another process"
    ]
    gate.open()
    _, errors = program.communicate()
    assert without_stderr_times(errors)[-1] == "INFO gpu1 finished"
    assert program.returncode == 0


def test_configuration_module_can_count_the_gpus(project: Project) -> None:
    project.write(config="""
        import os
        gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        config = {"scheduler_config": {"gpu": gpus}, "test_config": [{"a": [1]}]}
    """, main="""
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        from gpu_task_scheduler.gpu_task import GPUTask
        from config import config
        from task import Task
        GPUTaskScheduler(config, Task).start()
    """)  # fmt: skip
    project.ok(CUDA_VISIBLE_DEVICES="6")
    assert project.messages()[-1] == "INFO gpu6 finished"


def test_matplotlib_works_without_a_display(project: Project) -> None:
    pytest.importorskip("matplotlib")
    project.write(task="""
        from gpu_task_scheduler.gpu_task import GPUTask
        class Task(GPUTask):
            def main(self):
                import matplotlib
                print(matplotlib.get_backend())
                if self._config["a"] == 2:
                    matplotlib.use("svg")
                    print(matplotlib.get_backend())
    """)  # fmt: skip
    project.configure({"a": [1, 2]})
    project.ok()
    assert project.read("results/a-1,/worker.log").lower() == "agg\n"
    assert project.read("results/a-2,/worker.log").lower() == "agg\nsvg\n"
