"""The invariants, checked after every step against the simulated processes.

Triggers in the simulated database record every state change in an audit table, so the checks see
every change, even several between two checks.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import Any

from stoker.engine.job_settings import settings_from_json
from stoker.engine.model import UNCOUNTED, Device, HostResources, Snapshot, Start
from stoker.engine.outcome.retry import MAX_LOST_RETRIES
from stoker.engine.policy.preemption import MIN_RUN_SECONDS
from stoker.engine.supervisor.messages import Order
from stoker.states import FINAL, TABLE, is_satisfied
from tests.simulation.world import Process, Violation, World

_AUDIT = """
CREATE TABLE audit (id INTEGER PRIMARY KEY, job, old, new, attempt);
CREATE TABLE audit_ends (id INTEGER PRIMARY KEY, attempt, job, status, cause, ended_at);
CREATE TABLE audit_asked (id INTEGER PRIMARY KEY, attempt, job);
CREATE TABLE audit_met (id INTEGER PRIMARY KEY, job, needs, condition);
CREATE TRIGGER audit_insert AFTER INSERT ON jobs
  BEGIN INSERT INTO audit VALUES (NULL, new.id, NULL, new.state, NULL); END;
CREATE TRIGGER audit_update AFTER UPDATE OF state ON jobs WHEN old.state <> new.state
  BEGIN INSERT INTO audit VALUES (NULL, new.id, old.state, new.state, new.attempt); END;
CREATE TRIGGER audit_delete AFTER DELETE ON jobs
  BEGIN INSERT INTO audit VALUES (NULL, old.id, old.state, NULL, old.attempt); END;
CREATE TRIGGER audit_end AFTER UPDATE OF cause ON attempts
  BEGIN INSERT INTO audit_ends
    VALUES (NULL, new.id, new.job, new.status, new.cause, new.ended_at); END;
CREATE TRIGGER audit_ask AFTER UPDATE OF asked_at ON attempts WHEN old.asked_at IS NULL
  BEGIN INSERT INTO audit_asked VALUES (NULL, new.id, new.job); END;
CREATE TRIGGER audit_dependency AFTER UPDATE OF met ON dependencies
  BEGIN INSERT INTO audit_met VALUES (NULL, new.job, new.needs, new.condition); END;
