"""Leases between real processes, with real locks."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.engine.devices.leases.holders import DeviceClaim, Holder
from stoker.engine.devices.leases.lease import (
    Lease,
    Waiter,
    first_waiters,
    holders,
    take_patiently,
    try_take,
)
from stoker.errors import Impossible, NoPermission, TryLater
from tests.engine.devices.lease_actor import LeaseActor
from tests.engine.devices.lease_table import GPUS, ROWS, LeaseTable
from tests.lab import wait_until

GIB = 1 << 30
TOTAL = 80 * GIB
NOBODY = 65534
_PCI_DEVICES = sorted(Path("/sys/bus/pci/devices").glob("*"))

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")
needs_pci = pytest.mark.skipif(not _PCI_DEVICES, reason="no PCI device here")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of a lease folder that does not exist yet and that all users can access."""
    above = Path(tempfile.mkdtemp(prefix="stoker-test-", dir="/tmp"))
    above.chmod(0o1777)
    path = above / "leases"
    monkeypatch.setenv("STOKER_LEASE_DIR", str(path))
    yield path
    shutil.rmtree(above)


@pytest.fixture
def new_actor() -> Iterator[Callable[..., LeaseActor]]:
    """Starts other processes, which are killed after the test."""
    actors: list[LeaseActor] = []

    def make(uid: int | None = None) -> LeaseActor:
        actors.append(LeaseActor(uid))
        return actors[-1]

    yield make
    for actor in actors:
        actor.kill()


@pytest.fixture
def new_waiter() -> Iterator[Callable[..., Waiter]]:
    waiters: list[Waiter] = []

    def make(*claims: DeviceClaim) -> Waiter:
        waiters.append(Waiter(claims))
        return waiters[-1]

    yield make
    for waiter in waiters:
        waiter.cancel()


def whole(uuid: str = "gpu-0") -> DeviceClaim:
    return DeviceClaim(uuid, "", False, TOTAL, None)


def part(amount: int, uuid: str = "gpu-0") -> DeviceClaim:
    return DeviceClaim(uuid, "", False, TOTAL, amount)


def gpu(uuid: str = "gpu-0") -> tuple[str, str, bool]:
    return (uuid, "", False)


def taken(*claims: DeviceClaim) -> Lease:
    lease = try_take(claims)
    assert lease is not None
    return lease


def is_free(*claims: DeviceClaim) -> bool:
    lease = try_take(claims)
    if lease is not None:
        lease.close()
    return lease is not None


def received(waiter: Waiter) -> Lease:
    """Wait until the waiter has its lease."""
    select.select([waiter], [], [])
    lease = waiter.take()
    assert lease is not None, waiter.error
    return lease


