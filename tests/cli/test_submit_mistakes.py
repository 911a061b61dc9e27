"""Likely mistakes on the command line of `submit` and `run`: errors and notices."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.helpers import refused
from tests.lab import Lab

PROGRAM = "import sys\n\nprint(sys.argv)\n"


@pytest.fixture(autouse=True)
def _quick_commands(lab: Lab) -> None:
    lab.forks = True


def test_submit_dash_reads_jobs_from_stdin(lab: Lab) -> None:
    assert lab.ok("submit", "-q", "--hold", "-", input="echo a\necho b\n") == "1\n2\n"
    assert lab.job(2)["argv"] == ["echo b"]


@pytest.mark.parametrize("verb", ["submit", "run"])
@pytest.mark.parametrize(
    ("name", "text", "message", "meant"),
    [
        ("train.py", "", "`train.py` is a program", "python train.py"),
        ("train", "#!/usr/bin/env python3\nx = 1\n", "`train` is a program", "python train"),
        ("train", f"# comment\n{PROGRAM}", "`train` looks like Python", "python train"),
        ("train", '"""Doc."""\n', "`train` looks like Python", "python train"),
        ("a.ipynb", "{}", "`a.ipynb` is a program", "jupyter nbconvert --execute a.ipynb"),
        ("job.sh", "#!/bin/sh\n#SBATCH -t 1\ntrue\n", "`job.sh` is one script with #SBATCH options",
         "job.sh"),
    ],
)  # fmt: skip
def test_program_is_refused_as_job_file(
    lab: Lab, verb: str, name: str, text: str, message: str, meant: str
) -> None:
    (lab.folder / name).write_text(text)
    refused(
        lab.run(verb, "--file", name), 2,
        f"{message}, but each line of a job file must be a command",
        f"did you mean `stoker {verb} {meant}`? If its lines are commands: "
        f"stoker {verb} --file - < {name}",
    )  # fmt: skip
    assert lab.states() == {}


@pytest.mark.parametrize("text", ["#!/bin/bash\npython a.py\n", "fromage 1\n", "importer x\n"])
def test_list_of_commands_is_a_job_file(lab: Lab, text: str) -> None:
    (lab.folder / "jobs.sh").write_text(text)
    assert lab.ok("submit", "-q", "--hold", "-f", "jobs.sh") == "1\n"


def test_run_does_not_run_the_lines_of_a_python_program(lab: Lab) -> None:
    (lab.folder / "train.py").write_text(PROGRAM)
    done = lab.run("run", "train.py")
    assert done.returncode == 2
    assert "did you mean `stoker run python train.py`?" in done.stderr


def test_file_in_the_folder_is_not_a_program(lab: Lab) -> None:
    (lab.folder / "train.py").write_text(PROGRAM)
    said = "`train.py` is a file in this folder, but not on your PATH"
    refused(lab.run("submit", "train.py"), 2, said, "to run it: stoker submit python train.py")
    refused(lab.run("submit", "train.py", "--lr", "a b"), 2, said,
            "to run it: stoker submit python train.py --lr 'a b'")  # fmt: skip
    (lab.folder / "train.py").chmod(0o755)
    refused(lab.run("submit", "train.py"), 2, said, "to run it: stoker submit ./train.py")
    assert lab.states() == {}


def test_job_file_without_file_option_is_refused_with_a_hint(lab: Lab) -> None:
    (lab.folder / "jobs.txt").write_text("python train.py\n")
    said = "`jobs.txt` is a file in this folder, but not on your PATH"
    refused(lab.run("submit", "jobs.txt"), 2, said,
            "to queue each line as a job: stoker submit --file jobs.txt")  # fmt: skip


def test_file_that_is_not_executable_is_refused(lab: Lab) -> None:
    (lab.folder / "train.py").write_text(PROGRAM)
    hint = "to run it: stoker submit python ./train.py --lr 1"
    refused(lab.run("submit", "./train.py", "--lr", "1"), 2, "`./train.py` is not executable", hint)
    first = lab.submit("--hold", "chmod +x train.py")
    done = lab.run("submit", "-q", "--after", str(first), "./train.py", "--lr", "1")
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert done.stderr.startswith(f"warning: `./train.py` is not executable; {hint}\n")


def test_file_in_the_folder_is_a_program_when_the_path_has_the_folder(lab: Lab) -> None:
    (lab.folder / "train.py").write_text("#!/bin/sh\necho ran\n")
    (lab.folder / "train.py").chmod(0o755)
    job = lab.submit("--env", f"PATH={lab.folder}:/usr/bin:/bin", "train.py")
    assert lab.wait(job) == 0
    assert lab.log(job) == "ran\n"


@pytest.mark.parametrize(
    ("words", "notice"),
    [
        (("later", "x"), "`later` is not on your PATH; "),
        (("./later", "x"), "`./later` does not exist; "),
        (("python3", "trian.py"), "`trian.py` does not exist; "),
        (("sh", "trian.sh"), "`trian.sh` does not exist; "),
    ],
)
def test_program_that_may_come_later_is_queued_with_a_notice(
    lab: Lab, words: tuple[str, ...], notice: str
) -> None:
    done = lab.run("submit", "-q", "--hold", *words)
    assert (done.returncode, done.stdout) == (0, "1\n")
    fails = "the job will fail unless it exists when the job starts"
    assert done.stderr == f"warning: {notice}{fails}\n"


@pytest.mark.parametrize("text", ["FOO=1 later", "cd x && later", "for i in 1; do later; done"])
def test_shell_text_is_not_searched_for_programs(lab: Lab, text: str) -> None:
    assert lab.run("submit", "-q", "--hold", text).stderr == ""


def test_options_after_the_command_get_a_notice(lab: Lab) -> None:
    done = lab.run("submit", "--hold", "echo", "--dry-run", "x")
    assert done.stderr == (
        "warning: `--dry-run` was passed to `echo`; options of `stoker submit` go before the"
        " command\n"
    )
    assert lab.job(1)["argv"] == ["echo", "--dry-run", "x"]
    assert lab.run("submit", "--hold", "--", "echo", "--dry-run").stderr == ""
    assert lab.run("submit", "--hold", "echo", "--name", "x", "--gpus", "2").stderr == ""


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("python train.py", "--gpus", "2"),
         "there is no program `python train.py`; the words after it are passed to it",
         "options of Stoker go before the command: stoker submit --gpus 2 'python train.py'"),
        (("CUDA_VISIBLE_DEVICES=3", "python", "t.py"),
         "`CUDA_VISIBLE_DEVICES=3` is not a program; a command of several words is run without a"
         " shell",
         "set the variable with an option: stoker submit --gpu-ids 3 python t.py"),
        (("LR=1 2", "python", "t.py"),
         "`LR=1 2` is not a program; a command of several words is run without a shell",
         "set the variable with an option: stoker submit --env 'LR=1 2' python t.py"),
        (("cd", "x"),
         "`cd` is a command of the shell; a command of several words is run without one",
         "quote the whole command: stoker submit 'cd x && ...'"),
        (("source", "env/bin/activate"),
         "`source` is a command of the shell; a command of several words is run without one",
         "quote the whole command: stoker submit 'source env/bin/activate && ...'"),
    ],
)  # fmt: skip
def test_words_that_need_a_shell_are_refused(
    lab: Lab, words: tuple[str, ...], message: str, hint: str
) -> None:
    refused(lab.run("submit", *words), 2, message, hint)
    assert lab.states() == {}


def _submit_in_shell(lab: Lab, script: str) -> subprocess.CompletedProcess[str]:
    stoker = " ".join(f"'{word}'" for word in lab.command)
    return subprocess.run(
        ["bash", "-c", script.replace("STOKER", stoker)], stdin=subprocess.DEVNULL, text=True,
        capture_output=True, env=lab.env, cwd=lab.folder, check=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    ["sleep 1 &", "nohup sleep 1 > out 2>&1 & ", "sleep 1 & disown", "(sleep 1 &)"],
)
def test_command_in_the_background_gets_a_notice(lab: Lab, command: str) -> None:
    words = (
        "warning: the command ends in `&`, so the job ends at once and its program is stopped;"
        " leave out the `&` (jobs run in the background anyway), or give --keep-children\n"
    )
    assert lab.run("submit", "--hold", command).stderr == words
    assert lab.run("submit", "--hold", "--keep-children", command).stderr == ""


@pytest.mark.parametrize("command", ["true && true", "sleep 1 & wait", "true 2>&1", "echo a&b"])
def test_command_that_waits_for_its_programs_gets_no_notice(lab: Lab, command: str) -> None:
    assert lab.run("submit", "--hold", command).stderr == ""


def test_data_on_stdin_gets_a_notice(lab: Lab) -> None:
    (lab.folder / "data").write_text("1 2 3\n")
    notice = "warning: the job cannot read the data on stdin"
    # The pipe has its data before the command checks it.
    piped = _submit_in_shell(
        lab, "mkfifo f; exec 3<>f; cat data >&3; STOKER submit --hold cat <&3 3<&-"
    )
    assert notice in piped.stderr
    assert notice in _submit_in_shell(lab, "STOKER submit --hold cat < data").stderr


@pytest.mark.parametrize(
    "script",
    [
        "STOKER submit --hold cat < /dev/null",
        ": > empty; STOKER submit --hold cat < empty",
        "mkfifo f; exec 3<>f; STOKER submit --hold cat <&3 3<&-",
        "while read x; do STOKER submit --hold cat; done < list",
        "cat list | while read x; do STOKER submit --hold cat; done",
    ],
)
def test_stdin_without_data_for_the_job_gets_no_notice(lab: Lab, script: str) -> None:
    (lab.folder / "list").write_text("a\nb\nc\n")
    assert "note:" not in _submit_in_shell(lab, script).stderr


def test_results_without_arguments_name_their_sweep(lab: Lab) -> None:
    lab.ok("sweep", "-q", "--name", "first", "echo stoker: loss={x}", "x=1")
    lab.ok("sweep", "-q", "--name", "second", "echo stoker: loss={x}", "x=1,2")
    lab.wait()
    done = lab.run("results")
    assert done.stderr == "sweep second, the newest of 2\n"
    assert done.stdout.startswith("TRIAL")


def test_ls_lists_the_jobs_of_a_sweep_by_its_name(lab: Lab) -> None:
    lab.ok("sweep", "-q", "--hold", "--name", "lrs", "echo {x}", "x=1,2")
    lab.submit("--hold", "true")
    text = lab.ok("ls", "lrs")
    assert "lrs/1" in text
    assert "lrs/2" in text
    assert "true" not in text
    refused(lab.run("show", "lrs"), 1, "there is no job `lrs`",
            "to select the jobs of the sweep, write sweep:lrs")  # fmt: skip


@pytest.mark.parametrize("name", ["all", "7", "failed", "3-9", "9-3", "@", "7_3", "sweep:x"])
def test_name_that_selects_other_jobs_is_refused(lab: Lab, name: str) -> None:
    message = f"`--name` must not be `{name}`, which selects other jobs"
    done = lab.run("submit", "--name", name, "true")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: {message}")
    lab.submit("--hold", "--name", "2026-12-24", "true")
    assert lab.run("edit", "1", "--name", name).returncode == 2
    assert lab.job(1)["name"] == "2026-12-24"


def test_devices_that_do_not_exist_are_refused_beside_a_daemon(lab: Lab) -> None:
    lab.wait(lab.submit("true"))
    done = lab.run("submit", "true", STOKER_DEVICES="banana")
    assert done.returncode == 2
    assert done.stderr.startswith("error: `banana` is not a GPU index or UUID\n")
    assert set(lab.states()) == {1}
