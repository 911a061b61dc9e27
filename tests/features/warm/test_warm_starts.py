"""Jobs with --warm are forked from a process that has imported their modules."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.engine.supervisor.process_table import read_process
from tests.compiler import compile_c
from tests.features.warm.helpers import notes, outcomes, servers, write_modules
from tests.lab import Lab, wait_until

_WHERE = "import heavy, os; print(heavy.PID == os.getpid(), heavy.VALUE)"


@pytest.fixture
def modules(lab: Lab) -> Path:
    """The folder of the module `heavy`, on the path of the lab's jobs."""
    folder = write_modules(lab.folder)
    lab.env["PYTHONPATH"] = str(folder)
    lab.env["PYTHONDONTWRITEBYTECODE"] = "1"
    return folder


def _script(lab: Lab, text: str, name: str = "program.py") -> str:
    (lab.folder / name).write_text(text)
    return name


def _run(lab: Lab, *args: str) -> int:
    job = lab.submit(*args)
    lab.wait(job)
    return job


def _lines(lab: Lab, job: int) -> list[str]:
    return [line for line in lab.log(job).splitlines() if line != "heavy was imported"]


# -- modules -------------------------------------------------------------------------------------


def test_named_modules_are_imported_before_the_fork(lab: Lab, modules: Path) -> None:
    script = _script(lab, _WHERE)
    job = _run(lab, "--warm=heavy", "--", sys.executable, script)
    assert _lines(lab, job) == ["False 44999850000"]
    assert notes(lab, job) == []


def test_jobs_with_the_same_folder_and_environment_share_a_server(lab: Lab, modules: Path) -> None:
    script = _script(lab, "import heavy; print(heavy.PID)")
    line = f"{sys.executable} {script} #stoker --warm=heavy\n"
    jobs = list(map(int, lab.ok("submit", "-q", "--file", "-", input=line * 12).split()))
    lab.wait(*jobs)
    assert len({tuple(_lines(lab, job)) for job in jobs}) == 1
    assert len(servers(lab)) == 1


def test_many_jobs_start_at_once_from_one_server(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=16)
    lab.env["PYTHONPATH"] = str(write_modules(lab.folder))
    text = "import sys, heavy\nprint(sys.argv[1], heavy.PID)\nsys.exit(int(sys.argv[1]) % 3)"
    script = _script(lab, text)
    lines = [f"{sys.executable} {script} {n} #stoker --warm=heavy" for n in range(64)]
    made = lab.ok("submit", "-q", "--file", "-", input="\n".join(lines))
    lab.wait()
    found = outcomes(lab)
    pids = set()
    for number, job in enumerate(map(int, made.split())):
        *_, code, _, output = found[job]
        assert code == number % 3
        assert output.split()[-2] == str(number)
        pids.add(output.split()[-1])
    assert len(pids) == 1


def test_first_run_is_recorded_and_the_next_finds_its_modules_imported(lab: Lab) -> None:
    script = _script(lab, "import os, numpy, json; print(numpy.__name__)\n")
    first = _run(lab, "--warm", "--", sys.executable, script, "1")
    second = _run(lab, "--warm", "--", sys.executable, script, "2")
    assert notes(lab, first) == notes(lab, second) == []
    assert any(b"numpy" in _maps(pid) for pid in servers(lab))


def _maps(pid: int) -> bytes:
    return Path(f"/proc/{pid}/maps").read_bytes()


def test_learned_modules_are_kept_when_the_runner_is_restarted(lab: Lab) -> None:
    script = _script(lab, "import numpy; print(numpy.__name__)\n")
    _run(lab, "--warm", "--", sys.executable, script, "1")
    lab.ok("daemon", "stop")
    wait_until(lambda: lab.runner_pid() is None)
    _run(lab, "--warm", "--", sys.executable, script, "2")
    assert any(b"numpy" in _maps(pid) for pid in servers(lab))


def test_modules_of_the_project_folder_are_not_learned(lab: Lab) -> None:
    (lab.folder / "neighbor.py").write_text("import os; PID = os.getpid()\n")
    script = _script(lab, "import os, neighbor; print(neighbor.PID == os.getpid())")
    jobs = [_run(lab, "--warm", "--", sys.executable, script, str(n)) for n in range(2)]
    assert [_lines(lab, job) for job in jobs] == [["True"], ["True"]]


