"""What Slurm's commands print, in several versions, and what it means."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from stoker.features.backends.nodes import DOWN, DRAINED, UP
from stoker.features.backends.protocol import (
    ENDED,
    PENDING,
    RUNNING,
    UNKNOWN,
    AllocationRequest,
    Batch,
    Rejected,
    Unreachable,
)
from stoker.features.backends.slurm import commands
from stoker.features.backends.slurm.commands import run_slurm
from stoker.features.backends.slurm.listing import (
    parse_gres,
    parse_nodes,
    parse_queue,
    parse_tasks,
    pending_words,
    status_of,
)
from stoker.features.backends.slurm.slurm_backend import SlurmBackend
from stoker.features.backends.store_allocations import SUBMITTED, Allocation
from tests.engines.fake_slurm import FakeSlurm, errors

_CONFIG = "MaxArraySize            = 1001\nMinJobAge               = 300 sec\n"


@pytest.fixture
def fake(fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Fake programs of Slurm in the PATH of this process."""
    monkeypatch.setenv("PATH", fake_slurm.environment()["PATH"])
    fake_slurm.answer("squeue")
    fake_slurm.answer("scontrol", "show", "config", stdout=_CONFIG)
    fake_slurm.answer("sacct", stderr=errors.NO_ACCOUNTING, code=1)
    return fake_slurm


_NETWORK_ERRORS = (
    errno.ECONNREFUSED, errno.ECONNABORTED, errno.ETIMEDOUT, errno.EPIPE, errno.EHOSTUNREACH,
    errno.ENETUNREACH,
)  # fmt: skip

# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        errors.CONTROLLER_DOWN,
        errors.CONTROLLER_DOWN_SBATCH,
        errors.CONTROLLER_SLOW,
        errors.CONTROLLER_SLOW_SBATCH,
        errors.MUNGE_DOWN,
        errors.DATABASE_DOWN,
        errors.NO_CONFIGURATION,
        errors.CONTROLLER_STOPPED,
        *(f"slurm_load_jobs error: {os.strerror(code)}\n" for code in _NETWORK_ERRORS),
    ],
)
def test_engine_that_does_not_answer_is_unreachable(fake: FakeSlurm, text: str) -> None:
    fake.answer("sbatch", stderr=text, code=1)
    with pytest.raises(Unreachable):
        run_slurm(["sbatch"])


@pytest.mark.parametrize(
    ("text", "is_limit"),
    [
        (errors.INVALID_ACCOUNT, False),
        (errors.INVALID_QOS, False),
        (errors.INVALID_PARTITION, False),
        (errors.INVALID_FEATURE, False),
        (errors.INVALID_ARRAY, False),
        (errors.NOT_AVAILABLE, False),
        (errors.UNKNOWN_OPTION, False),
        (errors.INVALID_TIME, False),
        (errors.ASSOCIATION_LIMIT, True),
        (errors.QOS_LIMIT, True),
    ],
)
def test_request_that_slurm_refuses_is_rejected(fake: FakeSlurm, text: str, is_limit: bool) -> None:
    fake.answer("sbatch", stderr=text, code=1)
    with pytest.raises(Rejected) as caught:
        run_slurm(["sbatch"])
    assert caught.value.is_limit == is_limit
    assert "sbatch:" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_program_that_is_not_installed_or_hangs_is_unreachable(
    fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answer("squeue", hang=True)
    monkeypatch.setattr(commands, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(Unreachable, match="does not answer"):
        run_slurm(["squeue"])
    with pytest.raises(Unreachable, match="`no-such-program` is not installed"):
        run_slurm(["no-such-program"])


def test_own_settings_of_a_user_do_not_change_the_output(
    fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SQUEUE_FORMAT", "SBATCH_PARTITION", "SACCT_FORMAT", "SLURM_CLUSTERS"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/etc/own.conf")
    run_slurm(["squeue"])
    env = fake.calls("squeue")[0].env
    assert env["SLURM_CONF"] == "/etc/own.conf"
    assert env["LC_ALL"] == "C"
    assert not env.keys() & {"SQUEUE_FORMAT", "SBATCH_PARTITION", "SACCT_FORMAT", "SLURM_CLUSTERS"}


# -- listings ------------------------------------------------------------------------------------


def test_listing_of_jobs_is_parsed() -> None:
    text = """\
stoker-aa|12|0-2,5|PENDING|Resources|
stoker-aa|12|3|RUNNING|None|n1
stoker-aa|12|4|COMPLETING|None|n2
other|13|N/A|COMPLETED|None|n1
stoker-bb|14|7|CANCELLED by 1000|None|
slurmctld: a warning
"""
    found = [(one.name, one.array, one.tasks, one.status.state) for one in parse_queue(text)]
    assert found == [
        ("stoker-aa", "12", (0, 1, 2, 5), PENDING),
        ("stoker-aa", "12", (3,), RUNNING),
        ("stoker-aa", "12", (4,), RUNNING),
        ("other", "13", (0,), ENDED),
        ("stoker-bb", "14", (7,), ENDED),
    ]


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("0", [0]),
        ("0-3", [0, 1, 2, 3]),
        ("[1,4-5]", [1, 4, 5]),
        ("0-6:3", [0, 3, 6]),
        ("0-2%1", [0, 1, 2]),
        ("N/A", [0]),
        ("", [0]),
        ("1,3-...", [1, 3]),  # cut by an old version
    ],
)
def test_tasks_of_arrays_are_parsed(text: str, tasks: list[int]) -> None:
    assert list(parse_tasks(text)) == tasks


