"""simple_gpu_scheduler: the contract of the original, and its defects fixed."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import refused
from tests.compat.conftest import CompatLab
from tests.compat.test_foreground import other_locale
from tests.engine.gpus.host import USER, GpuHost
from tests.fake_nvml import GIB
from tests.helpers import Gate, is_alive
from tests.lab import wait_until

__all__ = ["other_locale"]  # a fixture


@pytest.fixture
def lab(new_compat_lab: Callable[..., CompatLab]) -> CompatLab:
    return new_compat_lab("simple_gpu_scheduler")


class Run:
    """A running simple_gpu_scheduler: commands go to its stdin, announcements come out."""

    def __init__(self, lab: CompatLab, *words: str, **env: str) -> None:
        pipe = subprocess.PIPE
        self.process = lab.popen(*words, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        self._running = 0

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().removesuffix("\n")

    def place(self) -> str:
        """The device of the next announcement."""
        self._running += 1
        line = self.line()
        assert line.startswith("Processing command `"), line
        return line.rpartition("` on gpu ")[2]

    def notice(self) -> str:
        """The next line on stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().removesuffix("\n")

    def running(self) -> int:
        """The number of commands that were not reaped yet; one child is the cleanup process."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return len(children.read_text().split()) - 1

    def wait_for_end(self) -> None:
        """Wait until one more command has ended."""
        self._running -= 1
        wait_until(lambda: self.running() == self._running)

    def end(self) -> tuple[int, str, str]:
        """Close its stdin and wait: the exit code and the rest of stdout and stderr."""
        process = self.process
        assert process.stdin and process.stdout and process.stderr
        process.stdin.close()
        # communicate() would lose what `readline` has already buffered.
        out, err = process.stdout.read(), process.stderr.read()
        process.stdout.close()
        process.stderr.close()
        return process.wait(), out, err


def announced(command: str, device: str) -> str:
    return f"Processing command `{command}` on gpu {device}\n"


def shell(lab: CompatLab, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command line."""
    return subprocess.run(
        ["sh", "-c", line],
        env={**lab.env, **env},
        cwd=lab.folder,
        capture_output=True,
        text=True,
    )


# -- the README ------------------------------------------------------------------------------------


def install_program(lab: CompatLab, name: str, text: str) -> None:
    """Put a program of this name on the PATH of the jobs."""
    (lab.bin / name).write_text(f"#!/bin/sh\n{text}\n")
    (lab.bin / name).chmod(0o755)