def test_changed_source_file_of_an_imported_module_means_a_fresh_server(
    lab: Lab, modules: Path
) -> None:
    script = _script(lab, "import heavy, os; print(heavy.VALUE, heavy.PID == os.getpid())")
    first = _run(lab, "--warm=heavy", "--", sys.executable, script)
    (modules / "heavy.py").write_text("import os\nVALUE = 'changed'\nPID = os.getpid()\n")
    second = _run(lab, "--warm=heavy", "--", sys.executable, script)
    assert _lines(lab, first) == ["44999850000 False"]
    assert _lines(lab, second) == ["changed False"]
    assert notes(lab, second) == []
    assert len(servers(lab)) == 1


def test_changed_variable_means_another_server(lab: Lab, modules: Path) -> None:
    (modules / "heavy.py").write_text("import os\nTHREADS = os.environ.get('OMP_NUM_THREADS')\n")
    script = _script(lab, "import heavy; print(heavy.THREADS)")
    for threads in ("2", "3"):
        job = _run(lab, "--warm=heavy", "-E", f"OMP_NUM_THREADS={threads}", "--", sys.executable,
                   script)  # fmt: skip
        assert _lines(lab, job) == [threads]
        assert notes(lab, job) == []


def test_no_gpu_is_visible_during_imports(lab: Lab, modules: Path) -> None:
    text = "import os\nGPUS = os.environ.get('CUDA_VISIBLE_DEVICES')\n"
    (modules / "heavy.py").write_text(text)
    script = _script(lab, "import heavy, os; print([heavy.GPUS, os.environ['STOKER_GPUS']])")
    job = _run(lab, "--gpu-ids", "1", "--warm=heavy", "--", sys.executable, script)
    assert _lines(lab, job) == ["['', '1']"]


def test_random_numbers_differ_between_jobs_of_one_server(lab: Lab) -> None:
    script = _script(lab, "import random, numpy; print(random.random(), numpy.random.rand())")
    line = f"{sys.executable} {script} #stoker --warm=random,numpy.random\n"
    jobs = list(map(int, lab.ok("submit", "-q", "--file", "-", input=line * 4).split()))
    lab.wait(*jobs)
    numbers = [number for job in jobs for number in lab.log(job).split()]
    assert len(numbers) == len(set(numbers)) == 8
    assert len(servers(lab)) == 1


def test_reported_modules_are_not_written_into_a_reused_descriptor(lab: Lab) -> None:
    text = "import os; os.closerange(3, 1000); f = open('reused', 'wb'); os.dup2(f.fileno(), 200)"
    script = _script(lab, text)
    assert lab.job(_run(lab, "--warm", "--", sys.executable, script))["state"] == "done"
    assert (lab.folder / "reused").read_bytes() == b""


# -- cold starts with a note ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo hello", "its command starts `echo`, not a Python interpreter"),
        ("python3 -c 'print(1)' | cat", "its command needs a shell"),
        ("A=1 python3 -c 'print(1)'", "its command starts `A=1`, not a Python interpreter"),
        ("python3 -V", "`python3 -V` cannot be forked"),
        ("python3 - ", "`python3 -` is not a script, a module or code"),
        ("python3", "`python3` without a program cannot be forked"),
    ],
)
def test_other_commands_start_cold_with_a_note(lab: Lab, command: str, why: str) -> None:
    job = _run(lab, "--warm", command)
    assert lab.job(job)["state"] == "done"
    assert notes(lab, job) == [why]
    assert f"cold_start {why}" in lab.ok("show", str(job))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import threading, time\n"
         "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
         "importing `heavy` started a thread"),
        ("import subprocess; subprocess.Popen(['sleep', '600'])",
         "importing its modules started a process"),
        ("import random; random.seed(1)", "importing `heavy` seeded or used `random`"),
        ("import numpy; numpy.random.seed(1)", "importing `heavy` seeded or used `numpy.random`"),
        ("raise ImportError('it is broken')", "cannot import `heavy`: it is broken"),
        ("import os; os._exit(3)", "the fork server exited during its imports"),
        ("import os; os.kill(os.getpid(), 9)", "the fork server exited during its imports"),
    ],
)  # fmt: skip
def test_modules_that_forbid_a_fork_mean_a_cold_start_with_a_note(
    lab: Lab, modules: Path, source: str, why: str
) -> None:
    (modules / "heavy.py").write_text(source)
    script = _script(lab, "print('ran')")
    for _ in range(2):
        job = _run(lab, "--warm=heavy", "--", sys.executable, script)
        assert _lines(lab, job) == ["ran"]
        assert notes(lab, job) == [why]
    assert servers(lab) == []


