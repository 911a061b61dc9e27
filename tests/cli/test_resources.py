"""Cores, memory and counters of the host: options, limits and views."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import Lab

GIB = 1 << 30


@pytest.fixture
def host(new_lab: Callable[..., Lab]) -> Lab:
    """A host with 4 cores, 8 GiB of memory, two licences and one GPU."""
    return new_lab(
        devices=1, STOKER_CORES="4", STOKER_CPU_SLOTS="4", STOKER_MEMORY="8G",
        STOKER_RESOURCES="licence=2",
    )  # fmt: skip


def is_running(lab: Lab, *jobs: int) -> bool:
    return all(lab.state(job) == "running" for job in jobs)


def a_long_job(lab: Lab, *flags: str) -> int:
    job = lab.submit(*flags, "--", "sleep", "600")
    lab.wait_until(lambda: is_running(lab, job))
    return job


def test_jobs_wait_for_cores(host: Lab) -> None:
    first = a_long_job(host, "--gpus", "0", "--cpus", "3")
    second = host.submit("--gpus", "0", "--cpus", "2", "true")
    small = host.submit("--gpus", "0", "true")
    why = host.ok("why", str(second))
    assert "it waits for 2 cores; 1 of 4 are free" in why
    assert f"job {first} uses the others" in why
    assert f"1 of 4 are free, reserved for job {second}, which comes first" in host.ok(
        "why", str(small)
    )
    host.ok("cancel", str(first))
    assert host.wait(second) == 0


def test_gpu_job_waits_for_its_cores(host: Lab) -> None:
    busy = a_long_job(host, "--gpus", "0", "--cpus", "3")
    job = host.submit("--cpus", "2", "true")
    assert "it waits for 2 cores; 1 of 4 are free" in host.ok("why", str(job))
    assert f"start now with 1 core: stoker edit {job} --cpus 1" in host.ok("why", str(job))
    host.ok("edit", str(job), "--cpus", "1")
    assert host.wait(job) == 0
    assert is_running(host, busy)


def test_jobs_wait_for_memory(host: Lab) -> None:
    first = a_long_job(host, "--gpus", "0", "--mem", "6G")
    second = host.submit("--gpus", "0", "--mem", "3G", "true")
    unlimited = host.submit("--gpus", "0", "--time-limit", "1h", "true")
    assert host.wait(unlimited) == 0
    why = host.ok("why", str(second))
    assert "it waits for 3.0 GiB of memory; 2.0 GiB of 8.0 GiB are free" in why
    host.ok("cancel", str(first))
    assert host.wait(second) == 0


def test_jobs_wait_for_counters(host: Lab) -> None:
    first = a_long_job(host, "--gpus", "0", "--need", "licence=2")
    second = host.submit("--gpus", "0", "--need", "licence", "true")
    assert "it waits for 1 licence; 0 of 2 are free" in host.ok("why", str(second))
    host.ok("cancel", str(first))
    assert host.wait(second) == 0


def test_counters_are_read_from_the_settings_file(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    Path(lab.env["STOKER_SETTINGS"]).write_text("[resources]\nlicence = 1\n")
    first = a_long_job(lab, "--need", "licence=1")
    second = lab.submit("--need", "licence=1", "true")
    assert "0 of 1 are free" in lab.ok("why", str(second))
    lab.ok("cancel", str(first))
    assert lab.wait(second) == 0


@pytest.mark.parametrize("value", ["licence=x", "a b=1", "licence"])
def test_invalid_counters_in_the_settings_are_refused(lab: Lab, value: str) -> None:
    done = lab.run("ls", STOKER_RESOURCES=value)
    assert done.returncode == 2
    assert f"STOKER_RESOURCES has the invalid value `{value}`" in done.stderr


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        (("--cpus", "5"), "the job requests 5 cores, but this host has 4", "use --cpus 4 or less"),
        (("--mem", "9G"), "the job requests 9.0 GiB of memory, but this host has 8.0 GiB",
         "use --mem 8G or less"),
        (("--need", "other=1"), "there is no counter `other` on this host",
         "counters: licence; define it: stoker config set resources.other 1"),
        (("--need", "licence=3"), "the job needs 3 of `licence`, but this host has 2",
         "use --need licence=2 or less"),
    ],
)  # fmt: skip
def test_request_larger_than_the_host_is_refused(
    host: Lab, flags: tuple[str, ...], message: str, hint: str
) -> None:
    for verb in ("submit", "run"):
        done = host.run(verb, *flags, "true")
        assert done.returncode == 65
        assert f"error: {message}\nhint: {hint}\n" in done.stderr
    assert json.loads(host.ok("ls", "--json"))["jobs"] == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--cpus", "0"), "`--cpus` must be 1 or more"),
        (("--cpus", "x"), "`--cpus`"),
        (("--mem", "12"), "12 B is too small"),
        (("--need", "licence=0"), "`licence=0` is not the amount of a counter"),
        (("--need", "a/b=1"), "`a/b=1` is not the amount of a counter"),
    ],
)
def test_invalid_amounts_are_refused(host: Lab, flags: tuple[str, ...], message: str) -> None:
    done = host.run("submit", *flags, "true")
    assert done.returncode == 2
    assert message in done.stderr


def test_edit_to_more_than_the_host_has_is_refused(host: Lab) -> None:
    job = host.submit("--hold", "true")
    done = host.run("edit", str(job), "--cpus", "9")
    assert done.returncode == 65
    assert "the job requests 9 cores, but this host has 4" in done.stderr
    host.ok("edit", str(job), "--cpus", "2", "--mem", "1G")
    assert (host.job(job)["cpus"], host.job(job)["mem_bytes"]) == (2, GIB)
    host.ok("edit", str(job), "--cpus", "0", "--mem", "0")
    assert (host.job(job)["cpus"], host.job(job)["mem_bytes"]) == (None, None)


def test_views_show_what_is_reserved(host: Lab) -> None:
    job = a_long_job(host, "--cpus", "2", "--mem", "1536M", "--need", "licence=1")
    expected = "2 of 4 cores, 1.5 GiB of 8.0 GiB of memory and 1 of 2 licence reserved"
    assert expected in host.ok("status")
    assert expected in host.ok("gpus")
    for verb in ("status", "gpus"):
        shown = json.loads(host.ok(verb, "--json"))["host"]
        assert shown == {
            "cores": 4, "cores_reserved": 2.0, "memory_bytes": 8 * GIB,
            "memory_reserved_bytes": 3 * GIB // 2,
            "counters": {"licence": {"total": 2, "reserved": 1}}, "words": expected,
        }  # fmt: skip
    shown = host.job(job)
    assert shown["cpus"] == 2
    assert shown["mem_bytes"] == 3 * GIB // 2
    assert shown["need"] == {"licence": 1}
    assert shown["reserves"] == "2 cores, 1.5 GiB of memory, 1 licence"
    assert (shown["claim_cpus"], shown["claim_mem_bytes"]) == (2.0, 3 * GIB // 2)
    assert "2 cores, 1.5 GiB of memory, 1 licence" in host.ok("show", str(job))


def test_job_without_options_claims_one_core(host: Lab) -> None:
    job = a_long_job(host)
    shown = host.job(job)
    assert (shown["cpus"], shown["claim_cpus"], shown["claim_mem_bytes"]) == (None, 1.0, None)
    assert "1 of 4 cores reserved" in host.ok("status")


def test_jobs_of_a_file_have_their_own_resources(host: Lab) -> None:
    file = host.folder / "jobs.txt"
    file.write_text("true  #stoker --cpus 2 --need licence\ntrue  #stoker --mem 1G\n")
    host.ok("submit", "--gpus", "0", "--file", str(file))
    first, second = json.loads(host.ok("ls", "--state", "all", "--json"))["jobs"]
    assert (first["cpus"], first["need"]) == (2, {"licence": 1})
    assert (second["cpus"], second["mem_bytes"]) == (None, GIB)
    assert host.wait() == 0


def test_dry_run_shows_the_resources(host: Lab) -> None:
    flags = ("--gpus", "0", "--cpus", "2", "--mem", "auto", "--need", "licence=1")
    shown = host.ok("submit", "--dry-run", *flags, "true")
    assert "no GPU, 2 cores, memory (auto), 1 licence" in shown
    job = json.loads(host.ok("submit", "--dry-run", "--json", *flags, "true"))["dry_run"][0]
    assert (job["cpus"], job["mem_bytes"], job["mem_auto"]) == (2, None, True)
    assert job["need"] == {"licence": 1}


def test_rerun_keeps_the_resources(host: Lab) -> None:
    job = host.submit("--gpus", "0", "--cpus", "2", "--mem", "1G", "--need", "licence", "true")
    assert host.wait(job) == 0
    host.ok("rerun", str(job))
    assert host.wait() == 0
    assert host.job(job + 1)["reserves"] == host.job(job)["reserves"]


def test_foreground_run_respects_the_cores(host: Lab) -> None:
    """Two jobs with 3 of 4 cores do not run at the same time."""
    step = "test ! -e busy && touch busy && sleep 0.2 && test -e busy && rm busy"
    file = host.folder / "jobs.txt"
    file.write_text(f"{step}\n{step}\n{step}\n")
    done = host.run("run", "--gpus", "0", "--cpus", "3", str(file))
    assert done.returncode == 0, done.stderr


def test_auto_memory_is_learned_from_earlier_runs(host: Lab) -> None:
    command = "python3 -c \"x = bytearray(300 << 20); x[::4096] = b'1' * len(x[::4096])\" "
    first = host.submit("--gpus", "0", "--mem", "auto", command + "1")
    assert host.wait(first) == 0
    shown = host.job(first)
    assert shown["mem_auto"] and shown["claim_mem_bytes"] == 2 * GIB  # a fair part: 8 GiB / 4
    second = host.submit("--gpus", "0", "--mem", "auto", command + "2")
    assert host.wait(second) == 0
    assert 300 << 20 < host.job(second)["claim_mem_bytes"] < GIB


NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SHOW_THREADS = 'echo "' + " ".join(f"${{{name}-unset}}" for name in NAMES) + '"'


@pytest.mark.parametrize(
    ("flags", "env", "expected"),
    [
        (("--gpus", "0"), {}, "1 1 1"),
        (("--gpus", "0", "--cpus", "3"), {}, "3 3 3"),
        (("--gpus", "1"), {}, "4 4 4"),
        (("--gpus", "0", "--cpus", "3"), {"OMP_NUM_THREADS": "7"}, "7 unset unset"),
        (("--gpus", "0", "--cpus", "3"), {"MKL_NUM_THREADS": ""}, "3  3"),
        (("--gpus", "0", "--cpus", "3", "--env", "OMP_NUM_THREADS=2"), {}, "2 unset unset"),
    ],
)
def test_libraries_use_as_many_threads_as_the_share(
    host: Lab, flags: tuple[str, ...], env: dict[str, str], expected: str
) -> None:
    job = host.submit(*flags, SHOW_THREADS, **env)
    assert host.wait(job) == 0
    assert host.log(job) == f"{expected}\n"
    host.env |= env
    run = host.run("run", "--stream", *flags, SHOW_THREADS)
    assert run.stdout.strip("\n") == expected


def test_job_that_is_submitted_by_a_job_has_its_own_share(host: Lab) -> None:
    stoker = f"{sys.executable} -m stoker submit --gpus 0 --cpus 2 '{SHOW_THREADS}'"
    outer = host.submit("--gpus", "0", "--cpus", "3", stoker)
    assert host.wait(outer) == 0
    assert host.wait(outer + 1) == 0
    assert host.log(outer + 1) == "2 2 2\n"


def test_sweep_passes_the_resources_to_its_trials(host: Lab) -> None:
    file = host.folder / "sweep.toml"
    file.write_text(
        "command = 'echo {x}'\n[params]\nx = [1, 2]\n"
        "[resources]\ngpus = 0\ncpus = 2\nmem = '1G'\nneed = ['licence=1']\n"
    )
    host.ok("sweep", str(file))
    assert host.wait() == 0
    jobs = json.loads(host.ok("ls", "--state", "all", "--json"))["jobs"]
    assert [job["reserves"] for job in jobs] == ["2 cores, 1.0 GiB of memory, 1 licence"] * 2
