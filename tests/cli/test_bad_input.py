"""Invalid input is refused with an exit code, an error and a hint, and changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.cli.helpers import refused
from tests.lab import Lab

NOT_A_DURATION = "write 90s, 30m, 2h, 1d, HH:MM:SS or D-HH:MM:SS"
NOT_A_TIME = "write 14:30, +2h or 2026-12-24T18:00"


@pytest.fixture(autouse=True)
def _quick_commands(lab: Lab) -> None:
    lab.forks = True


AFTER = "write 7, 7:ok, 7:any or 7:notok; a range, a name, a tag or @ (the last job) likewise"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("", "no command given", "example: stoker submit python train.py --lr 0.1"),
        ("--", "no command given", "example: stoker submit python train.py --lr 0.1"),
        ("-G -1 x", "`-G` must not be negative, but is -1", None),
        ("-G two x", "`-G`: `two` is not an integer", None),
        ("-G 1.5 x", "`-G`: `1.5` is not an integer", None),
        ("-G 99999999999 x", "`-G`: `99999999999` is too large", None),
        ("-G ٣ x", "`-G`: `٣` is not an integer", None),
        ("-p high x", "`-p`: `high` is not an integer", None),
        ("-p 9999999999 x", "`-p`: `9999999999` is too large", None),
        ("-r -2 x", "`-r` must not be negative, but is -2", None),
        ("-t soon x", "`-t`: `soon` is not a duration", NOT_A_DURATION),
        ("-t -5m x", "`-t`: `-5m` is not a duration", NOT_A_DURATION),
        ("-t 5parsecs x", "`-t`: `5parsecs` is not a duration", NOT_A_DURATION),
        ("--time-limit= x", "`--time-limit`: `` is not a duration", NOT_A_DURATION),
        ("--begin yesterday x", "`--begin`: `yesterday` is not a time", NOT_A_TIME),
        ("--begin 25:00 x", "`--begin`: `25:00` is not a time", NOT_A_TIME),
        ("--begin 2026-02-30 x", "`--begin`: `2026-02-30` is not a time", NOT_A_TIME),
        ("--begin +99999999d x", "`--begin`: `+99999999d` is not a time", NOT_A_TIME),
        ("-d x:y z", "`-d`: `x:y` is not a dependency", AFTER),
        ("-d 7:good y", "`-d`: `7:good` is not a dependency", AFTER),
        ("-d 99999999999999999999 y", "`-d`: `99999999999999999999` is not a dependency", AFTER),
        ("--signal USR9@60 -t 1h x", "`--signal`: unknown signal `USR9`",
         "write USR1@60 for SIGUSR1 60 seconds before the time limit"),
        ("--signal X:USR1 -t 1h x", "`--signal`: unknown prefix `X:` in `X:USR1`",
         "write USR1@60 for SIGUSR1 60 seconds before the time limit, or B:USR1@60"),
        ("--min-gpu-mem 0 x", "`--min-gpu-mem` must not be 0", "write a size such as 20G"),
        ("--gpu-mem 20 x", "`--gpu-mem`: 20 B is too small", "did you mean 20G?"),
        ("--min-gpu-mem 4K x", "`--min-gpu-mem`: 4.0 KiB is too small", "write a size such as 20G"),
        ("-G 0,1 x", "`-G`: `0,1` is not an integer",
         "this option is the number of GPUs; to choose GPUs: --gpu-ids 0,1"),
        ("-M 0 x", "`-M` must not be 0", "write a size such as 20G"),
        ("-E NOSUCHVAR y", "`-E`: `NOSUCHVAR` is not set in your environment",
         "write NOSUCHVAR=VALUE"),
        ("-E =x y", "`-E`: `=x` is not an environment variable", "write NAME=VALUE"),
        ("--env-file nowhere y", "`--env-file`: cannot read `nowhere`: No such file or directory",
         None),
    ],
)  # fmt: skip
def test_submit_refuses_invalid_options(
    lab: Lab, words: str, message: str, hint: str | None
) -> None:
    refused(lab.run("submit", *words.split()), 2, message, hint)
    assert lab.states() == {}
    assert lab.daemon_pid() is None


@pytest.mark.parametrize(
    "option", ["--name", "--group", "--gpu-model", "--dedupe", "--cwd", "--stdout", "--stderr"]
)
def test_empty_value_is_refused(lab: Lab, option: str) -> None:
    refused(lab.run("submit", option, "", "x"), 2, f"`{option}` must not be empty")
    assert lab.states() == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run --jobs 0 true", "`--jobs` must be 1 or more, not 0"),
        ("run --log-dir= true", "`--log-dir` must not be empty"),
        ("sweep --name= x{i} i=1", "`--name` must not be empty"),
        ("sweep --max-parallel 0 x{i} i=1", "`--max-parallel` must be 1 or more, not 0"),
        ("sweep --trials 0 x{i} i=1", "`--trials` must be 1 or more, not 0"),
    ],
)
def test_values_that_would_have_no_effect_are_refused(lab: Lab, words: str, message: str) -> None:
    refused(lab.run(*words.split()), 2, message)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("--gpu-mem 5G", "`--gpu-mem` needs"),
        ("--gpu-mem auto", "`--gpu-mem` needs"),
        ("--gpu-ids 0", "`--gpu-ids` needs"),
        ("--prefer 0", "`--prefer` needs"),
        ("--gpu-model H100", "`--gpu-model` needs"),
        ("--min-gpu-mem 5G", "`--min-gpu-mem` needs"),
        ("--exclusive", "`--exclusive` needs"),
        ("--on-oom fail", "`--on-oom` needs"),
        ("--prefer 0 --exclusive", "`--prefer` and `--exclusive` need"),
    ],
)
def test_gpu_options_of_a_job_without_a_gpu_are_refused(
    lab: Lab, new_lab: Callable[..., Lab], options: str, names: str
) -> None:
    it = "them" if "and" in names else "it"
    refused(lab.run("submit", "--gpus", "0", *options.split(), "x"), 2,
            f"{names} `--gpus` 1 or more", f"remove {it}, or remove --gpus 0")  # fmt: skip
    (lab.folder / "jobs").write_text(f"x #stoker --gpus 0 {options}\n")
    refused(lab.run("submit", "--file", "jobs"), 2,
            f"line 1: {names} `--gpus` 1 or more", f"remove {it}, or remove --gpus 0")  # fmt: skip
    assert lab.states() == {}


def test_gpu_options_on_a_host_without_gpus_are_refused(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    refused(lab.run("submit", "--gpu-model", "H100", "x"), 65,
            "`--gpu-model` needs a GPU, but this host has no GPU",
            "remove it for a job without a GPU")  # fmt: skip
    assert lab.ok("submit", "-q", "--hold", "--on-oom", "fail", "x") == "1\n"


def test_sweep_file_is_checked_like_the_command_line(lab: Lab) -> None:
    path = lab.folder / "sweep.toml"
    path.write_text("command = 'x {i}'\n[params]\ni = [1]\n[resources]\ngpu_model = ''\n")
    refused(lab.run("sweep", "sweep.toml"), 2, "`gpu_model` must not be empty")
    path.write_text("command = 'x {i}'\n[params]\ni = [1]\n[resources]\nenv = ['NOSUCHVAR']\n")
    message = "`env`: `NOSUCHVAR` is not set in your environment"
    refused(lab.run("sweep", "sweep.toml"), 2, message, "write NOSUCHVAR=VALUE")


def test_gpu_file_that_cannot_be_read_is_refused(lab: Lab) -> None:
    refused(lab.run("run", "--gpu-file", "nope", "true"), 2,
            "cannot read the GPU file `nope`: No such file or directory")  # fmt: skip
    (lab.folder / "gpus").write_text("zero")
    refused(lab.run("run", "--gpu-file", "gpus", "true"), 2,
            "cannot use the GPU file `gpus`: `zero` is not a GPU",
            "write 0,1 or one GPU per line")  # fmt: skip
    (lab.folder / "gpus").write_text("0")
    done = lab.run("run", "--gpu-file", "gpus", "true")
    assert (done.returncode, done.stderr) == (
        0, "warning: `--gpu-file` has no effect: the GPUs of this run cannot change\n"
    )  # fmt: skip


def test_trace_that_cannot_be_replayed_is_refused(lab: Lab) -> None:
    refused(lab.run("simulate", "nope.csv"), 2,
            "cannot read `nope.csv`: No such file or directory")  # fmt: skip
    columns = "required columns: submit_s, duration_s, gpus"
    (lab.folder / "a.csv").write_text("a,b\n1,2\n")
    refused(lab.run("simulate", "a.csv"), 2,
            "`a.csv` is missing the columns duration_s, gpus, submit_s", columns)  # fmt: skip
    (lab.folder / "b.csv").write_text("submit_s,gpus\n1,2\n")
    refused(lab.run("simulate", "b.csv"), 2,
            "`b.csv` is missing the column duration_s", columns)  # fmt: skip
    (lab.folder / "c.csv").write_bytes(b"submit_s,gpus,\xff\n")
    refused(lab.run("simulate", "c.csv"), 2, "cannot read `c.csv`: it is not UTF-8 text")


def test_empty_command_is_refused(lab: Lab) -> None:
    refused(lab.run("submit", ""), 2, "the command is empty")
    refused(lab.run("submit", "", "x"), 2, "the command is empty")
    assert lab.states() == {}


def test_missing_folder_is_refused(lab: Lab) -> None:
    refused(
        lab.run("submit", "-C", "nowhere", "x"),
        2,
        f"the folder `{lab.folder}/nowhere` does not exist",
    )


def test_removed_current_folder_is_refused(lab: Lab) -> None:
    script = f'mkdir gone && cd gone && rmdir ../gone && exec "{sys.executable}" -m stoker "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", "submit", "true"],
        env=lab.env, cwd=lab.folder, capture_output=True, text=True,
    )  # fmt: skip
    refused(done, 2, "the current directory was removed", "change to another directory")


def test_request_for_too_many_gpus_is_refused_with_65(
    lab: Lab, new_lab: Callable[..., Lab]
) -> None:
    done = lab.run("submit", "--gpus", "99", "x")
    assert done.returncode == 65
    assert done.stderr.startswith("error: the job requests 99 GPUs, but this host has 2 GPUs")
    assert done.stderr.endswith("\nhint: use --gpus 2 or fewer\n")
    assert lab.states() == {}
    none = new_lab()
    refused(none.run("submit", "--gpus", "1", "x"), 65,
            "the job requests 1 GPU, but this host has no GPU",
            "use --gpus 0, a job without a GPU")  # fmt: skip


def test_argument_too_long_for_linux_is_refused(lab: Lab) -> None:
    """Such an argument cannot be passed to stoker itself, but a job file can contain it."""
    (lab.folder / "vars").write_text("BIG=" + "x" * 200_000 + "\n")
    refused(lab.run("submit", "--env-file", "vars", "true"), 2,
            "the environment variable `BIG` has more than 128 KiB, the limit of Linux")  # fmt: skip
    (lab.folder / "vars").write_text("".join(f"V{n}={'x' * 100_000}\n" for n in range(20)))
    done = lab.run("submit", "--env-file", "vars", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("error: the environment has ")
    assert done.stderr.endswith(" bytes, more than Linux allows\n")
    assert lab.states() == {}


def test_error_names_the_invalid_line_of_an_env_file(lab: Lab) -> None:
    (lab.folder / "vars").write_text("A=1\nnonsense\n")
    refused(lab.run("submit", "--env-file", "vars", "x"), 2,
            "`--env-file`: line 2 of `vars` is not NAME=VALUE")  # fmt: skip
    (lab.folder / "vars").write_bytes(b"A=1\0\n")
    refused(lab.run("submit", "--env-file", "vars", "x"), 2,
            "`--env-file`: line 1 of `vars` is not NAME=VALUE")  # fmt: skip


@pytest.mark.parametrize("verb", ["show", "log", "wait", "cancel", "hold", "edit", "why"])
@pytest.mark.parametrize("word", ["77", "no-such-name", "@", "99999999999999999999999"])
def test_error_names_the_unknown_job(lab: Lab, verb: str, word: str) -> None:
    name = word if word.isdigit() else f"`{word}`"
    refused(lab.run(verb, word), 1, f"there is no job {name}", "`stoker ls` shows the jobs")


def test_error_names_the_invalid_setting(lab: Lab) -> None:
    settings = lab.folder / "settings.toml"
    settings.write_text("gpus = 4\n")
    done = lab.run("ls")
    assert done.returncode == 2
    text = f"error: unknown setting `gpus` in `{settings}`\nhint: did you mean `devices`?\n"
    assert done.stderr == text
    settings.write_text("xyzzy = 4\n")
    assert "\nhint: known settings: " in lab.run("ls").stderr
    settings.write_text("grace = 'soon'\n")
    refused(lab.run("ls"), 2,
            f"`grace` in `{settings}` has the invalid value `soon`")  # fmt: skip
    settings.write_text("grace = \n")
    assert lab.run("ls").stderr.startswith(f"error: cannot read the settings file `{settings}`: ")
    settings.write_text(f"grace = {'[' * 3000}\n")
    refused(lab.run("ls"), 2, f"the settings file `{settings}` is nested too deeply")
    settings.unlink()
    refused(lab.run("ls", STOKER_CPU_SLOTS="many"), 2,
            "STOKER_CPU_SLOTS has the invalid value `many`")  # fmt: skip


def test_environment_overrides_the_settings_file(lab: Lab) -> None:
    (lab.folder / "settings.toml").write_text("devices = '3'\nretry_delay = '5s'\n")
    del lab.env["STOKER_DEVICES"]
    assert lab.ok().count("simulated") == 3
    assert lab.ok(STOKER_DEVICES="1").count("simulated") == 1


def test_job_is_queued_with_closed_streams(lab: Lab) -> None:
    script = f'exec "{sys.executable}" -m stoker "$@"'
    for closed, code in (("<&-", 0), (">&-", 74), ("2>&-", 0), ("<&- >&- 2>&-", 74)):
        done = subprocess.run(
            ["sh", "-c", f"{script} {closed}", "sh", "submit", "--hold", "true"], env=lab.env
        )
        assert done.returncode == code
    assert set(lab.states().values()) == {"held"}
    assert len(lab.states()) == 4


def test_job_whose_program_is_not_utf8_fails_and_the_next_one_runs(lab: Lab) -> None:
    commands: list[list[str | bytes]] = [
        ["--", b"\x8bno"],
        ["--warm=json", "--", sys.executable, b"\x8bno.py"],
        ["--restartable", "-o", b"/proc/\x8bno/out", "true"],
    ]
    jobs = [lab.run("submit", "-q", *words).stdout.strip() for words in commands]
    assert lab.wait(lab.submit("true")) == 0
    lab.run("wait", *jobs)
    found = [lab.job(int(job)) for job in jobs]
    assert [job["state"] for job in found] == ["failed"] * 3
    assert found[0]["result"] == "\\x8bno: command not found"


def test_state_folder_may_have_a_long_path(lab: Lab) -> None:
    """The path of the state folder may exceed the 108 bytes of a Unix socket address."""
    deep = lab.folder / ("d" * 100) / ("e" * 100)
    lab.env["STOKER_STATE_DIR"] = str(deep)
    lab.state_dir = deep
    job = lab.submit("echo deep")
    assert lab.wait(job) == 0
    assert lab.log(job) == "deep\n"
    assert os.path.isdir(deep)