@pytest.mark.parametrize(
    ("state", "expected", "cause", "is_certain"),
    [
        ("PENDING", PENDING, None, False),
        ("REQUEUE_HOLD", PENDING, None, False),
        ("CONFIGURING", RUNNING, None, False),
        ("SUSPENDED", RUNNING, None, False),
        ("COMPLETED", ENDED, "lost", True),
        ("FAILED", ENDED, "lost", True),
        ("TIMEOUT", ENDED, "time_limit", False),
        ("OUT_OF_MEMORY", ENDED, "host_oom", True),
        ("OUT_OF_ME+", ENDED, "host_oom", True),  # sacct cuts long words
        ("NODE_FAIL", ENDED, "lost", False),
        ("PREEMPTED", ENDED, "preempted", False),
        ("CANCELLED by 0", ENDED, "engine_cancel", False),
        ("CANCELLED+", ENDED, "engine_cancel", False),
        ("BOOT_FAIL", ENDED, "lost", False),
        ("SOMETHING_NEW", UNKNOWN, None, False),
    ],
)
def test_states_of_slurm_are_understood(
    state: str, expected: str, cause: str | None, is_certain: bool
) -> None:
    status = status_of(state, "None", "n1")
    assert (status.state, status.cause, status.is_certain) == (expected, cause, is_certain)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "other jobs in Slurm have a higher priority (Priority)"),
        ("(Resources)", "waits for free resources (Resources)"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[1-3]",
            "a requested node is not available (ReqNodeNotAvail, UnavailableNodes:n[1-3])",
        ),
        ("Some_New_Reason", "Some New Reason"),
    ],
)
def test_reasons_of_slurm_are_put_in_words(reason: str, words: str) -> None:
    assert pending_words(reason) == words


def test_nodes_in_all_states_are_parsed() -> None:
    text = """\
g01|mixed|gpu:a100:4(S:0-1)|gpu:a100:3(IDX:0-2)|64|none
g01|mixed|gpu:a100:4(S:0-1)|gpu:a100:3(IDX:0-2)|64|none
g02|drained*|gpu:h100:8(S:0-1),shard:16|gpu:h100:0(IDX:N/A),shard:0|64|bad fan
g03|draining|gpu:2|gpu:1(IDX:0)|8|bad fan
c01|idle~|(null)|gpu:0|16|none
c02|down*|(null)|gpu:0|16|Not responding
c03|reserved|(null)|gpu:0|16|none
c04|planned|gpu:4|gpu:0|16|none
"""
    nodes = {node.name: node for node in parse_nodes(text)}
    assert [(name, node.gpus, node.used_gpus, node.state) for name, node in nodes.items()] == [
        ("g01", 4, 3, UP),
        ("g02", 8, 0, DRAINED),
        ("g03", 2, 1, DRAINED),
        ("c01", 0, 0, UP),
        ("c02", 0, 0, DOWN),
        ("c03", 0, 0, UP),
        ("c04", 4, 0, UP),
    ]
    assert nodes["g01"].model == "a100"
    assert nodes["g02"].note == "drained: bad fan"
    assert nodes["c02"].note == "down: Not responding"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:4", (4, "")),
        ("gpu:a100:2,gpu:h100:2", (4, "h100")),
        ("gpu:a100:2(S:0,2),mps:100", (2, "a100")),
        ("gres/gpu:3", (3, "")),
        ("gpu:a100_1g.5gb:7(S:0-1)", (7, "a100_1g.5gb")),
        ("(null)", (0, "")),
        ("", (0, "")),
    ],
)
def test_gpus_of_nodes_are_counted(text: str, found: tuple[int, str]) -> None:
    assert parse_gres(text) == found


