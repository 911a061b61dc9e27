"""simple_gpu_scheduler: what its users know stays, what hurt them is gone."""

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

from tests.cli.helpers import Gate, is_alive, refused
from tests.compat.conftest import Door
from tests.compat.test_attached import other_locale
from tests.fake_nvml import GIB
from tests.gpus.host import USER, GpuHost
from tests.lab import wait_until

__all__ = ["other_locale"]  # a fixture


@pytest.fixture
def door(new_door: Callable[..., Door]) -> Door:
    return new_door("simple_gpu_scheduler")


class Run:
    """A door that is open: lines go in, announcements come out."""

    def __init__(self, door: Door, *words: str, **env: str) -> None:
        pipe = subprocess.PIPE
        self.process = door.popen(*words, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
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

    def said(self) -> str:
        """The next line that is not of a command."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().removesuffix("\n")

    def running(self) -> int:
        """How many commands it has whose end it has not seen; one more child is its keeper."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return len(children.read_text().split()) - 1

    def wait_for_end(self) -> None:
        """Until one command less is running."""
        self._running -= 1
        wait_until(lambda: self.running() == self._running)

    def end(self) -> tuple[int, str, str]:
        """Close its stdin, and let it finish: exit code, what else it said."""
        process = self.process
        assert process.stdin and process.stdout and process.stderr
        process.stdin.close()
        # Not communicate: what came together with the last line that was read is in our buffer.
        out, err = process.stdout.read(), process.stderr.read()
        process.stdout.close()
        process.stderr.close()
        return process.wait(60), out, err


def announced(command: str, device: str) -> str:
    return f"Processing command `{command}` on gpu {device}\n"


def shell(door: Door, line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A line that somebody types."""
    return subprocess.run(
        ["sh", "-c", line],
        env={**door.env, **env},
        cwd=door.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


# -- the README ------------------------------------------------------------------------------------


def stand_in(door: Door, name: str, text: str) -> None:
    """A program of this name for the jobs."""
    (door.bin / name).write_text(f"#!/bin/sh\n{text}\n")
    (door.bin / name).chmod(0o755)


def test_the_first_example_of_the_readme_prints_what_it_says(door: Door) -> None:
    gate = door.gate()
    stand_in(door, "python", gate.wait)
    (door.folder / "gpu_commands.txt").write_text(
        "python train_model.py --lr 0.001 --output run_1\n"
        "python train_model.py --lr 0.0005 --output run_2\n"
        "python train_model.py --lr 0.0001 --output run_3\n"
    )
    run = subprocess.Popen(
        ["sh", "-c", "simple_gpu_scheduler --gpus 0 1 2 < gpu_commands.txt"],
        env=door.env,
        cwd=door.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    gate.wait_for(3)
    gate.open()
    assert run.communicate(timeout=60)[0] == (
        "Processing command `python train_model.py --lr 0.001 --output run_1` on gpu 2\n"
        "Processing command `python train_model.py --lr 0.0005 --output run_2` on gpu 1\n"
        "Processing command `python train_model.py --lr 0.0001 --output run_3` on gpu 0\n"
    )
    assert run.returncode == 0


@pytest.mark.parametrize(("samples", "count"), [("", 9), ("--n-samples 5 ", 5)])
def test_the_hyperparameter_searches_of_the_readme_run(
    door: Door, samples: str, count: int
) -> None:
    stand_in(door, "python3", 'echo "$*" >> "$CUDA_VISIBLE_DEVICES.ran"')
    done = shell(
        door,
        'simple_hypersearch "python3 train_dnn.py --lr {lr} --batch_size {bs}" '
        f"{samples}-p lr 0.001 0.0005 0.0001 -p bs 32 64 128 | simple_gpu_scheduler --gpus 0,1,2",
    )
    assert (done.returncode, done.stderr) == (0, "")
    ran = [line for file in door.folder.glob("[012].ran") for line in file.read_text().splitlines()]
    commands = {line.split("`")[1].removeprefix("python3 ") for line in done.stdout.splitlines()}
    assert len(commands) == len(ran) == count
    assert set(ran) == commands
    assert "train_dnn.py --lr 0.001 --batch_size 32" in ran or count == 5


def test_the_queue_file_of_the_readme_is_followed(door: Door) -> None:
    queue = door.folder / "gpu.queue"
    queue.write_text("echo old >> old\n")
    run = subprocess.Popen(
        ["sh", "-c", "touch gpu.queue\ntail -f -n 0 gpu.queue | simple_gpu_scheduler --gpus 0,1,2"],
        env=door.env,
        cwd=door.folder,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )

    def submit_until_heard() -> bool:  # what was written before tail began is not for us
        shell(door, 'echo "echo up > up" >> gpu.queue')
        return (door.folder / "up").exists()

    try:
        wait_until(submit_until_heard)
        shell(door, """echo 'echo "a b" | tr b c > "logfile $CUDA_VISIBLE_DEVICES"' >> gpu.queue""")
        wait_until(lambda: list(door.folder.glob("logfile [012]")))
        (log,) = door.folder.glob("logfile *")
        wait_until(lambda: log.read_text() == "a c\n")
        assert not (door.folder / "old").exists()
    finally:
        os.killpg(run.pid, signal.SIGTERM)
        run.wait(timeout=60)


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
def test_ids_make_slots_that_are_used_from_the_last_to_the_first(
    door: Door, words: tuple[str, ...], places: list[str]
) -> None:
    gate = door.gate()
    run = Run(door, *words)
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


def test_the_slot_that_was_freed_last_is_used_first(door: Door) -> None:
    gates = [door.gate(name) for name in "abc"]
    last = door.gate("last")
    run = Run(door, "--gpus", "0,1,2")
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


def test_a_freed_slot_is_used_before_one_that_was_never_used(door: Door) -> None:
    run = Run(door, "--gpus", "0,1,2")
    for number in range(3):
        run.write(f"echo > done{number}\n")
        assert run.place() == "2"
        wait_until((door.folder / f"done{number}").exists)
        run.wait_for_end()
    assert run.end()[0] == 0


def test_an_empty_variable_means_all_gpus_when_it_is_not_set(door: Door) -> None:
    """--gpus "$CUDA_VISIBLE_DEVICES" is in many scripts."""
    line = 'echo true | simple_gpu_scheduler --gpus "$CUDA_VISIBLE_DEVICES"'
    assert shell(door, line, STOKER_DEVICES="2").stdout == announced("true", "1")
    none = {"STOKER_DEVICES": "2", "CUDA_VISIBLE_DEVICES": ""}
    assert shell(door, line, **none).stdout == announced("true", "")
    assert shell(door, line).stdout == announced("true", "")  # there are none


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
        # A backslash at the end joins lines.
        (b"echo a \\\n  b\necho c\n", [b"echo a   b", b"echo c"]),
        (b"echo a \\\r\nb\r\n", [b"echo a b"]),
        (b"echo a\\\\\necho b\n", [b"echo a\\\\", b"echo b"]),
        (b"echo a \\\nb \\", [b"echo a b"]),
        (b"# a comment \\\necho b\n", [b"# a comment \\", b"echo b"]),
    ],
)
def test_every_line_is_a_command_and_is_announced(
    door: Door, data: bytes, commands: list[bytes]
) -> None:
    done = door.run("--gpus", "0", input=data)
    out = done.stdout.encode("utf-8", "surrogateescape")
    lines = [line for line in out.split(b"\n") if line.startswith(b"Processing")]
    assert lines == [b"Processing command `%b` on gpu 0" % command for command in commands]
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_starts_as_soon_as_its_line_is_there(door: Door) -> None:
    run = Run(door, "--gpus", "0")
    for word in ("one", "two"):
        run.write(f"echo {word}\n")
        assert run.line() == f"Processing command `echo {word}` on gpu 0"
        assert run.line() == word
    assert run.end() == (0, "", "")


def test_half_a_line_waits_for_its_end(door: Door) -> None:
    run = Run(door, "--gpus", "0")
    run.write("echo first\nec")
    assert [run.line(), run.line()][1] == "first"
    run.write("ho second \\\n")
    run.write("of two\n")
    assert run.line() == "Processing command `echo second of two` on gpu 0"
    assert run.end() == (0, "second of two\n", "")


def test_commands_can_come_from_a_file(door: Door) -> None:
    (door.folder / "commands").write_text("echo a\n")
    assert door.ok("--gpus", "0", "--commands_file", "commands") == announced("echo a", "0") + "a\n"


def test_many_commands_run_in_order(door: Door) -> None:
    text = "".join(f"echo {number}\n" for number in range(700))
    done = door.run("--gpus", "0", input=text)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Processing")]
    assert lines == [str(number) for number in range(700)]


def test_a_command_that_is_too_long_for_an_argument_runs(door: Door) -> None:
    done = door.run("--gpus", "0", input=f"echo {'x' * 200_000} | wc -c\n")
    assert done.stdout.splitlines()[-1] == "200001"
    assert (done.returncode, door.left()) == (0, [])


def test_a_command_with_a_nul_byte_counts_as_failed(door: Door) -> None:
    done = door.run("--gpus", "0", input=b"echo a\0b\necho c\n")
    assert (done.returncode, done.stdout) == (1, announced("echo c", "0") + "c\n")
    assert done.stderr == "a command holds a NUL byte; it is not run and counts as failed\n"


# -- execution -------------------------------------------------------------------------------------


def test_commands_run_by_sh_where_we_are_with_our_environment(door: Door) -> None:
    text = "readlink /proc/$$/exe > exe; pwd; echo $COLOUR $CUDA_VISIBLE_DEVICES; echo no >&2\n"
    done = door.run(
        "--gpus", "5", input=text, COLOUR="blue", CUDA_VISIBLE_DEVICES="9", SHELL="bash"
    )
    assert done.stdout.splitlines()[1:] == [str(door.folder), "blue 5"]
    assert done.stderr == "no\n"
    assert os.path.samefile((door.folder / "exe").read_text().strip(), "/bin/sh")


def test_commands_are_bytes_in_every_locale(door: Door, other_locale: dict[str, str]) -> None:
    word = "\u00e9".encode()
    text = b"printf %%s %b >> said\nprintf '\xff%%s' %b >> %b\n" % (word, word, word)
    door.env.update(other_locale)
    done = door.run("--gpus", "0", input=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.encode("utf-8", "surrogateescape") == b"".join(
        b"Processing command `%b` on gpu 0\n" % line for line in text.splitlines()
    )
    assert (door.folder / "said").read_bytes() == word
    assert Path(os.fsdecode(os.fsencode(door.folder) + b"/" + word)).read_bytes() == b"\xff" + word


def test_a_working_folder_that_was_removed_is_no_reason_to_fail(door: Door) -> None:
    done = shell(
        door, "mkdir gone; cd gone; rmdir ../gone; echo 'echo a' | simple_gpu_scheduler --gpus 0"
    )
    assert (done.returncode, done.stdout) == (0, announced("echo a", "0") + "a\n")
    assert "Traceback" not in done.stderr  # some shells say that they miss it


def test_the_usual_line_needs_few_modules(door: Door) -> None:
    """Each would take some milliseconds of a run that may take thirty."""
    for name in ("argparse", "socket", "shutil", "json", "tempfile", "logging", "subprocess"):
        (door.folder / f"{name}.py").write_text("raise SystemExit(77)\n")
    done = door.run("--gpus", "0", "1", input="true\n", PYTHONPATH=str(door.folder))
    assert (done.returncode, done.stderr) == (0, "")


def test_shell_syntax_works(door: Door) -> None:
    done = door.run("--gpus", "0", input="echo a b | tr ' ' '\\n' > out && ! false && cat < out\n")
    assert done.stdout.splitlines()[1:] == ["a", "b"]


def test_an_announcement_comes_before_the_output_of_its_command(door: Door) -> None:
    """It used to come last in a log file."""
    done = door.run("--gpus", "0,1,2,3", input="".join(f"echo x{n}\n" for n in range(100)))
    lines = done.stdout.splitlines()
    assert len(lines) == 200
    for number in range(100):
        said = next(n for n, line in enumerate(lines) if f"`echo x{number}`" in line)
        assert said < lines.index(f"x{number}")


@pytest.mark.parametrize("is_known", [False, True])
def test_nothing_is_left_behind(door: Door, is_known: bool) -> None:
    """Nor is a state folder made for somebody who has none."""
    temporary = door.folder / "tmp"
    temporary.mkdir()
    if is_known:
        (door.state_dir / "runs").mkdir(0o700, parents=True)
        door.state_dir.chmod(0o700)
    before = sorted(door.folder.rglob("*"))
    text = "mkdir -p $STOKER_OUTPUT_DIR\necho $STOKER_OUTPUT_DIR\n"
    out = door.ok("--gpus", "0", input=text, TMPDIR=str(temporary))
    assert sorted(door.folder.rglob("*")) == before
    assert out.splitlines()[-1].startswith(str(door.state_dir if is_known else temporary))


def test_the_state_folder_need_not_be_usable(door: Door) -> None:
    door.state_dir.mkdir()
    door.state_dir.chmod(0o755)  # not private: the queue refuses it
    assert door.run("--gpus", "0", input="echo a\n").returncode == 0


def test_no_reader_of_our_output_is_no_reason_to_stop(door: Door) -> None:
    done = shell(door, "for i in 1 2 3; do echo 'echo >> ran'; done | simple_gpu_scheduler --gpus 0"
                 " | true; cat ran")  # fmt: skip
    assert (done.stdout, done.stderr) == ("\n\n\n", "")


# -- exit codes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [("true\n", 0), ("false\ntrue\nexit 7\nkill -9 $$\n", 3), ("exit 1\n" * 120, 101), ("", 0)],
)
def test_the_exit_code_tells_how_many_failed(door: Door, text: str, code: int) -> None:
    assert door.run("--gpus", "0", "1", input=text).returncode == code


def test_the_old_exit_code_can_be_had(door: Door) -> None:
    assert door.run("--gpus", "0", "--exit-zero", input="false\n").returncode == 0
    assert door.run("--gpus", "0", input="false\n", STOKER_COMPAT_EXIT_ZERO="1").returncode == 0
    assert door.run("--gpus", "0", input="false\n", STOKER_COMPAT_EXIT_ZERO="0").returncode == 1


def test_a_program_that_is_missing_is_named_and_counts_as_failed(door: Door) -> None:
    done = door.run("--gpus", "0", input="nosuchprogram --x\n")
    assert (done.returncode, done.stderr) == (1, "/bin/sh: nosuchprogram: command not found\n")


@pytest.mark.parametrize(
    "words", [(), ("--gpus",), ("--gpus", "0", "--what"), ("--gpus", "0", "--jobs-per-gpu", "0")]
)
def test_a_command_line_that_makes_no_sense_exits_with_2(
    door: Door, words: tuple[str, ...]
) -> None:
    done = door.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: simple_gpu_scheduler")


def test_input_that_cannot_be_read_is_named(door: Door) -> None:
    refused(
        door.run("--gpus", "0", "--commands-file", "none"),
        2,
        "cannot read `none`: No such file or directory",
        "pipe commands into it",
    )
    done = door.run("--gpus", "0", "--commands-file", "/")
    refused(done, 2, "cannot read `/`: Is a directory", "pipe commands into it")
    done = shell(door, "simple_gpu_scheduler --gpus 0 <&-")
    refused(done, 2, "cannot read stdin: Bad file descriptor", "pipe commands into it")


# -- what used to go wrong -------------------------------------------------------------------------


def test_a_command_that_reads_its_stdin_takes_no_other_command(door: Door) -> None:
    text = "cat; echo end\nhead -c 3\npython3 -c 'input()' 2>/dev/null\necho third\n"
    done = door.run("--gpus", "0", input=text)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Processing")]
    assert lines == ["end", "third"]
    assert done.returncode == 1


def test_a_multi_line_search_is_one_job_for_each_combination(door: Door) -> None:
    pattern = "mkdir {a}\ncd {a}\necho $CUDA_VISIBLE_DEVICES > gpu\ncd ..\nmv {a}/gpu {a}.gpu"
    done = shell(
        door,
        f"simple_hypersearch '{pattern}' -p a x y z | simple_gpu_scheduler --gpus 0,1",
    )
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 3)
    for name in "xyz":
        assert (door.folder / f"{name}.gpu").read_text().strip() in ("0", "1")


class Held:
    """A run whose two slots are busy, with two more commands that wait."""

    def __init__(self, door: Door, trap: str = "") -> None:
        self.door = door
        self.gate: Gate = door.gate()
        self.run = Run(door, "--gpus", "0,1")
        self.commands = [f"{trap}{self.gate.wait}; echo {name} >> ended" for name in "abcd"]
        self.run.write("".join(f"{command}\n" for command in self.commands))
        self.places = [self.run.place(), self.run.place()]
        self.pids = self.gate.wait_for(2)

    def gone(self) -> None:
        wait_until(lambda: not any(map(is_alive, self.pids)), what=f"the end of {self.pids}")
        assert len(self.gate.arrived()) == 2

    def kept(self) -> list[str]:
        """The commands that were written down."""
        (path,) = (self.door.state_dir / "not-run").iterdir()
        return path.read_text().splitlines()


@pytest.fixture
def held(door: Door) -> Iterator[Held]:
    made = Held(door)
    yield made
    made.run.process.kill()
    made.run.process.wait(60)
    for pipe in (made.run.process.stdin, made.run.process.stdout, made.run.process.stderr):
        if pipe is not None:
            pipe.close()


def test_usr1_lets_running_commands_finish_and_starts_no_more(held: Held) -> None:
    held.run.process.send_signal(signal.SIGUSR1)
    assert held.run.said() == "draining: running jobs finish, no more are started"
    held.gate.open()
    code, out, err = held.run.end()
    assert (code, out) == (0, "")
    assert sorted((held.door.folder / "ended").read_text().split()) == ["a", "b"]
    assert err.startswith("2 not started: the commands are in ")
    assert held.kept() == held.commands[2:]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_command_outlives_a_signal_and_none_is_forgotten(
    held: Held, number: signal.Signals
) -> None:
    held.run.process.send_signal(number)
    code, out, err = held.run.end()
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    said = err.splitlines()
    if number == signal.SIGINT:
        assert said.pop(0) == "finishing 2 running; Ctrl-C again cancels them"
    assert len(said) == 1
    assert said[0].startswith("2 ended early and 2 not started: the commands are in ")
    held.gone()
    assert sorted(held.kept()) == sorted(held.commands)
    assert not (held.door.folder / "ended").exists()


def test_ctrl_c_reaches_the_commands_as_it_would_from_a_terminal(door: Door) -> None:
    """Training scripts save their work then."""
    held = Held(door, trap="trap 'echo >> saved; exit 0' INT; ")
    held.run.process.send_signal(signal.SIGINT)
    assert held.run.end()[0] == 130
    assert (door.folder / "saved").read_text() == "\n\n"
    assert held.kept() == held.commands[2:]


def test_ctrl_c_while_python_imports_shows_nothing(door: Door) -> None:
    text = "import os\nos.kill(os.getpid(), 2)\nfor n in (): pass\n"
    (door.folder / "sqlite3.py").write_text(text)
    done = door.run("--gpus", "0", input="echo a\n", PYTHONPATH=str(door.folder))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def state_of(pid: int) -> str:
    """T: somebody stopped it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# Who is not in a session with its parent cannot be stopped from the terminal; as a shell does.
_SHELL = """
import subprocess, sys
run = subprocess.Popen(sys.argv[1:], process_group=0)
print(run.pid, flush=True)
sys.exit(run.wait())
"""


class FromShell:
    """A run in a process group of its own, as somebody starts it in a terminal."""

    def __init__(self, door: Door, *words: str) -> None:
        fifo = door.folder / "fifo"
        os.mkfifo(fifo)
        self._fifo = os.open(fifo, os.O_RDWR)
        here = door.gate()
        # No gate: between fork and exec, a shell waits for a child so that nothing can stop it.
        wait = f"echo $$ >> '{here.arrivals}'; read x < fifo"
        (door.folder / "commands").write_text(f"{wait}\nsh wait\n")
        (door.folder / "wait").write_text(f"{wait}\n")
        words = (*words, "--gpus", "0", "1", "--commands-file", "commands")
        door.command = [sys.executable, "-c", _SHELL, *words]
        self._shell = door.popen(start_new_session=True)
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())
        self.pids = [*here.wait_for(2), self.pid]

    def are_stopped(self) -> list[bool]:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in self.pids]
        return [stat.rpartition(")")[2].split()[0] == "T" for stat in stats]

    def end(self) -> int:
        os.write(self._fifo, b"a\nb\n")
        self._shell.communicate(timeout=60)
        os.close(self._fifo)
        return self._shell.returncode


