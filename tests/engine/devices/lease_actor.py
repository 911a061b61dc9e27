"""A process that takes leases on request: `LeaseActor` in the test, `_play` in the process.

with LeaseActor() as actor:
    assert actor.do("try", "mine", [claim])
    actor.do("close", "mine")
"""

from __future__ import annotations

import codecs
import json
import os
import random
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from stoker.engine.devices.leases.holders import DeviceClaim
from stoker.engine.devices.leases.lease import Lease, Waiter, take_patiently, try_take
from stoker.errors import Error
from tests.engine.devices.lease_table import LeaseTable

_ROOT = Path(__file__).parents[3]


class LeaseActor:
    def __init__(self, uid: int | None = None) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.engine.devices.lease_actor",
                "" if uid is None else str(uid),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            text=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> LeaseActor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType
    ) -> None:
        self.kill()

    def do(self, verb: str, *words: object) -> Any:
        """Send a request to the process and return its result."""
        self.ask(verb, *words)
        return self.answer()

    def ask(self, verb: str, *words: object) -> None:
        assert self._process.stdin is not None
        print(json.dumps([verb, *words]), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the actor is dead"
        return json.loads(line)

    def fileno(self) -> int:
        """Readable when the process has answered."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def kill(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


class _Play:
    """One method for each request."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.waiters: dict[str, Waiter] = {}

    def do_try(self, name: str, claims: list[list[Any]]) -> bool | str:
        try:
            lease = try_take(_claims(claims))
        except Error as error:
            return str(error)
        if lease is not None:
            self.leases[name] = lease
        return lease is not None

    def do_close(self, name: str) -> None:
        self.leases.pop(name).close()

    def do_wait(self, name: str, claims: list[list[Any]]) -> int:
        self.waiters[name] = Waiter(_claims(claims))
        return self.waiters[name].pid

    def do_receive(self, name: str) -> bool:
        """Wait until the lease is taken."""
        waiter = self.waiters.pop(name)
        select.select([waiter], [], [])
        lease = waiter.take()
        if lease is not None:
            self.leases[name] = lease
        return lease is not None

    def do_start_child(self, name: str) -> int:
        """Start a job that inherits the lease and holds it until it exits."""
        child = subprocess.Popen(["sleep", "600"], pass_fds=self.leases[name].descriptors)
        return child.pid

    def do_rounds(self, rounds: int, claims: list[list[Any]]) -> int:
        for _ in range(rounds):
            take_patiently(_claims(claims), os.getpid()).close()
        return rounds

    def do_stress(self, path: str, row: int, rounds: int, gpus: list[list[Any]]) -> dict[str, int]:
        """Random leases, each entered in the table while it is held."""
        chance = random.Random(row)
        table = LeaseTable(path)
        had = {"shared": 0, "whole": 0, "refused": 0}
        for _ in range(rounds):
            claims = [
                gpu._replace(amount=_random_amount(chance, gpu.total))
                for gpu in chance.sample(_claims(gpus), chance.choice((1, 1, 1, 2, 3)))
            ]
            if chance.random() < 0.5:
                lease = take_patiently(claims, os.getpid())
            else:
                taken = try_take(claims)
                if taken is None:
                    had["refused"] += 1
                    os.sched_yield()
                    continue
                lease = taken
            for claim in claims:
                had["whole" if claim.amount is None else "shared"] += 1
            table.enter(row, {claim.uuid: claim.amount for claim in claims})
            for _ in range(chance.randrange(20)):
                os.sched_yield()
                table.check(claims[0].total)
            table.enter(row, {})
            lease.close()
        return had


def _random_amount(chance: random.Random, total: int) -> int | None:
    return None if chance.random() < 0.15 else chance.randint(0, total * 2 // 3)


def _claims(claims: Sequence[Sequence[Any]]) -> list[DeviceClaim]:
    return [DeviceClaim(*fields) for fields in claims]


def _play(uid: str) -> None:
    if uid:
        codecs.lookup("unicode_escape")  # another user may not be able to read root's Python
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
    play = _Play()
    for line in sys.stdin:
        verb, *words = json.loads(line)
        print(json.dumps(getattr(play, f"do_{verb}")(*words)), flush=True)


if __name__ == "__main__":
    _play(sys.argv[1])