def test_initialized_cuda_means_a_cold_start_with_a_note(lab: Lab, modules: Path) -> None:
    torch = modules / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("from . import cuda\n")
    (torch / "cuda.py").write_text("def is_initialized(): return True\n")
    job = _run(lab, "--warm=torch", "--", sys.executable, "-c", "print('ran')")
    assert (lab.log(job), notes(lab, job)) == ("ran\n", ["importing its modules initialized CUDA"])


def test_counted_gpus_mean_a_cold_start_with_a_note(lab: Lab, modules: Path) -> None:
    torch = modules / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("from . import cuda\n")
    (torch / "cuda.py").write_text(
        "import os\nPID = os.getpid()\ndef _is_in_bad_fork(): return os.getpid() != PID\n"
    )
    job = _run(lab, "--warm=torch", "--", sys.executable, "-c", "print('ran')")
    assert lab.log(job) == "ran\n"
    assert notes(lab, job) == [
        "importing its modules counted the GPUs, after which a fork cannot use CUDA"
    ]


def test_open_device_files_forbid_a_fork(tmp_path: Path) -> None:
    from stoker.features.warm.fork_server import why_device_open

    device = tmp_path / "nvidia0"
    with device.open("w"):
        assert why_device_open((str(tmp_path),)) == (
            f"importing its modules opened the GPU ({device})"
        )
    assert why_device_open((str(tmp_path),)) is None


_DESTRUCTOR = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((destructor)) static void end(void) {
    close(open("destroyed", O_CREAT | O_WRONLY, 0600));
}
"""


@pytest.mark.parametrize(
    ("name", "is_destroyed"),
    [
        ("libown.so", True),
        ("site-packages/h5py/libhdf5.so", True),
        ("site-packages/torch/lib/libcudart.so", False),
        ("site-packages/numpy.libs/libopenblas.so", False),
    ],
)
def test_destructors_of_libraries_run_unless_they_are_known_to_do_nothing(
    lab: Lab, modules: Path, name: str, is_destroyed: bool
) -> None:
    source = lab.folder / "library.c"
    source.write_text(_DESTRUCTOR)
    (lab.folder / name).parent.mkdir(parents=True, exist_ok=True)
    compile_c(source, lab.folder / name, "-shared", "-fPIC")
    code = f"import ctypes; ctypes.CDLL('./{name}'); print('loaded')"
    job = lab.submit("--warm=heavy", "--", sys.executable, "-c", code)
    assert lab.wait(job) == 0
    assert _lines(lab, job) == ["loaded"] and not notes(lab, job)
    assert (lab.folder / "destroyed").exists() == is_destroyed


def test_learned_module_that_starts_a_thread_is_left_out(lab: Lab) -> None:
    site = lab.folder / "site-packages"
    site.mkdir()
    (site / "noisy.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    (site / "calm.py").write_text("import os; PID = os.getpid()\n")
    lab.env["PYTHONPATH"] = str(site)
    script = _script(lab, "import noisy, calm, os; print(calm.PID == os.getpid())")
    jobs = [_run(lab, "--warm", "--", sys.executable, script, str(n)) for n in range(2)]
    assert [lab.log(job) for job in jobs] == ["True\n", "False\n"]
    assert [notes(lab, job) for job in jobs] == [[], []]


# -- supervision ---------------------------------------------------------------------------------

_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))
print('up', flush=True)
while True: time.sleep(0.05)
"""


def test_cancelled_warm_job_gets_sigterm_then_sigkill(lab: Lab, modules: Path) -> None:
    script = _script(lab, _STUBBORN)
    job = lab.submit("--warm=heavy", "--grace", "0.3", "--", sys.executable, script)
    wait_until(lambda: "up" in lab.log(job))
    lab.ok("cancel", str(job))
    lab.wait(job)
    assert _lines(lab, job) == ["up", "asked"]
    assert (lab.state(job), lab.job(job)["signal"]) == ("cancelled", signal.SIGKILL)
    assert not lab.processes()