def test_first_readme_example_prints_the_documented_output(lab: CompatLab) -> None:
    gate = lab.gate()
    install_program(lab, "python", gate.wait)
    (lab.folder / "gpu_commands.txt").write_text(
        "python train_model.py --lr 0.001 --output run_1\n"
        "python train_model.py --lr 0.0005 --output run_2\n"
        "python train_model.py --lr 0.0001 --output run_3\n"
    )
    run = subprocess.Popen(
        ["sh", "-c", "simple_gpu_scheduler --gpus 0 1 2 < gpu_commands.txt"],
        env=lab.env,
        cwd=lab.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    gate.wait_for(3)
    gate.open()
    assert run.communicate()[0] == (
        "Processing command `python train_model.py --lr 0.001 --output run_1` on gpu 2\n"
        "Processing command `python train_model.py --lr 0.0005 --output run_2` on gpu 1\n"
        "Processing command `python train_model.py --lr 0.0001 --output run_3` on gpu 0\n"
    )
    assert run.returncode == 0


@pytest.mark.parametrize(("samples", "count"), [("", 9), ("--n-samples 5 ", 5)])
def test_readme_hyperparameter_searches_run_every_combination(
    lab: CompatLab, samples: str, count: int
) -> None:
    install_program(lab, "python3", 'echo "$*" >> "$CUDA_VISIBLE_DEVICES.ran"')
    done = shell(
        lab,
        'simple_hypersearch "python3 train_dnn.py --lr {lr} --batch_size {bs}" '
        f"{samples}-p lr 0.001 0.0005 0.0001 -p bs 32 64 128 | simple_gpu_scheduler --gpus 0,1,2",
    )
    assert (done.returncode, done.stderr) == (0, "")
    ran = [line for file in lab.folder.glob("[012].ran") for line in file.read_text().splitlines()]
    commands = {line.split("`")[1].removeprefix("python3 ") for line in done.stdout.splitlines()}
    assert len(commands) == len(ran) == count
    assert set(ran) == commands
    assert "train_dnn.py --lr 0.001 --batch_size 32" in ran or count == 5


def test_readme_queue_file_is_followed_with_tail(lab: CompatLab) -> None:
    queue = lab.folder / "gpu.queue"
    queue.write_text("echo old >> old\n")
    run = subprocess.Popen(
        ["sh", "-c", "touch gpu.queue\ntail -f -n 0 gpu.queue | simple_gpu_scheduler --gpus 0,1,2"],
        env=lab.env,
        cwd=lab.folder,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )

    def submit_until_read() -> bool:  # lines written before tail started are skipped
        shell(lab, 'echo "echo up > up" >> gpu.queue')
        return (lab.folder / "up").exists()

    try:
        wait_until(submit_until_read)
        shell(lab, """echo 'echo "a b" | tr b c > "logfile $CUDA_VISIBLE_DEVICES"' >> gpu.queue""")
        wait_until(lambda: list(lab.folder.glob("logfile [012]")))
        (log,) = lab.folder.glob("logfile *")
        wait_until(lambda: log.read_text() == "a c\n")
        assert not (lab.folder / "old").exists()
    finally:
        os.killpg(run.pid, signal.SIGTERM)
        run.wait()


# -- slots -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (("--gpus", "0", "1", "2"), ["2", "1", "0"]),
        (("--gpus", "0,1,2"), ["2", "1", "0"]),
        (("--gpus=7",), ["7"]),
        (("--g", "4", "5"), ["5", "4"]),
        (("--gpus", "0,1", "2,3"), ["2,3", "0,1"]),
        (("--gpus", "0 1 2"), ["0 1 2"]),
        (("--gpus", "0", "0", "1"), ["1", "0", "0"]),
        (("--gpus", "GPU-8f1a-2", "MIG-1-2"), ["MIG-1-2", "GPU-8f1a-2"]),
        (("--gpus", "0", ""), ["", "0"]),
        (("--gpus", "0,"), ["0"]),  # was a slot without a GPU
        (("--gpus", "0-2"), ["2", "1", "0"]),
        (("--gpus", "0-1,5"), ["5", "1", "0"]),
        (("--gpus", "0,1", "--jobs-per-gpu", "2"), ["1", "0", "1", "0"]),
        (("--gpus", "0,1", "2,3", "--jobs_per_gpu=2"), ["2,3", "0,1", "2,3", "0,1"]),
        (("--gpus", "3", "--max_process_per_gpu", "2"), ["3", "3"]),
    ],
)
def test_slots_are_used_from_the_last_id_to_the_first(
    lab: CompatLab, words: tuple[str, ...], places: list[str]
) -> None:
    gate = lab.gate()
    run = Run(lab, *words)
    run.write(f'{gate.wait}; echo "<$CUDA_VISIBLE_DEVICES>"\n' * len(places) + "exit 9\n")
    assert [run.place() for _ in places] == places
    gate.wait_for(len(places))
    gate.open()
    code, out, _ = run.end()
    lines = out.splitlines()
    assert Counter(f"<{place}>" for place in places) == Counter(
        line for line in lines if line.startswith("<")
    )
    assert sum(line.startswith("Processing command `exit 9` on gpu ") for line in lines) == 1
    assert code == 1


def test_last_freed_slot_is_used_first(lab: CompatLab) -> None:
    gates = [lab.gate(name) for name in "abc"]
    last = lab.gate("last")
    run = Run(lab, "--gpus", "0,1,2")
    run.write("".join(f"{gate.wait}\n" for gate in gates))
    assert [run.place() for _ in gates] == ["2", "1", "0"]
    for number in (0, 2, 1):  # on 2, on 0, on 1
        gates[number].wait_for()
        gates[number].open()
        run.wait_for_end()
    run.write(f"{last.wait}\n" * 3)
    assert [run.place() for _ in gates] == ["1", "0", "2"]
    last.open()
    assert run.end()[0] == 0


def test_freed_slot_is_used_before_an_unused_one(lab: CompatLab) -> None:
    run = Run(lab, "--gpus", "0,1,2")
    for number in range(3):
        run.write(f"echo > done{number}\n")
        assert run.place() == "2"
        wait_until((lab.folder / f"done{number}").exists)
        run.wait_for_end()
    assert run.end()[0] == 0


def test_empty_gpus_option_means_all_gpus_if_cuda_visible_devices_is_unset(lab: CompatLab) -> None:
    """Many scripts use --gpus "$CUDA_VISIBLE_DEVICES"."""
    line = 'echo true | simple_gpu_scheduler --gpus "$CUDA_VISIBLE_DEVICES"'
    assert shell(lab, line, STOKER_DEVICES="2").stdout == announced("true", "1")
    none = {"STOKER_DEVICES": "2", "CUDA_VISIBLE_DEVICES": ""}
    assert shell(lab, line, **none).stdout == announced("true", "")
    assert shell(lab, line).stdout == announced("true", "")  # the host has no GPU