"""
_EDGES = {(state, target) for state, moves in TABLE.items() for target in moves.values()}


def check_no_idle_gpu(starts: Iterable[Start], detail: str) -> None:
    """I9: no GPU has room for a job that waits. `starts`: those that the daemon does not make."""
    on_gpus = [start for start in starts if start.devices]
    if on_gpus:
        jobs = ", ".join(str(start.job) for start in on_gpus)
        gpus = ", ".join(str(one) for one in sorted({n for s in on_gpus for n in s.devices}))
        raise Violation(f"I9: GPU {gpus} is idle while job {jobs} may run there: {detail}")


def check_estimates(known: Snapshot, fresh: Snapshot) -> None:
    """I8: the loop and readers of the database have the same estimates."""
    ours = known.estimates
    for profile in {job.profile for job in (*known.waiting, *known.running)}:
        if ours.of(profile) != fresh.estimates.of(profile):
            raise Violation(
                f"I8: the estimate of profile {profile} is {ours.of(profile)} for the daemon, and"
                f" {fresh.estimates.of(profile)} for readers"
            )


class Checker:
    def __init__(
        self,
        world: World,
        path: str,
        devices: tuple[Device, ...],
        cpu_slots: int,
        resources: HostResources = UNCOUNTED,
    ) -> None:
        self._world = world
        self._slots = {device.number: device.slots for device in devices}
        self._cpu_slots = cpu_slots
        self._resources = resources
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.executescript(_AUDIT)
        self._version: int | None = None  # of the database, at the last check
        self._seen = {"audit": 0, "audit_ends": 0, "audit_met": 0, "audit_asked": 0}
        self._ordered_at: dict[int, float] = {}  # by attempt
        self.acknowledged: set[int] = set()
        self.removed: set[int] = set()
        self.held: set[int] = set()  # held by a user
        self.state: dict[int, str] = {}
        self._spawned: dict[int, list[Process]] = {}  # by job
        self._by_attempt: dict[int, Process] = {}
        self._met: set[tuple[int, int]] = set()
        self.counts: Counter[str] = Counter()
        world.on_spawn = self._check_spawn

    def close(self) -> None:
        self._db.close()

    # -- on events -----------------------------------------------------------------------------

    def check_order(self, order: Order) -> None:
        """Check an order of the loop."""
        self.check()  # commits earlier in the same step
        self.counts["orders"] += 1
        self._ordered_at[order.attempt] = self._world.clock.mono()
        self._check_kept(order)
        self._world.log(f"  ordered attempt {order.attempt} of job {order.job} on {order.devices}")
        if order.job in self.held:
            raise Violation(
                f"job {order.job} is held by a user, and attempt {order.attempt} starts"
            )
        used = self._by_attempt.get(order.attempt)
        if used is not None:
            raise Violation(f"attempt id {order.attempt} was used before, by job {used.job}")
        for needs, condition in self._db.execute(
            "SELECT needs, condition FROM dependencies WHERE job = ?", (order.job,)
        ):
            state = self.state.get(needs)
            if needs not in self.removed and (state is None or not is_satisfied(state, condition)):
                raise Violation(f"job {order.job} starts, but {needs}:{condition} is {state}")

    def _check_kept(self, order: Order) -> None:
        """I10: GPUs that are vacated for a job are not used by another one."""
        for job, kept in self._db.execute(
            "SELECT id, kept FROM jobs WHERE kept IS NOT NULL AND ready = 1 AND id <> ?",
            (order.job,),
        ):
            taken = set(map(int, kept.split(","))) & set(order.devices)
            if any(self._slots[number] == 1 for number in taken):
                raise Violation(f"I10: job {order.job} starts on GPUs {taken}, kept for job {job}")

    def _check_asked(self, attempt: int, job: int) -> None:
        """I10: only preemptible jobs are asked to give way, again only after they have run."""
        self.counts["preemptions"] += 1
        row = self._db.execute(
            "SELECT g.preemptible, j.preemptions FROM jobs j"
            " JOIN request_groups g ON g.id = j.request_group WHERE j.id = ?",
            (job,),
        ).fetchone()
        if row is None:
            return
        preemptible, preemptions = row
        if not preemptible:
            raise Violation(f"I10: job {job} is asked to give way and not preemptible")
        ran = self._world.clock.mono() - self._ordered_at.get(attempt, float("-inf"))
        if preemptions and ran < MIN_RUN_SECONDS:
            self.counts["asked early"] += 1
            raise Violation(f"I10: attempt {attempt} is asked to give way again after {ran} s")

    def _check_spawn(self, new: Process) -> None:
        """Check a new process: I1, I4."""
        self.counts["spawns"] += 1
        if new.attempt in self._by_attempt:
            raise Violation(f"I1: attempt {new.attempt} runs a second time")
        before = self._spawned.setdefault(new.job, [])
        if before:
            self._check_rerun(new, before)
        live = self._world.live_processes()
        use = Counter(index for process in live for index in process.devices)
        for index in new.devices:
            if use[index] >= self._slots[index]:
                holders = [p.attempt for p in live if index in p.devices]
                raise Violation(f"I4: gpu {index} has {holders} and now attempt {new.attempt}")
        if not new.devices and sum(not p.devices for p in live) >= self._cpu_slots:
            raise Violation(f"I4: no CPU slot is free for attempt {new.attempt}")
        self._check_host_room(new, live)
        before.append(new)
        self._by_attempt[new.attempt] = new

    def _check_host_room(self, new: Process, live: list[Process]) -> None:
        """Check that cores, memory and counters are not over-committed: I4."""
        if self._resources.cores is None:
            return
        cores, memory, counter = 0.0, 0, 0
        for process in (*live, new):
            row = self._db.execute(
                "SELECT a.cpus, a.host_claim, g.needs FROM attempts a JOIN jobs j ON j.id = a.job"
                " JOIN request_groups g ON g.id = j.request_group WHERE a.id = ?",
                (process.attempt,),
            ).fetchone()
            if row is not None:  # the claim of an order that was not committed is gone
                cores += row[0] or 0.0
                memory += row[1] or 0
                counter += int(row[2].partition(b"=")[2] or 0)
        has_room = cores <= self._resources.cores + 1e-9 and memory <= (self._resources.memory or 0)
        if not has_room or counter > dict(self._resources.counters)["a"]:
            raise Violation(
                f"I4: attempt {new.attempt} over-commits the host: {cores} cores, {memory} bytes,"
                f" {counter} of a counter"
            )
        self.counts["host claims checked"] += 1

    def _check_rerun(self, new: Process, before: list[Process]) -> None:
        causes = dict(
            self._db.execute("SELECT id, cause FROM attempts WHERE job = ?", (new.job,)).fetchall()
        )
        gave_way = sum(causes.get(one.attempt) == "preempted" for one in before)
        last, runs = before[-1], len(before) - gave_way
        if last.alive:
            raise Violation(f"I1: job {new.job} runs twice: attempts {last.attempt}, {new.attempt}")
        if causes.get(last.attempt) == "preempted":
            return
        row = self._db.execute("SELECT settings FROM jobs WHERE id = ?", (new.job,)).fetchone()
        settings = settings_from_json(row and row[0])
        retries, restartable = settings.retries, settings.restartable
        has_succeeded = last.status == 0 and last.attempt in self._world.known_ends
        if has_succeeded or not (
            (restartable and runs <= max(MAX_LOST_RETRIES, retries))
            or (last.status and runs <= retries)
        ):
            raise Violation(
                f"I1: job {new.job} runs again as attempt {new.attempt} after {runs} runs, the last"
                f" with status {last.status} (retries {retries}, restartable {restartable})"
            )

    # -- after every step ------------------------------------------------------------------------

    def check(self) -> None:
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version == self._version:  # there was no commit
            return
        self._version = version
        for job, old, new, attempt in self._new_rows("audit", "job, old, new, attempt"):
            self._check_change(job, old, new, attempt)
        for end in self._new_rows("audit_ends", "attempt, job, status, cause, ended_at"):
            self._check_end(*end)
        for attempt, job in self._new_rows("audit_asked", "attempt, job"):
            self._check_asked(attempt, job)
        for job, needs, condition in self._new_rows("audit_met", "job, needs, condition"):
            if (job, needs) in self._met:
                raise Violation(f"the dependency of job {job} on {needs} was met twice")
            self._met.add((job, needs))
            if not is_satisfied(self.state[needs], condition):
                raise Violation(f"{needs}:{condition} was met by state {self.state[needs]}")

    def _check_change(
        self, job: int, old: str | None, new: str | None, attempt: int | None
    ) -> None:
        self._world.log(f"  job {job}: {old} -> {new}")
        if new is None:
            if job not in self.removed:
                raise Violation(f"I2: job {job} vanished")
            del self.state[job]
            return
        self.state[job] = new
        if old is None:
            return
        if old in FINAL:
            raise Violation(f"job {job} left its final state: {old} -> {new}")
        if (old, new) not in _EDGES:
            raise Violation(f"job {job} made an illegal move: {old} -> {new}")
        if new in FINAL:
            self._check_final(job, new, attempt)

    def _check_final(self, job: int, state: str, attempt: int | None) -> None:
        self.held.discard(job)
        for process in self._spawned.get(job, []):
            if process.alive:
                raise Violation(
                    f"I5: job {job} is {state} while attempt {process.attempt} is alive"
                )
        last = self._by_attempt.get(attempt or 0)
        if state == "done" and (last is None or last.status != 0):
            raise Violation(f"I3: job {job} is done, but its status is {last and last.status}")

    def _check_end(
        self, attempt: int, job: int, status: int | None, cause: str, ended_at: float
    ) -> None:
        process = self._by_attempt.get(attempt)
        if process is None:
            if cause not in ("start_failed", "lost", "user"):
                raise Violation(f"I3: attempt {attempt} never ran, but has cause {cause}")
        elif process.alive:
            raise Violation(f"I5: attempt {attempt} has an end ({cause}) and is alive")
        elif status is None:
            if cause not in ("lost", "user", "time_limit", "preempted"):
                raise Violation(f"I3: attempt {attempt} has cause {cause} and no status")
            if attempt in self._world.known_ends:
                raise Violation(f"I3: attempt {attempt} is {cause}, but the journal had its end")
        elif (status, ended_at) != (process.status, process.ended_at):
            raise Violation(
                f"I3: attempt {attempt} of job {job} is recorded with {status} at {ended_at},"
                f" the process had {process.status} at {process.ended_at}"
            )

    def _new_rows(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        rows = self._db.execute(
            f"SELECT id, {columns} FROM {table} WHERE id > ? ORDER BY id", (self._seen[table],)
        ).fetchall()
        if rows:
            self._seen[table] = rows[-1][0]
        return [row[1:] for row in rows]

    # -- at the end ------------------------------------------------------------------------------

    def unfinished(self) -> list[int]:
        return [job for job, state in self.state.items() if state not in FINAL]

    def check_database(self) -> None:
        """Check the tables as a whole: I2, I7, attempts, blockers."""
        jobs = {row[0]: row[1:] for row in self._db.execute("SELECT id, attempts FROM jobs")}
        if set(jobs) != self.acknowledged - self.removed:
            raise Violation(f"I2: {self.acknowledged - self.removed ^ set(jobs)} differ")
        numbers: dict[int, list[int]] = {job: [] for job in jobs}
        ids = set()
        for id, job, number in self._db.execute("SELECT id, job, number FROM attempts ORDER BY id"):
            numbers[job].append(number)
            ids.add(id)
        for job, (attempts,) in jobs.items():
            if numbers[job] != list(range(1, attempts + 1)):
                raise Violation(f"job {job} has {attempts} attempts, and rows {numbers[job]}")
        for attempt, process in self._by_attempt.items():
            if attempt not in ids and process.job in jobs:
                raise Violation(f"attempt {attempt} of job {process.job} ran and has no row")
        wrong = self._db.execute(
            "SELECT id FROM jobs WHERE preemptions <> (SELECT count(*) FROM attempts a"
            " WHERE a.job = jobs.id AND a.cause = 'preempted')"
        ).fetchall()
        if wrong:
            raise Violation(f"I10: jobs {wrong} have a wrong number of preemptions")
        wrong = self._db.execute(
            "SELECT id FROM jobs WHERE state IN ('held', 'queued') AND blockers <> (SELECT count(*)"
            " FROM dependencies d WHERE d.job = jobs.id AND met = 0)"
        ).fetchall()
        if wrong:
            raise Violation(f"jobs {wrong} have a wrong number of blockers")
        result = self._db.execute("PRAGMA integrity_check").fetchone()[0]
        if result != "ok":
            raise Violation(f"I7: {result}")