def test_time_limit_and_its_warning_hold_for_a_warm_job(lab: Lab, modules: Path) -> None:
    text = "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('warned', flush=1))"
    script = _script(lab, f"{text}\nwhile True: time.sleep(0.05)")
    job = _run(lab, "--warm=heavy", "-t", "2s", "--signal", "USR1@1", "--", sys.executable, script)
    assert _lines(lab, job) == ["warned"]
    assert lab.job(job)["cause"] == "time_limit"


def test_processes_that_a_warm_job_leaves_are_killed_or_kept(lab: Lab, modules: Path) -> None:
    text = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
    script = _script(lab, text)
    killed = _run(lab, "--warm=heavy", "--", sys.executable, script)
    assert read_process(int(_lines(lab, killed)[0])) is None
    kept = _run(lab, "--warm=heavy", "--keep-children", "--", sys.executable, script)
    pid = int(_lines(lab, kept)[0])
    assert read_process(pid) is not None
    os.kill(pid, signal.SIGKILL)


def test_job_that_waits_for_imports_can_be_cancelled(lab: Lab, modules: Path) -> None:
    (modules / "heavy.py").write_text("open('importing', 'w').close()\nwhile True: pass\n")
    job = lab.submit("--warm=heavy", "--", sys.executable, "-c", "print('ran')")
    wait_until((lab.folder / "importing").exists)
    assert lab.state(job) == "starting"
    lab.ok("cancel", str(job))
    lab.wait(job)
    assert (lab.state(job), lab.log(job)) == ("cancelled", "")


def test_output_to_chosen_files_and_a_new_folder_works(lab: Lab, modules: Path) -> None:
    script = _script(lab, "import sys; print('out'); print('err', file=sys.stderr)")
    _run(lab, "--warm=heavy", "-o", "logs/%j.out", "-e", "logs/%j.err", "--", sys.executable,
         script)  # fmt: skip
    assert (lab.folder / "logs" / "1.out").read_text() == "heavy was imported\nout\n"
    assert (lab.folder / "logs" / "1.err").read_text() == "err\n"


def test_cpu_time_of_a_warm_job_does_not_include_the_imports(lab: Lab, modules: Path) -> None:
    (modules / "heavy.py").write_text("import time\nwhile time.process_time() < 1.5: pass\n")
    job = _run(lab, "--warm=heavy", "--", sys.executable, "-c", "print('ran')")
    assert lab.job(job)["user_seconds"] < 1.0


def test_missing_folder_is_reported_as_for_a_cold_start(lab: Lab, modules: Path) -> None:
    gone = lab.folder / "gone"
    gone.mkdir()
    job = lab.submit("--hold", "--warm=heavy", "-C", str(gone), "--", sys.executable, "-c", "pass")
    gone.rmdir()
    lab.ok("release", str(job))
    lab.wait(job)
    assert lab.job(job)["cause"] == "start_failed"
    assert "cannot enter the folder" in lab.ok("show", str(job))


# -- servers -------------------------------------------------------------------------------------


def test_daemon_stop_ends_idle_servers_also_while_a_job_runs(lab: Lab, modules: Path) -> None:
    _run(lab, "--warm=heavy", "--", sys.executable, "-c", "pass")
    job = lab.submit("--warm=heavy", "--", sys.executable, _script(lab, _STUBBORN))
    wait_until(lambda: "up" in lab.log(job))
    pids = servers(lab)
    assert pids
    lab.ok("daemon", "stop")
    wait_until(lambda: all(_has_ended(pid) for pid in pids))
    lab.ok("daemon", "start")
    assert lab.state(job) == "running"
    lab.ok("cancel", "--grace", "0", str(job))
    lab.wait(job)


def _has_ended(pid: int) -> bool:
    process = read_process(pid)
    return process is None or process.state == "Z"


def test_servers_die_with_a_killed_runner(lab: Lab, modules: Path) -> None:
    _run(lab, "--warm=heavy", "--", sys.executable, "-c", "pass")
    pids = servers(lab)
    lab.kill_runner()
    wait_until(lambda: pids and all(_has_ended(pid) for pid in pids))