# -- input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "commands"),
    [
        (b"echo a\necho b\n", [b"echo a", b"echo b"]),
        (b"echo a\necho b", [b"echo a", b"echo b"]),
        (b"echo a\r\necho b\r\n", [b"echo a", b"echo b"]),
        (b"echo a \t \n  echo b\n", [b"echo a", b"  echo b"]),
        (b"\n  \n# nothing\n", [b"", b"", b"# nothing"]),
        (b"echo \xff\n", [b"echo \xff"]),
        (b"echo \xc3\xa9\n", [b"echo \xc3\xa9"]),
        (b"", []),
        # A trailing backslash joins lines.
        (b"echo a \\\n  b\necho c\n", [b"echo a   b", b"echo c"]),
        (b"echo a \\\r\nb\r\n", [b"echo a b"]),
        (b"echo a\\\\\necho b\n", [b"echo a\\\\", b"echo b"]),
        (b"echo a \\\nb \\", [b"echo a b"]),
        (b"# a comment \\\necho b\n", [b"# a comment \\", b"echo b"]),
    ],
)
def test_every_input_line_is_announced_and_run(
    lab: CompatLab, data: bytes, commands: list[bytes]
) -> None:
    done = lab.run("--gpus", "0", input=data)
    out = done.stdout.encode("utf-8", "surrogateescape")
    lines = [line for line in out.split(b"\n") if line.startswith(b"Processing")]
    assert lines == [b"Processing command `%b` on gpu 0" % command for command in commands]
    assert (done.returncode, done.stderr) == (0, "")


def test_command_starts_as_soon_as_its_line_arrives(lab: CompatLab) -> None:
    run = Run(lab, "--gpus", "0")
    for word in ("one", "two"):
        run.write(f"echo {word}\n")
        assert run.line() == f"Processing command `echo {word}` on gpu 0"
        assert run.line() == word
    assert run.end() == (0, "", "")


def test_incomplete_line_waits_for_its_end(lab: CompatLab) -> None:
    run = Run(lab, "--gpus", "0")
    run.write("echo first\nec")
    assert [run.line(), run.line()][1] == "first"
    run.write("ho second \\\n")
    run.write("of two\n")
    assert run.line() == "Processing command `echo second of two` on gpu 0"
    assert run.end() == (0, "second of two\n", "")


def test_commands_can_come_from_a_file(lab: CompatLab) -> None:
    (lab.folder / "commands").write_text("echo a\n")
    assert lab.ok("--gpus", "0", "--commands_file", "commands") == announced("echo a", "0") + "a\n"


def test_many_commands_run_in_order(lab: CompatLab) -> None:
    text = "".join(f"echo {number}\n" for number in range(700))
    done = lab.run("--gpus", "0", input=text)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Processing")]
    assert lines == [str(number) for number in range(700)]


def test_command_longer_than_the_argument_limit_runs(lab: CompatLab) -> None:
    done = lab.run("--gpus", "0", input=f"echo {'x' * 200_000} | wc -c\n")
    assert done.stdout.splitlines()[-1] == "200001"
    assert (done.returncode, lab.leftovers()) == (0, [])


def test_command_with_a_nul_byte_counts_as_failed(lab: CompatLab) -> None:
    done = lab.run("--gpus", "0", input=b"echo a\0b\necho c\n")
    assert (done.returncode, done.stdout) == (1, announced("echo c", "0") + "c\n")
    assert done.stderr == "a command contains a NUL byte; it is not run and counts as failed\n"


# -- execution -------------------------------------------------------------------------------------


def test_commands_run_with_sh_in_the_callers_folder_and_environment(lab: CompatLab) -> None:
    text = "readlink /proc/$$/exe > exe; pwd; echo $COLOUR $CUDA_VISIBLE_DEVICES; echo no >&2\n"
    done = lab.run("--gpus", "5", input=text, COLOUR="blue", CUDA_VISIBLE_DEVICES="9", SHELL="bash")
    assert done.stdout.splitlines()[1:] == [str(lab.folder), "blue 5"]
    assert done.stderr == "no\n"
    assert os.path.samefile((lab.folder / "exe").read_text().strip(), "/bin/sh")