def test_ctrl_z_stops_the_commands_as_well_and_fg_lets_them_go_on(door: Door) -> None:
    run = FromShell(door, "simple_gpu_scheduler")
    for _ in range(2):
        os.kill(run.pid, signal.SIGTSTP)
        wait_until(lambda: all(run.are_stopped()))
        os.kill(run.pid, signal.SIGCONT)
        wait_until(lambda: not any(run.are_stopped()))
    assert run.end() == 0


def test_who_ignores_ctrl_z_is_not_stopped(door: Door) -> None:
    run = FromShell(door, "sh", "-c", 'trap "" TSTP; exec simple_gpu_scheduler "$@"', "sh")
    os.kill(run.pid, signal.SIGTSTP)
    assert run.end() == 0


def test_a_full_stderr_ends_no_command(door: Door) -> None:
    gate = door.gate()
    with open("/dev/full", "w") as full:
        run = door.popen("--gpus", "0", stdin=subprocess.PIPE, stderr=full)
    assert run.stdin is not None and run.stdout is not None
    run.stdin.write(f"nosuchprogram\n{gate.wait}; echo ended\nsecond\n")
    run.stdin.flush()
    gate.wait_for()
    run.send_signal(signal.SIGUSR1)
    wait_until(lambda: not has_pending(run.pid, signal.SIGUSR1))
    gate.open()
    assert run.communicate(timeout=60)[0].splitlines()[-1] == "ended"
    assert run.returncode == 1


