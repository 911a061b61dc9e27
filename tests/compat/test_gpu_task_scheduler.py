"""gpu_task_scheduler: the contract of the original, row by row."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys

import pytest

from tests.compat.gts_project import MAIN, Project, without_stderr_times
from tests.lab import Lab


@pytest.fixture
def project(lab: Lab) -> Project:
    return Project(lab)


SHOW = """
    import json, os, sys
    from gpu_task_scheduler.gpu_task import GPUTask

    class Task(GPUTask):
        def main(self):
            names = ("CUDA_VISIBLE_DEVICES", "MPLBACKEND", "EXTRA", "PID")
            seen = {name: os.environ.get(name) for name in names}
            seen |= {"cwd": os.getcwd(), "path": sys.path, "module": type(self).__module__,
                      "file": sys.modules[type(self).__module__].__file__,
                      "stdin": sys.stdin.read(), "work_dir": self._work_dir,
                      "config": self._config}
            print(json.dumps(seen))
"""


def printed(project: Project, folder: str) -> dict[str, object]:
    seen: dict[str, object] = json.loads(project.read(f"results/{folder}/worker.log"))
    return seen


def test_readme_example_runs_unchanged(project: Project) -> None:
    project.write(
        config="""
            config = {
                "scheduler_config": {
                    "gpu": ["0", "1", "2"]
                },

                "global_config": {
                    "num_run": 5,
                    "num_epoch": 200,
                },

                "test_config": [
                    {
                        "method": ["GAN", "ALI"],
                        "num_packing": [1],
                        "num_zmode": [1]
                    },
                    {
                        "method": ["WGAN"],
                        "num_packing": [3],
                        "num_zmode": [1, 2]
                    }
                ]
            }
        """,
        my_gpu_task="""
            from gpu_task_scheduler.gpu_task import GPUTask

            class MyGPUTask(GPUTask):
                def main(self):
                    print(self._config)
        """,
        main="""
            from config import config
            from my_gpu_task import MyGPUTask
            from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
            scheduler = GPUTaskScheduler(config = config, gpu_task_class = MyGPUTask)
            scheduler.start()
        """,
    )
    assert project.ok() == ""
    assert project.results() == {
        "method-ALI,num_packing-1,num_zmode-1,": ["worker.log"],
        "method-GAN,num_packing-1,num_zmode-1,": ["worker.log"],
        "method-WGAN,num_packing-3,num_zmode-1,": ["worker.log"],
        "method-WGAN,num_packing-3,num_zmode-2,": ["worker.log"],
    }
    assert project.read("results/method-WGAN,num_packing-3,num_zmode-2,/worker.log") == (
        "{'num_run': 5, 'num_epoch': 200, 'method': 'WGAN', 'num_packing': 3, 'num_zmode': 2}\n"
    )


def test_scheduler_log_has_the_lines_of_the_original(project: Project) -> None:
    project.configure({"a": [1, 2]})
    project.path("results/a-1,").mkdir(parents=True)
    done = project.run()
    when = r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d gpu_task_scheduler\.py"
    lines = [
        (53, "gpu0 receives task a-1,"),
        (56, "gpu0 skips task a-1,"),
        (53, "gpu0 receives task a-2,"),
        (93, "gpu0 finishes task a-2,"),
        (46, "gpu0 finished"),
    ]
    expected = "".join(rf"{when}\[line:{line}\] INFO {text}\n" for line, text in lines)
    assert re.fullmatch(expected, project.read("scheduler.log"))
    assert without_stderr_times(done.stderr) == [f"INFO {text}" for _, text in lines]
    project.ok()
    assert len(project.lines("scheduler.log")) == 10  # lines are appended


def test_lines_go_to_stderr_only_if_the_log_is_switched_off(project: Project) -> None:
    project.configure({"a": [1]}, scheduler_log_file_path=None, log_file=None)
    done = project.run()
    line = r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d INFO gpu0 "
    assert re.fullmatch(
        f"{line}receives task a-1,\n{line}finishes task a-1,\n{line}finished\n", done.stderr
    )
    assert not project.path("scheduler.log").exists()
    assert project.results() == {"a-1,": ["out.json"]}


def test_lines_also_go_to_the_handlers_of_the_program(project: Project) -> None:
    project.configure({"a": [1]})
    setup = "    import logging; logging.basicConfig(filename='own.log', level=logging.INFO)"
    project.write(main=setup + MAIN)
    project.ok()
    assert project.lines("own.log")[-1] == "INFO:root:gpu0 finished"
    assert project.messages()[-1] == "INFO gpu0 finished"


def test_messages_of_the_program_go_to_stderr_and_the_scheduler_log(
    project: Project,
) -> None:
    project.configure({"a": [1]})
    project.write(main="""
        import logging
        from config import config
        from task import Task
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        scheduler = GPUTaskScheduler(config, Task)
        logging.info("before %d", 1)
        scheduler.start()
        logging.getLogger("mine").warning("between")
        config["scheduler_config"]["scheduler_log_file_path"] = "second.log"
        GPUTaskScheduler(config, Task).start()
        logging.debug("not at all")
        logging.error("after")
    """)  # fmt: skip
    done = project.run()
    first = ["INFO gpu0 receives task a-1,", "INFO gpu0 finishes task a-1,", "INFO gpu0 finished"]
    second = ["INFO gpu0 receives task a-1,", "INFO gpu0 skips task a-1,", "INFO gpu0 finished"]
    assert without_stderr_times(done.stderr) == [
        "INFO before 1", *first, "WARNING between", *second, "ERROR after",
    ]  # fmt: skip
    lines = [line.partition("] ")[2] or line for line in project.messages()]
    assert lines == ["INFO before 1", *first, "WARNING between"]
    assert re.search(r" main\.py\[line:\d+\] INFO before 1$", project.lines("scheduler.log")[0])
    assert project.messages("second.log")[:3] == second
    assert project.lines("second.log")[-1].endswith("] ERROR after")


@pytest.mark.parametrize("setup", ["logging.info('early')", "logging.basicConfig(level=20)"])
def test_lines_are_not_repeated_if_the_program_logs_to_stderr(project: Project, setup: str) -> None:
    project.configure({"a": [1]})
    project.write(main=f"    import logging; {setup}" + MAIN)
    done = project.run()
    assert without_stderr_times(done.stderr) == [
        "INFO gpu0 receives task a-1,", "INFO gpu0 finishes task a-1,", "INFO gpu0 finished",
    ]  # fmt: skip
    assert len(project.lines("scheduler.log")) == 3


def test_messages_of_a_main_script_task_go_to_its_worker_log(project: Project) -> None:
    project.write(main="""
        import logging
        from gpu_task_scheduler.gpu_task import GPUTask
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        class Task(GPUTask):
            def main(self):
                logging.warning("in a task")
        config = {"scheduler_config": {"gpu": ["0"]}, "test_config": [{"a": [1]}]}
        GPUTaskScheduler(config, Task).start()
    """)  # fmt: skip
    project.ok()
    assert "in a task" not in project.read("scheduler.log")
    assert project.read("results/a-1,/worker.log") == "WARNING:root:in a task\n"


def test_task_process_has_its_gpu_its_folder_and_an_empty_stdin(project: Project) -> None:
    project.write(task=SHOW)
    project.configure({"a": [1]}, gpu=[["4", "5"]])
    project.ok()
    seen = printed(project, "a-1,")
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["MPLBACKEND"]) == ("4,5", "Agg")
    assert (seen["cwd"], seen["stdin"]) == (str(project.folder), "")
    assert seen["path"][-1] == str(project.folder)  # type: ignore[index]
    assert (seen["module"], seen["file"]) == ("task", str(project.path("task.py")))
    assert seen["work_dir"] == str(project.path("results/a-1,"))
    assert seen["config"] == {"a": 1}


def test_mplbackend_of_the_user_is_kept(project: Project) -> None:
    project.write(task=SHOW)
    project.configure({"a": [1]})
    project.ok(MPLBACKEND="svg")
    assert printed(project, "a-1,")["MPLBACKEND"] == "svg"


def test_required_env_is_called_in_the_program_and_takes_precedence(project: Project) -> None:
    project.write(base=SHOW, task="""
        import os
        import base

        class Task(base.Task):
            def required_env(self):
                assert self._config == {"a": 1} and os.path.isdir(self._work_dir)
                return {"EXTRA": "x", "PID": str(os.getpid()), "CUDA_VISIBLE_DEVICES": "9"}
    """)  # fmt: skip
    project.configure({"a": [1]})
    project.write(main=MAIN + "    import os; print(os.getpid())\n")
    pid = project.ok().strip()
    seen = printed(project, "a-1,")
    assert (seen["EXTRA"], seen["CUDA_VISIBLE_DEVICES"], seen["PID"]) == ("x", "9", pid)


def test_tasks_inherit_variables_that_the_program_sets(project: Project) -> None:
    project.write(task=SHOW)
    project.write(main="    import os; os.environ['EXTRA'] = 'late'" + MAIN)
    project.configure({"a": [1]})
    project.ok()
    assert printed(project, "a-1,")["EXTRA"] == "late"


def test_one_pickle_per_slot_is_kept(project: Project) -> None:
    project.write(config="""
        config = {"scheduler_config": {"gpu": ["0", ["1", "2"]]}, "test_config": [{"a": range(6)}]}
    """)  # fmt: skip
    project.ok()
    names = sorted(path.name for path in project.path("temp").iterdir())
    assert names == ["gpu0_worker.pkl", "gpu1,2_worker.pkl"]


def test_start_gpu_task_runs_a_kept_pickle_again(project: Project) -> None:
    project.configure({"a": [1]})
    project.ok()
    out = project.path("results/a-1,/out.json")
    out.unlink()
    words = ["temp/gpu0_worker.pkl", "task", str(project.path("task.py")), str(project.folder)]
    again = [sys.executable, "-m", "gpu_task_scheduler.start_gpu_task", *words]
    subprocess.run(again, cwd=project.folder, env=project.lab.env, check=True)
    assert json.loads(out.read_text()) == {"a": 1}
    sys.path.insert(0, str(project.folder))
    try:
        with project.path("temp/gpu0_worker.pkl").open("rb") as file:
            task = pickle.load(file)
    finally:
        sys.path.remove(str(project.folder))
        del sys.modules["task"]
    assert (task._config, task._work_dir) == ({"a": 1}, str(out.parent))


def test_start_gpu_task_reads_pickles_of_the_original(project: Project) -> None:
    make = "import pickle, task\npickle.dump(task.Task({'b': 2}, '.'), open('old.pkl', 'wb'))\n"
    subprocess.run(
        [sys.executable, "-c", make], cwd=project.folder, env=project.lab.env, check=True
    )
    words = ["old.pkl", "task", str(project.path("task.py")), str(project.folder)]
    run = [sys.executable, "-P", "-m", "gpu_task_scheduler.start_gpu_task", *words]
    subprocess.run(run, cwd=project.folder, env=project.lab.env, check=True)
    assert json.loads(project.read("out.json")) == {"b": 2}
    wrong = subprocess.run([*run[:4], "x"], env=project.lab.env, capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr) == (
        2, "usage: start_gpu_task PKL MODULE MODULE_PATH CWD\n",
    )  # fmt: skip


def start(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "gpu_task_scheduler.start_gpu_task", *words]
    return subprocess.run(
        command, cwd=project.folder, env=project.lab.env, capture_output=True, text=True
    )


def test_start_gpu_task_prints_its_usage(project: Project) -> None:
    for word in ("-h", "--help"):
        done = start(project, word)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "usage: start_gpu_task PKL MODULE MODULE_PATH CWD\n"


def test_start_gpu_task_reports_unreadable_files_in_one_sentence(project: Project) -> None:
    project.path("junk.pkl").write_bytes(b"junk")
    project.path("empty.pkl").write_bytes(b"")
    project.path("other.pkl").write_bytes(pickle.dumps({"a": 1}))
    project.path("lost.pkl").write_bytes(b"cnowhere\nTask\n.")
    here, task = str(project.folder), str(project.path("task.py"))
    cases = (
        (("none.pkl", "task", task, here), "cannot read `none.pkl`: No such file or directory"),
        ((".", "task", task, here), "cannot read `.`: Is a directory"),
        (("junk.pkl", "task", task, here), "cannot unpickle the task in `junk.pkl`: "),
        (("empty.pkl", "task", task, here), "cannot unpickle the task in `empty.pkl`: "),
        (("lost.pkl", "task", task, here), "cannot unpickle the task in `lost.pkl`: "),
        (("other.pkl", "task", task, here), "`other.pkl` does not contain a task"),
        (
            ("other.pkl", "task", "none.py", here),
            "the file `none.py` of the module `task` does not exist",
        ),
        (("other.pkl", "none", "", here), "there is no module `none`"),
    )
    for words, text in cases:
        done = start(project, *words)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(f"error: {text}") and done.stderr.count("\n") == 1


def test_existing_folder_is_skipped_unless_a_rerun_is_forced(project: Project) -> None:
    folder = project.path("results/a-1,")
    folder.mkdir(parents=True)
    (folder / "old.txt").write_text("kept")
    (folder / "worker.log").write_text("of the original, and longer than the new one")
    project.configure({"a": [1]})
    project.ok()
    assert sorted(path.name for path in folder.iterdir()) == ["old.txt", "worker.log"]
    project.configure({"a": [1]}, force_rerun=True)
    for _ in range(2):
        project.ok()
        assert (folder / "worker.log").read_text() == ""
        assert sorted(path.name for path in folder.iterdir()) == [
            "old.txt", "out.json", "worker.log",
        ]  # fmt: skip


def test_run_without_test_config_uses_the_root_folder(project: Project) -> None:
    project.configure()
    project.ok()
    assert sorted(path.name for path in project.path("results").iterdir()) == [
        "out.json", "worker.log",
    ]  # fmt: skip
    assert project.messages()[0] == "INFO gpu0 receives task "
    project.ok()
    assert project.messages()[-2] == "INFO gpu0 skips task "


def test_relative_folders_and_other_log_names_are_used(project: Project) -> None:
    project.write(task=SHOW)
    project.configure(
        {"a": [1]}, result_root_folder="../shared", temp_folder="deep/temp", log_file="other.log",
        scheduler_log_file_path="deep/s.log",
    )  # fmt: skip
    project.path("deep").mkdir()
    project.ok()
    log = project.lab.folder / "shared/a-1,/other.log"
    assert json.loads(log.read_text())["work_dir"] == "../shared/a-1,"
    assert project.path("deep/temp/gpu0_worker.pkl").exists()
    assert project.messages("deep/s.log")[-1] == "INFO gpu0 finished"


def test_start_returns_none_and_may_be_called_again(project: Project) -> None:
    project.configure({"a": [1]})
    project.write(main="""
        from config import config
        from task import Task
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        scheduler = GPUTaskScheduler(config, Task)
        print(scheduler.start(), scheduler.start(), sorted(config["scheduler_config"]))
    """)  # fmt: skip
    assert project.ok() == "None None ['gpu']\n"
    assert project.messages() == [
        "INFO gpu0 receives task a-1,", "INFO gpu0 finishes task a-1,",
        "INFO gpu0 finished", "INFO gpu0 finished",
    ]  # fmt: skip


def test_invalid_configuration_creates_no_files(project: Project) -> None:
    project.configure({"a": [1]}, gpu=[])
    done = project.run()
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: please specify at least one gpu in scheduler_config\n")
    assert not project.path("temp").exists() and not project.path("scheduler.log").exists()


def test_tasks_on_pairs_and_repeated_slots_write_their_own_results(project: Project) -> None:
    project.write(config="""
        config = {"scheduler_config": {"gpu": ["0", "0", ["0", "1"], "0"]},
                  "test_config": [{"a": range(24)}]}
    """)  # fmt: skip
    project.ok()
    for number in range(24):
        assert json.loads(project.read(f"results/a-{number},/out.json")) == {"a": number}
    finished = [line for line in project.messages() if line.endswith(" finished")]
    assert sorted(finished) == ["INFO gpu0 finished"] * 3 + ["INFO gpu0,1 finished"]


def test_instances_are_received_in_order(project: Project) -> None:
    project.write(config="""
        config = {"scheduler_config": {"gpu": ["0", "1"]}, "test_config": [{"a": range(8)}]}
    """)  # fmt: skip
    project.ok()
    received = [line.split()[-1] for line in project.messages() if " receives " in line]
    assert received == [f"a-{number}," for number in range(8)]


def test_package_has_the_imports_of_the_original(project: Project) -> None:
    project.write(main="""
        from gpu_task_scheduler.config_manager import ConfigManager
        from gpu_task_scheduler.gpu_task import GPUTask
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

        task = GPUTask({"a": 1}, "there")
        print(task._config, task._work_dir, task.required_env(), task.main())
    """)  # fmt: skip
    assert project.ok() == "{'a': 1} there {} None\n"