# -- the backend ---------------------------------------------------------------------------------


def _batch(folder: Path, *tasks: int, **request: Any) -> Batch:
    wanted = AllocationRequest(gpus=1, name="two words")._replace(**request)
    return Batch(token="aa", folder=str(folder), tasks=tasks, request=wanted)


def _allocation(task: int, engine_id: str | None = None) -> Allocation:
    return Allocation(
        id=100 + task, backend="lab", token="aa", task=task, state=SUBMITTED, request="{}",
        engine_id=engine_id or f"12_{task}", node=None, reason=None, position=0, created_at=0.0,
    )  # fmt: skip


def test_allocations_are_requested_as_one_array(fake: FakeSlurm, tmp_path: Path) -> None:
    fake.answer("sbatch", stdout="4711;hpc\n")  # with the name of the cluster
    backend = SlurmBackend("lab", {"partition": "gpu", "gpu-type": "h200", "python": "/my/python"})
    batch = _batch(tmp_path, 0, 1, 2, 5, gpus=2, seconds=61.0, options=("qos=high", "exclusive"))
    assert backend.submit(batch) == {task: f"4711_{task}" for task in (0, 1, 2, 5)}
    call = fake.calls("sbatch")[0]
    options = {"--array=0-2,5", "--partition=gpu", "--qos=high", "--exclusive", "--time=2",
               "--gres=gpu:h200:2", "--no-requeue", "--comment=two words"}  # fmt: skip
    assert options <= set(call.argv)
    assert call.script is not None and "/my/python" in call.script


def test_cores_and_memory_of_a_job_are_requested(fake: FakeSlurm, tmp_path: Path) -> None:
    fake.answer("sbatch", stdout="4711\n")
    backend = SlurmBackend("lab", {"cpus-per-task": "1", "mem-per-cpu": "2G", "cpus-per-gpu": "3"})
    backend.submit(_batch(tmp_path, 0, cpus=8, memory=(3 << 30) + 1))
    backend.submit(_batch(tmp_path, 0))
    with_cores, without = (set(call.argv) for call in fake.calls("sbatch"))
    assert {"--cpus-per-task=8", "--mem=3073M"} <= with_cores
    assert not any(word.startswith(("--mem-per", "--cpus-per-gpu")) for word in with_cores)
    assert {"--cpus-per-task=1", "--mem-per-cpu=2G", "--cpus-per-gpu=3"} <= without


def test_allocations_are_found_again_by_their_token(fake: FakeSlurm) -> None:
    listing = "stoker-aa|12|0|RUNNING|None|n1\nstoker-aa|12|1|PENDING|None|\n"
    fake.answer("squeue", stdout=f"{listing}stoker-ab|13|2|PENDING|None|\n")
    backend = SlurmBackend("lab", {})
    assert backend.adopt("aa") == {0: "12_0", 1: "12_1"}
    assert backend.adopt("ac") == {}


def test_one_listing_answers_for_all_allocations(fake: FakeSlurm) -> None:
    fake.answer("squeue", stdout="stoker-aa|12|0-998|PENDING|Priority|\n")
    found = SlurmBackend("lab", {}).poll([_allocation(task) for task in range(999)])
    assert len(found) == 999
    assert len(fake.calls("squeue")) == 1
    assert fake.calls("sacct") == []


def test_nothing_is_known_of_tasks_that_were_not_printed(fake: FakeSlurm) -> None:
    fake.answer("squeue", stdout="stoker-aa|12|0,3-...|PENDING|Priority|\n")
    found = SlurmBackend("lab", {}).poll([_allocation(task) for task in (0, 3, 9)])
    assert [found[100 + task].state for task in (0, 3, 9)] == [PENDING, PENDING, UNKNOWN]