def has_pending(pid: int, number: int) -> bool:
    """Whether a signal has been sent to it that it has not heard yet."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_a_terminal_that_is_closed_ends_the_commands_and_gives_130(door: Door) -> None:
    gate = door.gate()
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [*door.command, "--gpus", "0"], env=door.env, cwd=door.folder, stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, f"{gate.wait}\necho second\n".encode())
    pids = gate.wait_for()
    os.close(ours)
    assert run.wait(60) == 130
    wait_until(lambda: not any(map(is_alive, pids)))


class Leaver:
    """A command that leaves a process behind, which waits at a gate and then says so."""

    def __init__(self, door: Door) -> None:
        self.gate = door.gate("left")
        self.late = door.folder / "late"
        (door.folder / "leave").write_text(f"{self.gate.wait}\ntouch '{self.late}'\n")
        # It is there before the command ends, and has nothing of the scheduler open.
        arrived = f"[ -s '{self.gate.arrivals}' ]"
        self.command = f"sh leave >/dev/null 2>&1 & until {arrived}; do sleep 0.02; done"


def test_what_a_command_leaves_in_the_background_lives_on(door: Door) -> None:
    leaver = Leaver(door)
    door.ok("--gpus", "0", input=f"{leaver.command}\ntrue\n")
    (pid,) = leaver.gate.arrived()
    door.ok("--gpus", "0", input="true\n")  # a whole run in between: nobody ended it
    assert is_alive(pid)
    leaver.gate.open()
    wait_until(leaver.late.exists)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_what_is_left_in_the_background_ends_with_an_interrupted_run(
    door: Door, number: signal.Signals
) -> None:
    leaver, gate = Leaver(door), door.gate()
    run = Run(door, "--gpus", "0")
    run.write(f"{leaver.command}\n{gate.wait}\n")
    held, left = gate.wait_for(), leaver.gate.arrived()
    assert is_alive(left[0])
    run.process.send_signal(number)
    assert run.end()[0] == (-9 if number == signal.SIGKILL else 130)
    wait_until(lambda: not any(map(is_alive, (*held, *left))))
    assert not leaver.late.exists()


def test_a_program_that_saves_its_work_when_asked_to_end_has_the_time(door: Door) -> None:
    """Also when the shell around it does not wait for it."""
    gate = door.gate()
    save = "until [ -e may_save ]; do sleep 0.02; done; touch saved; exit"
    (door.folder / "train").write_text(f"trap '{save}' TERM\n{gate.wait}\n")
    run = Run(door, "--gpus", "0")
    run.write("echo $$ > shell; sh train; true\n")
    gate.wait_for()
    run.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not is_alive(int((door.folder / "shell").read_text())))
    (door.folder / "may_save").touch()
    assert run.end()[0] == 130
    assert (door.folder / "saved").exists()


def test_nohup_protects_a_run(door: Door) -> None:
    gate = door.gate()
    line = f"echo '{gate.wait.replace(chr(39), '')}' | nohup simple_gpu_scheduler --gpus 0"
    run = subprocess.Popen(
        ["sh", "-c", line], env=door.env, cwd=door.folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    (pid,) = gate.wait_for()
    os.killpg(run.pid, signal.SIGHUP)
    settled = Run(door, "--gpus", "1")  # a whole run in between: the signal has been there
    assert settled.end()[0] == 0
    assert is_alive(pid)
    gate.open()
    wait_until(lambda: not is_alive(pid))
    run.wait(timeout=60)


def test_closed_output_is_no_reason_to_fail(door: Door) -> None:
    done = shell(door, "echo 'echo a; echo ran > ran' | simple_gpu_scheduler --gpus 0 >&- 2>&-")
    assert (done.returncode, (door.folder / "ran").read_text()) == (0, "ran\n")


def test_what_was_not_run_can_be_run_later(held: Held) -> None:
    held.run.process.send_signal(signal.SIGTERM)
    path = held.run.end()[2].split()[-1]
    held.gate.open()
    assert shell(held.door, f"simple_gpu_scheduler --gpus 0,1 < '{path}'").returncode == 0
    assert sorted((held.door.folder / "ended").read_text().split()) == [*"abcd"]


def test_commands_that_ignore_a_signal_are_killed_by_the_next(door: Door) -> None:
    held = Held(door, trap="trap '' TERM INT; ")
    while held.run.process.poll() is None:
        held.run.process.send_signal(signal.SIGINT)
        try:
            held.run.process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            pass
    assert held.run.end()[0] == 130
    held.gone()


def test_no_command_outlives_a_scheduler_that_was_killed(held: Held) -> None:
    held.run.process.kill()
    held.run.end()
    held.gone()
    assert held.door.left() == []


# -- cards that are really there -------------------------------------------------------------------


@pytest.fixture
def doors(host: GpuHost, new_door: Callable[..., Door]) -> Callable[[], Door]:
    """Doors on a host with two cards."""
    env = host.lab().env
    known = {key: env[key] for key in env if key.startswith(("STOKER_", "FAKE_", "LD_"))}
    del known["STOKER_STATE_DIR"], known["STOKER_SETTINGS"]
    return lambda: new_door("simple_gpu_scheduler", **known)


def test_two_schedulers_never_share_a_card_by_accident(
    host: GpuHost, doors: Callable[[], Door]
) -> None:
    gate, other = host.gate(), host.gate("other")
    first, second = Run(doors(), "--gpus", "0"), Run(doors(), "--gpus", "0")
    first.write(f"{gate.wait}\n")
    gate.wait_for()
    second.write(f"{other.wait}\n")
    assert second.said() == "waiting for a GPU: leased to somebody else"
    assert not other.arrived()
    gate.open()
    other.wait_for()
    other.open()
    assert second.place() == "0"
    assert (first.end()[0], second.end()[0]) == (0, 0)


def test_a_job_of_the_queue_keeps_its_card(host: GpuHost, doors: Callable[[], Door]) -> None:
    gate = host.gate()
    host.lab().start(gate, "--gpu-ids", "1")
    run = Run(doors(), "--gpus", host.cards[1])
    run.write("echo at last\n")
    assert run.said() == "waiting for a GPU: leased to somebody else"
    gate.open()
    assert run.line() == f"Processing command `echo at last` on gpu {host.cards[1]}"
    assert run.end() == (0, "at last\n", "")


def test_a_pair_waits_for_both_of_its_cards(host: GpuHost, doors: Callable[[], Door]) -> None:
    gate = host.gate()
    one, pair = Run(doors(), "--gpus", "0"), Run(doors(), "--gpus", "0,1", "0,1")
    one.write(f"{gate.wait}\n")
    gate.wait_for()
    pair.write("echo $CUDA_VISIBLE_DEVICES\n")
    assert pair.said() == "waiting for a GPU: leased to somebody else"
    gate.open()
    assert pair.place() == "0,1"
    assert pair.end() == (0, "0,1\n", "")
    assert one.end()[0] == 0


def test_an_id_that_the_host_does_not_have_is_a_slot_like_any_other(
    host: GpuHost, doors: Callable[[], Door]
) -> None:
    gate = host.gate()
    one, two = Run(doors(), "--gpus", "0"), Run(doors(), "--gpus", "17", "0", "")
    one.write(f"{gate.wait}\n")
    gate.wait_for()
    two.write(f"{gate.wait}\n" * 3)
    assert [two.place(), two.place()] == ["", "17"]
    gate.wait_for(3)
    gate.open()
    assert (one.end()[0], two.end()[0]) == (0, 0)


def test_repeated_ids_share_a_card_among_themselves_and_with_nobody_else(
    host: GpuHost, doors: Callable[[], Door]
) -> None:
    gate = host.gate()
    one, two = Run(doors(), "--gpus", "0", "0"), Run(doors(), "--gpus", "0")
    one.write(f"{gate.wait}\n" * 2)
    gate.wait_for(2)
    two.write("true\n")
    assert two.said() == "waiting for a GPU: leased to somebody else"
    gate.open()
    assert (one.end()[0], two.end()[0]) == (0, 0)


def test_a_card_is_not_free_while_something_is_left_of_a_command(
    host: GpuHost, doors: Callable[[], Door]
) -> None:
    door = doors()
    leaver = Leaver(door)
    run = Run(door, "--gpus", "0")
    run.write(f"{leaver.command}\necho next\n")
    assert run.place() == "0"
    assert run.said() == "waiting for a GPU: leased to somebody else"
    leaver.gate.open()
    assert run.place() == "0"
    assert run.end() == (0, "next\n", "")


def test_a_stranger_on_the_card_is_waited_for_and_named(
    host: GpuHost, doors: Callable[[], Door]
) -> None:
    pid = host.stranger(0, 5 * GIB)
    run = Run(doors(), "--gpus", "0")
    run.write("true\n")
    assert run.said() == f"waiting for a GPU: {USER} (pid {pid}) has 5.0 GB"
    host.end_stranger(pid)
    assert run.place() == "0"
    assert run.end()[0] == 0


def test_without_an_answer_of_the_driver_commands_run_and_that_is_said(door: Door) -> None:
    missing = str(door.folder)  # where no library is
    done = door.run("--gpus", "0", input="true\n", STOKER_NVML="1", LD_LIBRARY_PATH=missing)
    assert (done.returncode, done.stdout) == (0, announced("true", "0"))
    assert done.stderr.startswith("the GPUs cannot be leased, so others may be on them: ")