def test_command_bytes_are_unchanged_in_every_locale(
    lab: CompatLab, other_locale: dict[str, str]
) -> None:
    word = "\u00e9".encode()
    text = b"printf %%s %b >> said\nprintf '\xff%%s' %b >> %b\n" % (word, word, word)
    lab.env.update(other_locale)
    done = lab.run("--gpus", "0", input=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.encode("utf-8", "surrogateescape") == b"".join(
        b"Processing command `%b` on gpu 0\n" % line for line in text.splitlines()
    )
    assert (lab.folder / "said").read_bytes() == word
    assert Path(os.fsdecode(os.fsencode(lab.folder) + b"/" + word)).read_bytes() == b"\xff" + word


def test_commands_run_in_a_removed_working_folder(lab: CompatLab) -> None:
    done = shell(
        lab, "mkdir gone; cd gone; rmdir ../gone; echo 'echo a' | simple_gpu_scheduler --gpus 0"
    )
    assert (done.returncode, done.stdout) == (0, announced("echo a", "0") + "a\n")
    assert "Traceback" not in done.stderr  # some shells print a warning of their own


def test_plain_command_line_imports_few_modules(lab: CompatLab) -> None:
    """Each of these imports takes some milliseconds; a short run takes about thirty."""
    for name in ("argparse", "socket", "shutil", "json", "tempfile", "logging", "subprocess"):
        (lab.folder / f"{name}.py").write_text("raise SystemExit(77)\n")
    done = lab.run("--gpus", "0", "1", input="true\n", PYTHONPATH=str(lab.folder))
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_may_use_shell_syntax(lab: CompatLab) -> None:
    done = lab.run("--gpus", "0", input="echo a b | tr ' ' '\\n' > out && ! false && cat < out\n")
    assert done.stdout.splitlines()[1:] == ["a", "b"]


def test_announcement_precedes_the_output_of_its_command(lab: CompatLab) -> None:
    """The original printed it last when stdout was a file."""
    done = lab.run("--gpus", "0,1,2,3", input="".join(f"echo x{n}\n" for n in range(100)))
    lines = done.stdout.splitlines()
    assert len(lines) == 200
    for number in range(100):
        announced_at = next(n for n, line in enumerate(lines) if f"`echo x{number}`" in line)
        assert announced_at < lines.index(f"x{number}")


@pytest.mark.parametrize("has_state_folder", [False, True])
def test_run_leaves_no_files_behind(lab: CompatLab, has_state_folder: bool) -> None:
    """A missing state folder is not created either."""
    temporary = lab.folder / "tmp"
    temporary.mkdir()
    if has_state_folder:
        (lab.state_dir / "runs").mkdir(0o700, parents=True)
        lab.state_dir.chmod(0o700)
    before = sorted(lab.folder.rglob("*"))
    text = "mkdir -p $STOKER_OUTPUT_DIR\necho $STOKER_OUTPUT_DIR\n"
    out = lab.ok("--gpus", "0", input=text, TMPDIR=str(temporary))
    assert sorted(lab.folder.rglob("*")) == before
    assert out.splitlines()[-1].startswith(str(lab.state_dir if has_state_folder else temporary))


def test_unusable_state_folder_does_not_stop_a_run(lab: CompatLab) -> None:
    lab.state_dir.mkdir()
    lab.state_dir.chmod(0o755)  # not private, so the queue refuses it
    assert lab.run("--gpus", "0", input="echo a\n").returncode == 0


def test_closed_output_pipe_does_not_stop_a_run(lab: CompatLab) -> None:
    done = shell(lab, "for i in 1 2 3; do echo 'echo >> ran'; done | simple_gpu_scheduler --gpus 0"
                 " | true; cat ran")  # fmt: skip
    assert (done.stdout, done.stderr) == ("\n\n\n", "")


# -- exit codes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [("true\n", 0), ("false\ntrue\nexit 7\nkill -9 $$\n", 3), ("exit 1\n" * 120, 101), ("", 0)],
)
def test_exit_code_is_the_number_of_failed_commands(lab: CompatLab, text: str, code: int) -> None:
    assert lab.run("--gpus", "0", "1", input=text).returncode == code


def test_exit_zero_restores_the_exit_code_of_the_original(lab: CompatLab) -> None:
    assert lab.run("--gpus", "0", "--exit-zero", input="false\n").returncode == 0
    assert lab.run("--gpus", "0", input="false\n", STOKER_COMPAT_EXIT_ZERO="1").returncode == 0
    assert lab.run("--gpus", "0", input="false\n", STOKER_COMPAT_EXIT_ZERO="0").returncode == 1


def test_missing_program_is_named_and_counts_as_failed(lab: CompatLab) -> None:
    done = lab.run("--gpus", "0", input="nosuchprogram --x\n")
    assert (done.returncode, done.stderr) == (1, "/bin/sh: nosuchprogram: command not found\n")