def blocked() -> set[int]:
    """The processes that wait for a flock, as the kernel lists them."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return {int(fields[5]) for fields in lines if fields[1] == "->" and fields[2] == "FLOCK"}


def is_blocked(pid: int) -> Callable[[], bool]:
    return lambda: pid in blocked()


def is_gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def descriptors() -> list[str]:
    return os.listdir("/proc/self/fd")


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


# -- one GPU -------------------------------------------------------------------------------------


def test_whole_gpu_has_one_holder(new_actor: Callable[..., LeaseActor]) -> None:
    one, other = new_actor(), new_actor()
    assert one.do("try", "it", [whole()])
    assert not other.do("try", "it", [whole()])
    one.do("close", "it")
    assert other.do("try", "it", [whole()])


def test_whole_gpu_and_a_part_of_it_exclude_each_other(
    new_actor: Callable[..., LeaseActor],
) -> None:
    one, other = new_actor(), new_actor()
    assert one.do("try", "it", [part(1)])
    assert not other.do("try", "it", [whole()])
    one.do("close", "it")
    assert other.do("try", "it", [whole()])
    assert not one.do("try", "it", [part(1)])


def test_parts_fill_the_gpu_to_the_last_byte_and_not_beyond(
    new_actor: Callable[..., LeaseActor],
) -> None:
    one, other = new_actor(), new_actor()
    assert one.do("try", "a", [part(30 * GIB)])
    assert other.do("try", "b", [part(30 * GIB - 1)])
    assert not other.do("try", "c", [part(20 * GIB + 2)])
    assert other.do("try", "c", [part(20 * GIB + 1)])
    assert not one.do("try", "d", [part(1)])
    assert one.do("try", "nothing", [part(0)])
    other.do("close", "b")
    assert one.do("try", "d", [part(30 * GIB - 1)])


def test_memory_of_processes_without_a_lease_is_not_leased() -> None:
    lease = taken(part(30 * GIB))
    assert try_take([part(30 * GIB)], {"gpu-0": 20 * GIB + 1}) is None
    second = try_take([part(30 * GIB)], {"gpu-0": 20 * GIB, "gpu-1": TOTAL})
    assert second is not None
    second.close()
    lease.close()


def test_more_than_a_gpu_has_is_never_granted_and_never_waited_for() -> None:
    assert try_take([part(TOTAL + 1)]) is None
    with pytest.raises(Impossible):
        Waiter([part(TOTAL + 1)])


def test_full_table_of_holders_refuses_the_next() -> None:
    lease = [taken(part(0)) for _ in range(256)]
    assert len(holders([gpu()])) == 256
    assert try_take([part(0)]) is None
    lease.pop(100).close()
    lease.append(taken(part(0)))
    for each in lease:
        each.close()


def test_refusal_leaves_no_descriptor_behind() -> None:
    lease = taken(whole())
    before = descriptors()
    assert try_take([whole("gpu-1"), whole()]) is None
    assert try_take([part(TOTAL + 1)]) is None
    assert descriptors() == before
    lease.close()
    lease.close()


# -- several GPUs --------------------------------------------------------------------------------


def test_several_gpus_are_leased_together_or_not_at_all() -> None:
    lease = taken(whole("gpu-1"))
    assert try_take([whole("gpu-0"), whole("gpu-1"), whole("gpu-2")]) is None
    rest = taken(whole("gpu-0"), whole("gpu-2"))
    lease.close()
    rest.close()


def test_descriptors_come_in_the_order_of_the_claims(folder: Path) -> None:
    lease = taken(whole("b"), part(1, "c"), whole("a"))
    inodes = [os.fstat(descriptor).st_ino for descriptor in lease.descriptors]
    assert inodes == [(folder / name).stat().st_ino for name in "bca"]
    assert not any(os.get_inheritable(descriptor) for descriptor in lease.descriptors)
    lease.close()


def test_gpu_cannot_be_claimed_twice_in_one_lease() -> None:
    with pytest.raises(ValueError, match="twice"):
        try_take([part(1), part(2)])


def test_claims_in_opposite_orders_never_deadlock(new_actor: Callable[..., LeaseActor]) -> None:
    one, other = new_actor(), new_actor()
    claims = [whole("gpu-0"), part(1, "gpu-1"), whole("gpu-2")]
    one.ask("rounds", 500, claims)
    other.ask("rounds", 500, claims[::-1])
    assert one.answer() == other.answer() == 500


# -- waiting -------------------------------------------------------------------------------------


def test_free_gpu_is_received_at_once(new_waiter: Callable[..., Waiter]) -> None:
    waiter = new_waiter(whole("gpu-1"), whole())
    lease = received(waiter)
    assert not any(os.get_inheritable(descriptor) for descriptor in lease.descriptors)
    assert try_take([whole()]) is None
    assert waiter.take() is None and not waiter.is_dead and waiter.fileno() == -1
    assert is_gone(waiter.pid)
    lease.close()
    taken(whole(), whole("gpu-1")).close()


def test_waiter_has_no_lease_until_the_holder_leaves(new_waiter: Callable[..., Waiter]) -> None:
    lease = taken(whole())
    waiter = new_waiter(whole())
    wait_until(is_blocked(waiter.pid))
    assert waiter.take() is None and not waiter.is_dead
    lease.close()
    received(waiter).close()


def test_waiters_are_served_in_the_order_they_came(new_waiter: Callable[..., Waiter]) -> None:
    lease = taken(whole())
    line: list[Waiter] = []
    for _ in range(6):
        line.append(new_waiter(whole() if len(line) % 2 else part(TOTAL)))
        wait_until(is_blocked(line[-1].pid))
    while line:
        lease.close()
        lease = received(line.pop(0))
        assert not select.select(line, [], [], 0)[0]
    lease.close()


def test_sharers_cannot_starve_a_waiter_for_the_whole_gpu(
    new_actor: Callable[..., LeaseActor], new_waiter: Callable[..., Waiter]
) -> None:
    sharers = [new_actor(), new_actor()]
    assert sharers[0].do("try", "share", [part(GIB)])
    waiter = new_waiter(whole())
    wait_until(is_blocked(waiter.pid))
    for turn in range(100):
        here, there = sharers[turn % 2], sharers[1 - turn % 2]
        is_passed_on = there.do("try", "share", [part(GIB)])
        here.do("close", "share")
        if not is_passed_on:
            break
    else:
        pytest.fail("the sharers never release their leases at the same time")
    received(waiter).close()


def test_sharer_behind_a_waiter_for_the_whole_gpu_comes_after_it(
    new_waiter: Callable[..., Waiter],
) -> None:
    lease = taken(part(GIB))
    first, second = new_waiter(whole()), None
    wait_until(is_blocked(first.pid))
    second = new_waiter(part(GIB))
    wait_until(is_blocked(second.pid))
    lease.close()
    lease = received(first)
    assert second.take() is None
    lease.close()
    received(second).close()


def test_waiter_for_memory_gets_it_when_enough_is_free(new_waiter: Callable[..., Waiter]) -> None:
    leases = [taken(part(30 * GIB)), taken(part(30 * GIB))]
    waiter = new_waiter(part(60 * GIB))
    wait_until(lambda: first_waiters([gpu()]))
    assert try_take([part(1)]) is None, "another process overtook the waiter"
    leases.pop().close()
    assert waiter.take() is None
    leases.pop().close()
    lease = received(waiter)
    assert holders([gpu()]) == [Holder("gpu-0", os.getuid(), os.getpid(), 60 * GIB)]
    lease.close()


def test_cancelled_waiter_opens_the_gate(new_waiter: Callable[..., Waiter]) -> None:
    lease = taken(part(GIB))
    waiter = new_waiter(whole())
    wait_until(is_blocked(waiter.pid))
    assert try_take([part(GIB)]) is None
    waiter.cancel()
    assert is_gone(waiter.pid)
    taken(part(GIB)).close()
    waiter.cancel()
    assert waiter.take() is None and not waiter.is_dead
    lease.close()


def test_helper_that_was_stopped_can_be_cancelled(new_waiter: Callable[..., Waiter]) -> None:
    waiter = new_waiter(whole())
    os.kill(waiter.pid, signal.SIGSTOP)
    waiter.cancel()
    assert is_gone(waiter.pid)
    taken(whole()).close()


def test_lease_that_arrived_and_was_not_taken_is_given_back_by_cancel(
    new_waiter: Callable[..., Waiter],
) -> None:
    waiter = new_waiter(whole())
    select.select([waiter], [], [])
    assert try_take([whole()]) is None
    waiter.cancel()
    taken(whole()).close()


def test_helper_that_is_killed_is_noticed(new_waiter: Callable[..., Waiter]) -> None:
    lease = taken(whole())
    before = descriptors()
    waiter = new_waiter(whole())
    wait_until(is_blocked(waiter.pid))
    os.kill(waiter.pid, signal.SIGKILL)
    select.select([waiter], [], [])
    assert waiter.take() is None and waiter.is_dead
    assert is_gone(waiter.pid) and descriptors() == before
    lease.close()


def test_helper_reaped_elsewhere_is_not_an_error(
    new_waiter: Callable[..., Waiter],
) -> None:
    waiters = [new_waiter(whole(name)) for name in "ab"]
    for waiter in waiters:
        select.select([waiter], [], [])
        assert os.waitpid(waiter.pid, 0) == (waiter.pid, 0)
    received(waiters[0]).close()
    waiters[1].cancel()
    taken(whole("b")).close()


def test_helper_ends_with_the_process_that_waits(new_actor: Callable[..., LeaseActor]) -> None:
    lease = taken(part(GIB))
    actor = new_actor()
    helper = actor.do("wait", "it", [whole()])
    wait_until(is_blocked(helper))
    actor.kill()
    wait_until(lambda: is_free(part(GIB)))
    lease.close()


def test_process_without_free_descriptors_gets_try_later() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before, kin = descriptors(), children()
    free = max(map(int, before)) + 1
    Waiter([whole()]).cancel()  # imports everything that it needs
    for room in range(4):
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + room, limits[1]))
        try:
            waiter = Waiter([whole()])
        except TryLater:
            pass
        else:
            waiter.cancel()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert descriptors() == before and children() == kin


def test_helper_reports_why_it_cannot_wait(folder: Path, new_waiter: Callable[..., Waiter]) -> None:
    folder.mkdir(0o777)
    folder.chmod(0o777)
    waiter = new_waiter(whole())
    select.select([waiter], [], [])
    assert waiter.take() is None and waiter.is_dead
    assert waiter.error is not None and "remove each other's files" in waiter.error


def test_first_waiter_is_named(new_waiter: Callable[..., Waiter]) -> None:
    assert first_waiters([gpu()]) == []
    lease = taken(part(GIB))
    new_waiter(whole())
    me = Holder("gpu-0", os.getuid(), os.getpid(), None)
    wait_until(lambda: first_waiters([gpu()]) == [me])
    lease.close()


# -- lifetime ------------------------------------------------------------------------------------


def test_lease_outlives_its_taker_and_ends_with_the_last_child(
    new_actor: Callable[..., LeaseActor],
) -> None:
    actor = new_actor()
    assert actor.do("try", "it", [whole(), part(GIB, "gpu-1")])
    child = actor.do("start_child", "it")
    try:
        actor.kill()
        assert is_gone(actor.pid)
        assert try_take([whole()]) is None
        assert holders([gpu(), gpu("gpu-1")]) == [
            Holder("gpu-0", os.getuid(), actor.pid, None),
            Holder("gpu-1", os.getuid(), actor.pid, GIB),
        ]
    finally:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: not holders([gpu(), gpu("gpu-1")]))
    taken(whole(), whole("gpu-1")).close()


def test_lease_of_a_killed_process_is_free() -> None:
    with LeaseActor() as actor:
        assert actor.do("try", "it", [whole()])
    taken(whole()).close()


def test_lease_that_was_waited_for_can_be_inherited(new_waiter: Callable[..., Waiter]) -> None:
    lease = received(new_waiter(whole()))
    child = subprocess.Popen(["sleep", "600"], pass_fds=lease.descriptors)
    lease.close()
    assert try_take([whole()]) is None
    child.kill()
    child.wait()
    taken(whole()).close()


# -- holders -------------------------------------------------------------------------------------


@needs_root
def test_holders_names_user_process_and_amount(new_actor: Callable[..., LeaseActor]) -> None:
    gpus = [gpu(f"gpu-{number}") for number in range(3)]
    assert holders(gpus) == []
    nobody, other_user = new_actor(NOBODY), new_actor(4294967294)
    assert nobody.do("try", "a", [part(5 * GIB), whole("gpu-1")])
    assert other_user.do("try", "b", [part(GIB + 7)])
    lease = taken(part(0))
    assert sorted(holders(gpus)) == [
        Holder("gpu-0", 0, os.getpid(), 0),
        Holder("gpu-0", NOBODY, nobody.pid, 5 * GIB),
        Holder("gpu-0", 4294967294, other_user.pid, GIB + 7),
        Holder("gpu-1", NOBODY, nobody.pid, None),
    ]
    lease.close()


def test_reading_holders_creates_and_locks_nothing(folder: Path) -> None:
    taken(whole()).close()
    names = sorted(os.listdir(folder))
    before = descriptors()
    assert holders([gpu(), gpu("unknown")]) == first_waiters([gpu("unknown")]) == []
    assert sorted(os.listdir(folder)) == names and descriptors() == before


@needs_root
def test_users_share_a_gpu_regardless_of_the_order(
    new_actor: Callable[..., LeaseActor], folder: Path
) -> None:
    mask = os.umask(0o077)
    try:
        nobody, daemon = new_actor(NOBODY), new_actor(1)
    finally:
        os.umask(mask)
    assert nobody.do("try", "a", [part(50 * GIB)]) is True
    assert daemon.do("try", "b", [part(40 * GIB)]) is False
    assert daemon.do("try", "b", [part(30 * GIB)]) is True
    assert daemon.do("try", "c", [whole("gpu-1")]) is True
    assert nobody.do("try", "c", [whole("gpu-1")]) is False
    assert try_take([part(GIB)]) is None
    assert (folder / "gpu-0").stat().st_uid == NOBODY
    assert (folder / "gpu-1").stat().st_uid == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    daemon.do("close", "b")
    taken(part(30 * GIB)).close()


# -- hostile folders -----------------------------------------------------------------------------


@pytest.fixture
def victim(folder: Path) -> Path:
    path = folder.parent / "victim"
    path.write_text("precious")
    path.chmod(0o600)
    return path


def _facts(path: Path) -> tuple[int, ...]:
    info = path.lstat()
    return info.st_ino, info.st_mode, info.st_nlink, info.st_uid, info.st_mtime_ns, info.st_ctime_ns


def _plant(kind: str, path: Path, victim: Path) -> None:
    if kind == "symlink":
        path.symlink_to(victim)
    elif kind == "dangling":
        path.symlink_to(victim.parent / "missing")
    elif kind == "hard link":
        path.hardlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("name", ["gpu-0", "gpu-0.gate"])
@pytest.mark.parametrize("kind", ["symlink", "dangling", "hard link", "fifo", "folder"])
def test_link_or_fifo_in_place_of_a_lock_file_is_refused(
    kind: str, name: str, folder: Path, victim: Path
) -> None:
    taken(whole("other")).close()
    _plant(kind, folder / name, victim)
    before, facts = descriptors(), _facts(victim)
    for attempt in (
        lambda: try_take([whole()]),
        lambda: take_patiently([part(1)], 1),
        lambda: [*holders([gpu()]), *first_waiters([gpu()])],
    ):
        with pytest.raises(NoPermission, match=name):
            attempt()
    assert descriptors() == before
    assert victim.read_text() == "precious"
    assert _facts(victim) == facts and not (victim.parent / "missing").exists()


@needs_root
def test_lock_file_that_others_may_not_open_is_an_error_and_not_a_wait(
    folder: Path, new_actor: Callable[..., LeaseActor]
) -> None:
    taken(whole()).close()
    (folder / "gpu-0").chmod(0)
    answer = new_actor(NOBODY).do("try", "it", [whole()])
    assert "gpu-0" in answer and "is not readable" in answer


@pytest.mark.parametrize("name", ["gpu-0", "gpu-0.gate"])
@pytest.mark.parametrize("is_made_anew", [True, False])
def test_lock_file_that_was_replaced_during_the_wait_is_noticed(
    is_made_anew: bool, name: str, folder: Path, new_waiter: Callable[..., Waiter]
) -> None:
    taken(whole()).close()
    with open(folder / name) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiter = new_waiter(whole())
        wait_until(is_blocked(waiter.pid))
        (folder / name).unlink()
        if is_made_anew:
            (folder / name).touch()
    lease = received(waiter)
    assert os.path.samestat(os.fstat(lease.descriptors[0]), (folder / "gpu-0").stat())
    assert try_take([whole()]) is None
    lease.close()
    taken(whole()).close()


def test_folder_where_users_can_remove_each_others_files_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(NoPermission, match="remove each other's files"):
        try_take([whole()])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777


def test_link_in_place_of_the_folder_is_refused(folder: Path) -> None:
    target = folder.parent / "target"
    target.mkdir()
    folder.symlink_to(target)
    with pytest.raises(NoPermission, match="not a folder"):
        try_take([whole()])
    assert os.listdir(target) == []


def test_error_about_a_folder_that_cannot_be_created_is_clear(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("STOKER_LEASE_DIR", str(folder / "missing" / "deeper"))
    with pytest.raises(NoPermission, match="cannot create the lease folder"):
        try_take([whole()])


def test_lock_files_stay_empty_and_read_only(folder: Path) -> None:
    lease = taken(whole(), part(GIB, "MIG-GPU-1/7/0"))
    for descriptor in lease.descriptors:
        assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    lease.close()
    assert sorted(os.listdir(folder)) == [
        *("MIG-GPU-1_7_0", "MIG-GPU-1_7_0.gate", "gpu-0", "gpu-0.gate"),
    ]
    for path in folder.iterdir():
        assert path.stat().st_size == 0 and stat.S_IMODE(path.stat().st_mode) == 0o444


# -- sysfs ---------------------------------------------------------------------------------------


@needs_pci
@needs_root
def test_gpu_on_the_pci_bus_needs_no_folder(
    folder: Path, new_actor: Callable[..., LeaseActor], new_waiter: Callable[..., Waiter]
) -> None:
    pci = _PCI_DEVICES[0].name
    claim = DeviceClaim("GPU-1", pci, False, TOTAL, 50 * GIB)
    rest = claim._replace(amount=30 * GIB)
    nobody = new_actor(NOBODY)
    assert nobody.do("try", "it", [claim])
    assert try_take([claim]) is None
    lease = taken(rest)
    assert sorted(holders([("GPU-1", pci, False)])) == [
        Holder("GPU-1", 0, os.getpid(), 30 * GIB),
        Holder("GPU-1", NOBODY, nobody.pid, 50 * GIB),
    ]
    waiter = new_waiter(claim._replace(amount=None))
    wait_until(is_blocked(waiter.pid))
    nobody.do("close", "it")
    assert nobody.do("try", "it", [claim]) is False
    lease.close()
    received(waiter).close()
    assert not folder.exists()


@needs_pci
def test_slice_of_a_gpu_on_the_pci_bus_has_a_lock_of_its_own(folder: Path) -> None:
    pci = _PCI_DEVICES[0].name
    slices = [DeviceClaim(f"MIG-{name}", pci, True, TOTAL, None) for name in "ab"]
    lease, second = taken(slices[0]), taken(slices[1])
    assert try_take([slices[0]]) is None
    assert holders([("MIG-b", pci, True)]) == [Holder("MIG-b", os.getuid(), os.getpid(), None)]
    lease.close()
    second.close()


# -- all at once ---------------------------------------------------------------------------------


def test_concurrent_leases_never_exceed_the_memory_of_a_gpu(
    folder: Path, new_actor: Callable[..., LeaseActor]
) -> None:
    path = str(folder.parent / "lease-table")
    table = LeaseTable(path)
    table.clear()
    total = 1000
    gpus = [DeviceClaim(uuid, "", False, total, None) for uuid in GPUS]
    actors = [new_actor() for _ in range(ROWS)]
    for row, actor in enumerate(actors):
        actor.ask("stress", path, row, 600, gpus)
    seen: set[str] = set()
    answers = select.poll()
    for actor in actors:
        answers.register(actor.fileno(), select.POLLIN)
    while len(answers.poll(0)) < ROWS:
        seen |= table.check(total)
    had = [actor.answer() for actor in actors]
    assert all(each["shared"] and each["whole"] for each in had)
    assert seen == {"shared", "whole"}
    assert holders([gpu(uuid) for uuid in GPUS]) == []
    taken(*(whole(uuid) for uuid in GPUS)).close()
