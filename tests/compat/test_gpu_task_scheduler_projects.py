"""gpu_task_scheduler as public projects use it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.compat.gts_project import Project
from tests.lab import Lab


@pytest.fixture
def project(lab: Lab) -> Project:
    return Project(lab)


def test_training_and_generation_stages_share_their_folders(project: Project) -> None:
    grid = '[{"dataset": ["web", "google"], "epoch": [400], "run": [0, 1], "aux": [True]}]'
    stage = """
        import sys
        if __name__ == "__main__":
            from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
            from config{which} import config
            from {module} import {task}
            scheduler = GPUTaskScheduler(config=config, gpu_task_class={task})
            scheduler.start()
    """
    project.write(
        code__shared="def save(name, text):\n    with open(name, 'w') as file: file.write(text)\n",
        experiment__config=f"""
            config = {{"scheduler_config": {{"gpu": ["0", "1"], "config_string_value_maxlen": 1000,
                                             "result_root_folder": "../results"}},
                       "global_config": {{"batch_size": 100}}, "test_config": {grid}}}
        """,
        experiment__config_generate_data=f"""
            config = {{"scheduler_config": {{"gpu": ["0", "1"], "config_string_value_maxlen": 1000,
                                             "result_root_folder": "../results",
                                             "scheduler_log_file_path": "scheduler_generate.log",
                                             "log_file": "worker_generate_data.log",
                                             "force_rerun": True}},
                       "global_config": {{"batch_size": 100, "generate_num_train_sample": 5}},
                       "test_config": {grid}}}
        """,
        experiment__gan_task="""
            from gpu_task_scheduler.gpu_task import GPUTask
            class GANTask(GPUTask):
                def main(self):
                    import os, sys
                    sys.path.append("../code")
                    import shared
                    shared.save(os.path.join(self._work_dir, "model"), repr(self._config))
                    print("trained")
        """,
        experiment__gan_generate_data_task="""
            from gpu_task_scheduler.gpu_task import GPUTask
            class GANGenerateDataTask(GPUTask):
                def main(self):
                    import os, sys
                    sys.path.append("../code")
                    import shared
                    model = eval(open(os.path.join(self._work_dir, "model")).read())
                    assert {**model, "generate_num_train_sample": 5} == self._config
                    shared.save(os.path.join(self._work_dir, "data"), "generated")
        """,
        experiment__main=stage.format(which="", module="gan_task", task="GANTask"),
        experiment__main_generate_data=stage.format(
            which="_generate_data", module="gan_generate_data_task", task="GANGenerateDataTask"
        ),
    )
    for script in ("main.py", "main_generate_data.py", "main.py"):
        done = project.run(script, cwd=project.path("experiment"))
        assert done.returncode == 0, done.stderr
    files = ["data", "model", "worker.log", "worker_generate_data.log"]
    assert project.results() == {
        f"aux-True,dataset-{dataset},epoch-400,run-{run},": files
        for dataset in ("google", "web")
        for run in (0, 1)
    }
    assert project.read("results/aux-True,dataset-web,epoch-400,run-1,/worker.log") == "trained\n"
    assert sum(" skips " in line for line in project.messages("experiment/scheduler.log")) == 4


def test_results_can_be_collected_in_a_loop_and_inside_a_task(project: Project) -> None:
    project.configure({"run": [0, 1, 2], "lr": [0.1]}, temp_folder="temp")
    project.ok()
    project.write(collect="""
        def collect():
            import os
            from config import config
            from gpu_task_scheduler.config_manager import ConfigManager
            manager = ConfigManager(config)
            found = []
            while manager.get_num_left_config() > 0:
                one = manager.get_next_config()
                found.append(os.path.exists(one["work_dir"] + "/out.json") and one["config"]["run"])
            return found
    """, metrics_task="""
        from gpu_task_scheduler.gpu_task import GPUTask
        class MetricsTask(GPUTask):
            def main(self):
                from collect import collect
                print(collect(), self._work_dir)
    """, metrics="""
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        from metrics_task import MetricsTask
        from collect import collect
        config = {"scheduler_config": {"gpu": ["0"], "result_root_folder": "metrics"}}
        GPUTaskScheduler(config, MetricsTask).start()
        print(collect())
    """)  # fmt: skip
    assert project.ok("metrics.py") == "[0, 1, 2]\n"
    assert project.read("metrics/worker.log") == "[0, 1, 2] metrics/\n"


def test_infinity_none_functions_and_ranges_reach_the_task_unchanged(project: Project) -> None:
    project.write(config="""
        import math
        def scale(x): return 2 * x
        config = {"scheduler_config": {"gpu": ["0"]},
                  "global_config": {"most": math.inf, "least": None, "f": scale, "g": lambda: 7},
                  "test_config": [{"run": range(2), "noise": [None]}]}
    """, task="""
        from gpu_task_scheduler.gpu_task import GPUTask
        class Task(GPUTask):
            def main(self):
                c = self._config
                print(c["most"], c["least"], c["f"](2), c["g"](), c["run"], c["noise"])
    """)  # fmt: skip
    project.ok()
    assert project.read("results/noise-None,run-1,/worker.log") == "inf None 4 7 1 None\n"


def test_task_class_in_a_package_can_import_its_siblings(project: Project) -> None:
    project.configure({"a": [1]})
    project.write(tasks____init__="", tasks__helper="NAME = 'helper'\n", tasks__gan="""
        from gpu_task_scheduler.gpu_task import GPUTask
        from . import helper
        import sibling
        class GAN(GPUTask):
            def main(self):
                import wrapper
                print(helper.NAME, sibling.NAME, wrapper.NAME, __name__)
    """, sibling="NAME = 'sibling'\n", main="""
        from config import config
        from tasks.gan import GAN
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        GPUTaskScheduler(config, GAN).start()
    """)  # fmt: skip
    elsewhere = project.lab.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "wrapper.py").write_text("NAME = 'wrapper'\n")
    done = project.run(str(project.path("main.py")), cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert (elsewhere / "results/a-1,/worker.log").read_text() == (
        "helper sibling wrapper tasks.gan\n"
    )


IN_MAIN = """
    import os, sys
    from gpu_task_scheduler.gpu_task import GPUTask
    from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
    SEED = 1
    SEED += 41

    class Task(GPUTask):
        def main(self):
            print(SEED, helper(self._config["a"]), sys.argv[1:])

    def helper(a):
        return a * 2