@pytest.mark.parametrize(
    "words", [(), ("--gpus",), ("--gpus", "0", "--what"), ("--gpus", "0", "--jobs-per-gpu", "0")]
)
def test_usage_error_exits_with_2(lab: CompatLab, words: tuple[str, ...]) -> None:
    done = lab.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: simple_gpu_scheduler")


def test_unreadable_input_is_named(lab: CompatLab) -> None:
    refused(
        lab.run("--gpus", "0", "--commands-file", "none"),
        2,
        "cannot read `none`: No such file or directory",
    )
    done = lab.run("--gpus", "0", "--commands-file", "/")
    refused(done, 2, "cannot read `/`: Is a directory")
    done = shell(lab, "simple_gpu_scheduler --gpus 0 <&-")
    refused(done, 2, "cannot read stdin: Bad file descriptor", "pipe commands into it")


# -- defects of the original -----------------------------------------------------------------------


def test_command_that_reads_stdin_does_not_consume_other_commands(lab: CompatLab) -> None:
    text = "cat; echo end\nhead -c 3\npython3 -c 'input()' 2>/dev/null\necho third\n"
    done = lab.run("--gpus", "0", input=text)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Processing")]
    assert lines == ["end", "third"]
    assert done.returncode == 1


def test_multi_line_pattern_is_one_job_per_combination(lab: CompatLab) -> None:
    pattern = "mkdir {a}\ncd {a}\necho $CUDA_VISIBLE_DEVICES > gpu\ncd ..\nmv {a}/gpu {a}.gpu"
    done = shell(
        lab,
        f"simple_hypersearch '{pattern}' -p a x y z | simple_gpu_scheduler --gpus 0,1",
    )
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 3)
    for name in "xyz":
        assert (lab.folder / f"{name}.gpu").read_text().strip() in ("0", "1")


class BusyRun:
    """A run whose two slots are busy, with two more commands that wait."""

    def __init__(self, lab: CompatLab, trap: str = "") -> None:
        self.lab = lab
        self.gate: Gate = lab.gate()
        self.run = Run(lab, "--gpus", "0,1")
        self.commands = [f"{trap}{self.gate.wait}; echo {name} >> ended" for name in "abcd"]
        self.run.write("".join(f"{command}\n" for command in self.commands))
        self.places = [self.run.place(), self.run.place()]
        self.pids = self.gate.wait_for(2)

    def wait_until_commands_ended(self) -> None:
        wait_until(lambda: not any(map(is_alive, self.pids)), what=f"the end of {self.pids}")
        assert len(self.gate.arrived()) == 2

    def saved(self) -> list[str]:
        """The commands in the saved file."""
        (path,) = (self.lab.state_dir / "not-run").iterdir()
        return path.read_text().splitlines()


@pytest.fixture
def busy(lab: CompatLab) -> Iterator[BusyRun]:
    busy = BusyRun(lab)
    yield busy
    busy.run.process.kill()
    busy.run.process.wait()
    for pipe in (busy.run.process.stdin, busy.run.process.stdout, busy.run.process.stderr):
        if pipe is not None:
            pipe.close()


def test_sigusr1_lets_running_commands_finish_and_starts_no_others(busy: BusyRun) -> None:
    busy.run.process.send_signal(signal.SIGUSR1)
    assert busy.run.notice() == "draining: running jobs finish, no more are started"
    busy.gate.open()
    code, out, err = busy.run.end()
    assert (code, out) == (0, "")
    assert sorted((busy.lab.folder / "ended").read_text().split()) == ["a", "b"]
    assert err.startswith("2 not started; commands saved to ")
    assert busy.saved() == busy.commands[2:]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_running_commands_and_saves_all_unfinished_ones(
    busy: BusyRun, number: signal.Signals
) -> None:
    busy.run.process.send_signal(number)
    code, out, err = busy.run.end()
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    notices = err.splitlines()
    if number == signal.SIGINT:
        assert notices.pop(0) == "finishing 2 running; Ctrl-C again cancels them"
    assert len(notices) == 1
    assert notices[0].startswith("2 interrupted and 2 not started; commands saved to ")
    busy.wait_until_commands_ended()
    assert sorted(busy.saved()) == sorted(busy.commands)
    assert not (busy.lab.folder / "ended").exists()