def test_at_most_four_servers_are_kept(lab: Lab, modules: Path) -> None:
    for number in range(6):
        _run(lab, "--warm=heavy", "-E", f"NUMBER={number}", "--", sys.executable, "-c", "pass")
    assert len(servers(lab)) == 4


def test_foreground_run_starts_jobs_warm_and_leaves_no_server(lab: Lab, modules: Path) -> None:
    script = _script(lab, f"{_WHERE}\nprint(heavy.PID)")
    line = f"{sys.executable} {script}\n"
    lab.ok("run", "--warm=heavy", "--file", "-", input=line * 6)
    logs = _run_logs(lab)
    assert [log.count("False 44999850000") for log in logs] == [1] * 6
    pids = {int(log.split()[-1]) for log in logs}
    assert len(pids) == 1
    wait_until(lambda: all(_has_ended(pid) for pid in pids))


def test_foreground_run_learns_the_modules_of_its_first_jobs(lab: Lab) -> None:
    site = lab.folder / "site-packages"
    site.mkdir()
    (site / "calm.py").write_text("import os; PID = os.getpid()\n")
    lab.env |= {"PYTHONPATH": str(site), "STOKER_DEVICES": "1"}
    script = _script(lab, "import calm, os; print(calm.PID == os.getpid())")
    lab.ok("run", "--warm", "--file", "-", input=f"{sys.executable} {script}\n" * 3)
    assert _run_logs(lab) == ["True\n", "False\n", "False\n"]


def _run_logs(lab: Lab) -> list[str]:
    """The logs of the jobs of the only `stoker run`, in their order."""
    return [path.read_text() for path in sorted((lab.state_dir / "runs").rglob("*.log"))]


# -- interfaces ----------------------------------------------------------------------------------


def test_option_is_shown_by_every_view(lab: Lab) -> None:
    lab.ok("daemon", "start")
    learned = lab.submit("--hold", "--warm", "--", "python", "x.py")
    named = lab.submit("--hold", "--warm=torch,numpy", "--", "python", "x.py")
    assert [lab.job(job)["warm"] for job in (learned, named)] == ["auto", "torch,numpy"]
    assert "torch,numpy" in lab.ok("show", str(named))
    assert "learned modules" in lab.ok("show", str(learned))
    dry = json.loads(lab.ok("submit", "--dry-run", "--json", "--warm=a.b", "x"))["dry_run"][0]
    assert dry["warm"] == "a.b"
    assert "warm start: a.b" in lab.ok("submit", "--dry-run", "--warm=a.b", "x")
    lab.ok("cancel", str(named))
    lab.ok("rerun", "--hold", str(named))
    assert lab.job(named + 1)["warm"] == "torch,numpy"


@pytest.mark.parametrize("value", ["a b", "1x", "a..b", "torch,,numpy"])
def test_invalid_module_is_an_error(lab: Lab, value: str) -> None:
    done = lab.run("submit", f"--warm={value}", "x")
    assert done.returncode == 2
    assert "is not the name of a module" in done.stderr and "hint: " in done.stderr


def test_python_api_submits_warm_functions(lab: Lab, modules: Path) -> None:
    program = """
import heavy, os, stoker
@stoker.job(warm=["heavy"], gpus=0)
def where():
    import heavy
    return heavy.PID == os.getpid()
print(where.submit().result())
"""
    done = _python(lab, program)
    assert done.splitlines()[-1] == "False"
    assert notes(lab, 1) == []


def _python(lab: Lab, program: str) -> str:
    import subprocess

    (lab.folder / "api.py").write_text(program)
    done = subprocess.run([sys.executable, "api.py"], cwd=lab.folder, env=lab.env, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sweep_file_has_the_option(lab: Lab, modules: Path) -> None:
    script = _script(lab, "import heavy; print(heavy.PID)")
    sweep: dict[str, Any] = {
        "command": f"{sys.executable} {script} --x {{x}}",
        "params": {"x": [1, 2, 3]},
        "resources": {"warm": ["heavy"]},
    }
    (lab.folder / "sweep.json").write_text(json.dumps(sweep))
    lab.ok("sweep", "sweep.json")
    lab.wait()
    assert len({tuple(_lines(lab, job)) for job in (1, 2, 3)}) == 1