"""
CONFIG = (
    '{"scheduler_config": {"gpu": ["0", "1"], "force_rerun": True}, "test_config": [{"a": [1, 2]}]}'
)


@pytest.mark.parametrize("guard", ["if __name__ == '__main__':", "if True:"])
def test_task_class_may_be_defined_in_the_main_script(project: Project, guard: str) -> None:
    project.write(
        main=f"""{IN_MAIN}
    {guard}
        with open("starts", "a") as file: file.write("x\\n")
        GPUTaskScheduler({CONFIG}, Task).start()
        print("after")
    """
    )
    assert project.ok("main.py", "--fast") == "after\n"
    assert project.read("results/a-2,/worker.log") == "42 4 ['--fast']\n"
    assert len(project.messages()) == 6
    if "main" in guard:
        assert len(project.lines("starts")) == 1


def test_values_defined_behind_the_main_guard_reach_the_task_class(project: Project) -> None:
    project.write(
        main=f"""
    from gpu_task_scheduler.gpu_task import GPUTask
    class Task(GPUTask):
        def main(self):
            print(os.path.basename("x/y"), table["k"], twice(self._config["a"]))
    if __name__ == "__main__":
        import os
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        table = {{"k": 3}}
        def twice(a): return a * 2
        GPUTaskScheduler({CONFIG}, Task).start()
    """
    )
    project.ok()
    assert project.read("results/a-2,/worker.log") == "y 3 4\n"


def test_names_of_the_script_stay_identical_if_a_value_is_pickled_by_value(
    project: Project,
) -> None:
    project.write(
        main="""
    from gpu_task_scheduler.gpu_task import GPUTask
    from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
    class Point: ...
    def scale(a): return 2 * a
    class Task(GPUTask):
        def main(self):
            c = self._config
            print(type(c["point"]) is Point, c["scale"] is scale, type(self) is Task,
                  c["odd"](1), isinstance(late, Point))
    if __name__ == "__main__":
        late = Point()
        config = {"scheduler_config": {"gpu": ["0"]}, "test_config": [{"a": [1]}],
                  "global_config": {"point": Point(), "scale": scale, "odd": lambda x: scale(x)}}
        GPUTaskScheduler(config, Task).start()
    """
    )
    project.ok()
    assert project.read("results/a-1,/worker.log") == "True True True 2 True\n"


def test_one_script_can_run_two_stages(project: Project) -> None:
    project.write(
        main=f"""{IN_MAIN}
    config = {CONFIG}
    GPUTaskScheduler(config, Task).start()
    class Second(Task):
        def main(self):
            print("second")
    GPUTaskScheduler(config=config, gpu_task_class=Second).start()
    """
    )
    project.ok()
    assert project.read("results/a-1,/worker.log") == "second\n"


def test_script_of_a_package_can_run_as_a_module(project: Project) -> None:
    project.write(
        pkg____init__="",
        pkg__names="NAME = 'names'\n",
        pkg__main=f"""
    from gpu_task_scheduler.gpu_task import GPUTask
    from . import names
    class Task(GPUTask):
        def main(self):
            print(names.NAME)
    if __name__ == "__main__":
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        GPUTaskScheduler({CONFIG}, Task).start()
    """,
    )
    project.ok("-m", "pkg.main")
    assert project.read("results/a-1,/worker.log") == "names\n"


def test_classes_of_notebooks_and_functions_are_pickled_by_value(project: Project) -> None:
    code = f"""