def test_ctrl_c_is_sent_to_the_commands_as_from_a_terminal(lab: CompatLab) -> None:
    """Training scripts save their state on SIGINT."""
    busy = BusyRun(lab, trap="trap 'echo >> saved; exit 0' INT; ")
    busy.run.process.send_signal(signal.SIGINT)
    assert busy.run.end()[0] == 130
    assert (lab.folder / "saved").read_text() == "\n\n"
    assert busy.saved() == busy.commands[2:]


def test_ctrl_c_during_imports_prints_nothing(lab: CompatLab) -> None:
    text = "import os\nos.kill(os.getpid(), 2)\nfor n in (): pass\n"
    (lab.folder / "sqlite3.py").write_text(text)
    done = lab.run("--gpus", "0", input="echo a\n", PYTHONPATH=str(lab.folder))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def state_of(pid: int) -> str:
    """The state of a process; T means stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# Like a shell: SIGTSTP is ignored by an orphaned process group, so the parent stays in the session.
_SHELL = """
import subprocess, sys
run = subprocess.Popen(sys.argv[1:], process_group=0)
print(run.pid, flush=True)
sys.exit(run.wait())
"""


class FromShell:
    """A run in its own process group, as a shell starts it in a terminal."""

    def __init__(self, lab: CompatLab, *words: str) -> None:
        fifo = lab.folder / "fifo"
        os.mkfifo(fifo)
        self._fifo = os.open(fifo, os.O_RDWR)
        gate = lab.gate()
        # Not a gate: a shell that is between fork and exec of a child cannot be stopped.
        wait = f"echo $$ >> '{gate.arrivals}'; read x < fifo"
        (lab.folder / "commands").write_text(f"{wait}\nsh wait\n")
        (lab.folder / "wait").write_text(f"{wait}\n")
        words = (*words, "--gpus", "0", "1", "--commands-file", "commands")
        lab.command = [sys.executable, "-c", _SHELL, *words]
        self._shell = lab.popen(start_new_session=True)
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())
        self.pids = [*gate.wait_for(2), self.pid]

    def are_stopped(self) -> list[bool]:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in self.pids]
        return [stat.rpartition(")")[2].split()[0] == "T" for stat in stats]

    def end(self) -> int:
        os.write(self._fifo, b"a\nb\n")
        self._shell.communicate()
        os.close(self._fifo)
        return self._shell.returncode


def test_ctrl_z_stops_the_commands_too_and_fg_continues_them(lab: CompatLab) -> None:
    run = FromShell(lab, "simple_gpu_scheduler")
    for _ in range(2):
        os.kill(run.pid, signal.SIGTSTP)
        wait_until(lambda: all(run.are_stopped()))
        os.kill(run.pid, signal.SIGCONT)
        wait_until(lambda: not any(run.are_stopped()))
    assert run.end() == 0


def test_run_that_ignores_sigtstp_is_not_stopped(lab: CompatLab) -> None:
    run = FromShell(lab, "sh", "-c", 'trap "" TSTP; exec simple_gpu_scheduler "$@"', "sh")
    os.kill(run.pid, signal.SIGTSTP)
    assert run.end() == 0


def test_commands_continue_when_stderr_is_full(lab: CompatLab) -> None:
    gate = lab.gate()
    with open("/dev/full", "w") as full:
        run = lab.popen("--gpus", "0", stdin=subprocess.PIPE, stderr=full)
    assert run.stdin is not None and run.stdout is not None
    run.stdin.write(f"nosuchprogram\n{gate.wait}; echo ended\nsecond\n")
    run.stdin.flush()
    gate.wait_for()
    run.send_signal(signal.SIGUSR1)
    wait_until(lambda: not has_pending(run.pid, signal.SIGUSR1))
    gate.open()
    assert run.communicate()[0].splitlines()[-1] == "ended"
    assert run.returncode == 1


def has_pending(pid: int, number: int) -> bool:
    """Whether the signal is pending for the process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_closed_terminal_ends_the_commands_and_exits_with_130(lab: CompatLab) -> None:
    gate = lab.gate()
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [*lab.command, "--gpus", "0"], env=lab.env, cwd=lab.folder, stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, f"{gate.wait}\necho second\n".encode())
    pids = gate.wait_for()
    os.close(ours)
    assert run.wait() == 130
    wait_until(lambda: not any(map(is_alive, pids)))


class BackgroundCommand:
    """A command that leaves a background process, which waits at a gate and creates a file."""

    def __init__(self, lab: CompatLab) -> None:
        self.gate = lab.gate("left")
        self.late = lab.folder / "late"
        (lab.folder / "leave").write_text(f"{self.gate.wait}\ntouch '{self.late}'\n")
        # The process runs before the command ends, and has none of the scheduler's files open.
        arrived = f"[ -s '{self.gate.arrivals}' ]"
        self.command = f"sh leave >/dev/null 2>&1 & until {arrived}; do sleep 0.02; done"