def test_job_of_another_array_with_the_same_task_is_not_ours(fake: FakeSlurm) -> None:
    fake.answer("squeue", stdout="stoker-aa|99|0|COMPLETED|None|n1\n")
    assert SlurmBackend("lab", {}).poll([_allocation(0)]) == {}


def test_pending_task_that_leaves_its_array_was_cancelled(fake: FakeSlurm) -> None:
    backend = SlurmBackend("lab", {})
    both = [_allocation(0), _allocation(1)]
    fake.answer("squeue", stdout="stoker-aa|12|0-1|PENDING|Priority|\n")
    assert {status.state for status in backend.poll(both).values()} == {PENDING}
    fake.answer("squeue", stdout="stoker-aa|12|0|PENDING|Priority|\n")
    found = backend.poll(both)
    assert (found[100].state, found[101].state) == (PENDING, ENDED)
    assert found[101].cause == "engine_cancel"
    fake.answer("squeue", stdout="")  # the controller has lost its state
    assert backend.poll(both) == {}


def test_accounting_knows_ends_that_the_listing_has_forgotten(fake: FakeSlurm) -> None:
    fake.answer("sacct", stdout="12_0|TIMEOUT|n1\n12_1|CANCELLED by 0|None assigned\n")
    found = SlurmBackend("lab", {}).poll([_allocation(0), _allocation(1), _allocation(2)])
    assert (found[100].cause, found[101].cause) == ("time_limit", "engine_cancel")
    assert 102 not in found


def test_nothing_is_known_while_only_the_accounting_is_down(fake: FakeSlurm) -> None:
    fake.answer("squeue", stdout="stoker-aa|12|0|RUNNING|None|n1\n")
    fake.answer("sacct", stderr=errors.DATABASE_DOWN, code=1)
    found = SlurmBackend("lab", {}).poll([_allocation(0), _allocation(1)])
    assert (found[100].state, found[101].state) == (RUNNING, UNKNOWN)


def test_accounting_is_not_asked_again_where_there_is_none(fake: FakeSlurm) -> None:
    backend = SlurmBackend("lab", {})
    for _ in range(3):
        assert backend.poll([_allocation(0)]) == {}
    assert len(fake.calls("sacct")) == 1


def test_cancel_names_the_tasks_and_ignores_those_that_have_ended(fake: FakeSlurm) -> None:
    fake.answer("scancel", stderr="scancel: error: Kill job error on job id 12_0: Invalid job id "
                "specified\n", code=1)  # fmt: skip
    backend = SlurmBackend("lab", {})
    backend.cancel([_allocation(0), _allocation(1), _allocation(7, "13_7")])
    assert fake.calls("scancel")[0].argv == ["12_[0-1]", "13_[7]"]
    backend.cancel([])
    assert len(fake.calls("scancel")) == 1


@pytest.mark.parametrize(
    ("config", "options", "tasks"),
    [
        ("MaxArraySize = 11\n", {}, 10),
        ("MaxArraySize = 4000001\n", {}, 1000),
        ("MaxArraySize = 1001\n", {"max-jobs": "5"}, 5),
        ("", {}, 1000),
    ],
)
def test_limits_are_those_of_the_cluster_and_of_the_backend(
    fake: FakeSlurm, config: str, options: dict[str, str], tasks: int
) -> None:
    fake.answer("scontrol", "show", "config", stdout=config)
    assert SlurmBackend("lab", options).limits().tasks == tasks


def test_output_of_a_worker_is_its_last_line(tmp_path: Path) -> None:
    backend = SlurmBackend("lab", {})
    assert f"it wrote nothing into {tmp_path}" in backend.worker_output(str(tmp_path), 3)
    (tmp_path / "slurm-3.out").touch()
    assert backend.worker_output(str(tmp_path), 3) == ""
    (tmp_path / "slurm-3.out").write_bytes(b"first\nModuleNotFoundError: \xff\n\n")
    assert (
        backend.worker_output(str(tmp_path), 3) == "ModuleNotFoundError: \N{REPLACEMENT CHARACTER}"
    )
    assert os.listdir(tmp_path) == ["slurm-3.out"]