from gpu_task_scheduler.gpu_task import GPUTask
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
def make(word):
    class Local(GPUTask):
        def main(self): print(word, self._config["a"])
    return Local
GPUTaskScheduler({CONFIG}, make("by value")).start()
"""
    subprocess.run([sys.executable, "-c", code], cwd=project.folder, env=project.lab.env,
                   check=True, capture_output=True)  # fmt: skip
    assert project.read("results/a-2,/worker.log") == "by value 2\n"
    project.write(main=code)
    project.ok()
    assert project.read("results/a-2,/worker.log") == "by value 2\n"


def test_server_can_start_tasks_from_a_thread_with_posted_json(project: Project) -> None:
    config = json.dumps(
        {"scheduler_config": {"gpu": ["0", ["1", "2"]]}, "test_config": [{"a": [1]}]}
    )
    project.write(
        main=f"""
        import json, os, signal, threading
        from task import Task
        from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
        def post(body):
            GPUTaskScheduler(config=json.loads(body), gpu_task_class=Task).start()
            print("success")
        before = os.getcwd(), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
        threads = [threading.Thread(target=post, args=({config!r},)) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        after = os.getcwd(), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
        assert before == after
    """
    )
    assert project.ok() == "success\nsuccess\n"
    assert project.results() == {"a-1,": ["out.json", "worker.log"]}


def test_multiprocessing_works_in_tasks(project: Project) -> None:
    project.write(
        task="""
        import multiprocessing, os
        from gpu_task_scheduler.gpu_task import GPUTask
        def visible(_): return os.environ["CUDA_VISIBLE_DEVICES"]
        class Task(GPUTask):
            def main(self):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.map(visible, [0]))
    """
    )
    project.configure({"a": [1]}, gpu=["3"])
    project.ok()
    assert project.read("results/a-1,/worker.log") == "['3']\n"