def test_background_process_outlives_its_command(lab: CompatLab) -> None:
    background = BackgroundCommand(lab)
    lab.ok("--gpus", "0", input=f"{background.command}\ntrue\n")
    (pid,) = background.gate.arrived()
    lab.ok("--gpus", "0", input="true\n")  # another whole run, which does not end it
    assert is_alive(pid)
    background.gate.open()
    wait_until(background.late.exists)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_background_process_ends_with_an_interrupted_run(
    lab: CompatLab, number: signal.Signals
) -> None:
    background, gate = BackgroundCommand(lab), lab.gate()
    run = Run(lab, "--gpus", "0")
    run.write(f"{background.command}\n{gate.wait}\n")
    running, left = gate.wait_for(), background.gate.arrived()
    assert is_alive(left[0])
    run.process.send_signal(number)
    assert run.end()[0] == (-9 if number == signal.SIGKILL else 130)
    wait_until(lambda: not any(map(is_alive, (*running, *left))))
    assert not background.late.exists()


def test_program_has_time_to_save_its_work_after_sigterm(lab: CompatLab) -> None:
    """Also if the shell around it exits first."""
    gate = lab.gate()
    save = "until [ -e may_save ]; do sleep 0.02; done; touch saved; exit"
    (lab.folder / "train").write_text(f"trap '{save}' TERM\n{gate.wait}\n")
    run = Run(lab, "--gpus", "0")
    run.write("echo $$ > shell; sh train; true\n")
    gate.wait_for()
    run.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_alive(int((lab.folder / "shell").read_text())))
    (lab.folder / "may_save").touch()
    assert run.end()[0] == 130
    assert (lab.folder / "saved").exists()


def test_nohup_protects_a_run_from_sighup(lab: CompatLab) -> None:
    gate = lab.gate()
    line = f"echo '{gate.wait.replace(chr(39), '')}' | nohup simple_gpu_scheduler --gpus 0"
    run = subprocess.Popen(
        ["sh", "-c", line], env=lab.env, cwd=lab.folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    (pid,) = gate.wait_for()
    os.killpg(run.pid, signal.SIGHUP)
    other = Run(lab, "--gpus", "1")  # another whole run, so the signal was delivered
    assert other.end()[0] == 0
    assert is_alive(pid)
    gate.open()
    wait_until(lambda: not is_alive(pid))
    run.wait()


def test_run_succeeds_with_closed_stdout_and_stderr(lab: CompatLab) -> None:
    done = shell(lab, "echo 'echo a; echo ran > ran' | simple_gpu_scheduler --gpus 0 >&- 2>&-")
    assert (done.returncode, (lab.folder / "ran").read_text()) == (0, "ran\n")


def test_saved_commands_can_be_run_later(busy: BusyRun) -> None:
    busy.run.process.send_signal(signal.SIGTERM)
    path = busy.run.end()[2].split()[-1]
    busy.gate.open()
    assert shell(busy.lab, f"simple_gpu_scheduler --gpus 0,1 < '{path}'").returncode == 0
    assert sorted((busy.lab.folder / "ended").read_text().split()) == [*"abcd"]


def test_second_signal_kills_commands_that_ignore_the_first(lab: CompatLab) -> None:
    busy = BusyRun(lab, trap="trap '' TERM INT; ")
    while busy.run.process.poll() is None:
        busy.run.process.send_signal(signal.SIGINT)
        try:
            busy.run.process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            pass
    assert busy.run.end()[0] == 130
    busy.wait_until_commands_ended()


def test_no_command_outlives_a_killed_scheduler(busy: BusyRun) -> None:
    busy.run.process.kill()
    busy.run.end()
    busy.wait_until_commands_ended()
    assert busy.lab.leftovers() == []


# -- GPUs of this host -----------------------------------------------------------------------------


@pytest.fixture
def new_gpu_lab(host: GpuHost, new_compat_lab: Callable[..., CompatLab]) -> Callable[[], CompatLab]:
    """Creates labs on a host with two GPUs."""
    env = host.lab().env
    kept = {key: env[key] for key in env if key.startswith(("STOKER_", "FAKE_", "LD_"))}
    del kept["STOKER_STATE_DIR"], kept["STOKER_SETTINGS"]
    return lambda: new_compat_lab("simple_gpu_scheduler", **kept)


def test_two_schedulers_never_share_a_gpu_by_accident(
    host: GpuHost, new_gpu_lab: Callable[[], CompatLab]
) -> None:
    gate, other = host.gate(), host.gate("other")
    first, second = Run(new_gpu_lab(), "--gpus", "0"), Run(new_gpu_lab(), "--gpus", "0")
    first.write(f"{gate.wait}\n")
    gate.wait_for()
    second.write(f"{other.wait}\n")
    assert second.notice() == "waiting for a GPU: leased to another process"
    assert not other.arrived()
    gate.open()
    other.wait_for()
    other.open()
    assert second.place() == "0"
    assert (first.end()[0], second.end()[0]) == (0, 0)


def test_run_waits_for_a_gpu_that_a_queued_job_uses(
    host: GpuHost, new_gpu_lab: Callable[[], CompatLab]
) -> None:
    gate = host.gate()
    host.lab().start(gate, "--gpu-ids", "1")
    run = Run(new_gpu_lab(), "--gpus", host.uuids[1])
    run.write("echo at last\n")
    assert run.notice() == "waiting for a GPU: leased to another process"
    gate.open()
    assert run.line() == f"Processing command `echo at last` on gpu {host.uuids[1]}"
    assert run.end() == (0, "at last\n", "")


def test_slot_of_two_gpus_waits_for_both(
    host: GpuHost, new_gpu_lab: Callable[[], CompatLab]
) -> None:
    gate = host.gate()
    one, pair = Run(new_gpu_lab(), "--gpus", "0"), Run(new_gpu_lab(), "--gpus", "0,1", "0,1")
    one.write(f"{gate.wait}\n")
    gate.wait_for()
    pair.write("echo $CUDA_VISIBLE_DEVICES\n")
    assert pair.notice() == "waiting for a GPU: leased to another process"
    gate.open()
    assert pair.place() == "0,1"
    assert pair.end() == (0, "0,1\n", "")
    assert one.end()[0] == 0


def test_unknown_gpu_id_is_a_slot_without_a_lease(
    host: GpuHost, new_gpu_lab: Callable[[], CompatLab]
) -> None:
    gate = host.gate()
    one, two = Run(new_gpu_lab(), "--gpus", "0"), Run(new_gpu_lab(), "--gpus", "17", "0", "")
    one.write(f"{gate.wait}\n")
    gate.wait_for()
    two.write(f"{gate.wait}\n" * 3)
    assert [two.place(), two.place()] == ["", "17"]
    gate.wait_for(3)
    gate.open()
    assert (one.end()[0], two.end()[0]) == (0, 0)


def test_repeated_ids_share_a_gpu_with_each_other_only(
    host: GpuHost, new_gpu_lab: Callable[[], CompatLab]
) -> None:
    gate = host.gate()
    one, two = Run(new_gpu_lab(), "--gpus", "0", "0"), Run(new_gpu_lab(), "--gpus", "0")
    one.write(f"{gate.wait}\n" * 2)
    gate.wait_for(2)
    two.write("true\n")
    assert two.notice() == "waiting for a GPU: leased to another process"
    gate.open()
    assert (one.end()[0], two.end()[0]) == (0, 0)


def test_gpu_stays_leased_while_a_background_process_of_a_command_runs(
    host: GpuHost, new_gpu_lab: Callable[[], CompatLab]
) -> None:
    lab = new_gpu_lab()
    background = BackgroundCommand(lab)
    run = Run(lab, "--gpus", "0")
    run.write(f"{background.command}\necho next\n")
    assert run.place() == "0"
    assert run.notice() == "waiting for a GPU: leased to another process"
    background.gate.open()
    assert run.place() == "0"
    assert run.end() == (0, "next\n", "")


def test_run_waits_for_another_process_on_its_gpu_and_names_it(
    host: GpuHost, new_gpu_lab: Callable[[], CompatLab]
) -> None:
    pid = host.other_process(0, 5 * GIB)
    run = Run(new_gpu_lab(), "--gpus", "0")
    run.write("true\n")
    assert run.notice() == f"waiting for a GPU: {USER} (pid {pid}) has 5.0 GiB"
    host.end_other_process(pid)
    assert run.place() == "0"
    assert run.end()[0] == 0


def test_commands_run_with_a_warning_if_the_driver_does_not_answer(lab: CompatLab) -> None:
    missing = str(lab.folder)  # where no library is
    done = lab.run("--gpus", "0", input="true\n", STOKER_NVML="1", LD_LIBRARY_PATH=missing)
    assert (done.returncode, done.stdout) == (0, announced("true", "0"))
    assert done.stderr.startswith("cannot lease the GPUs, so other processes may use them too: ")
