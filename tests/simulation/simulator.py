"""Runs the history of one seed: random users, faults and time; checks the invariants."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from stoker.engine.daemon.loop_state import MAX_PAUSE_SECONDS
from stoker.engine.daemon.queue_snapshot import load_snapshot
from stoker.engine.job_settings import JobSettings
from stoker.engine.model import (
    UNCOUNTED,
    Context,
    Dependency,
    Device,
    HostResources,
    JobSpec,
    Request,
)
from stoker.engine.outcome.retry import BACKOFF_CAP_SECONDS
from stoker.engine.policy.decide import MAX_JOBS_PER_GROUP, decide, limit_waiting_jobs
from stoker.engine.policy.preemption import Preemption, plan_preemptions
from stoker.engine.store import changes, edits
from stoker.engine.store.database import FILE_NAME, open_database
from stoker.engine.store.submit import Submission
from stoker.errors import Error
from tests.simulation.checks import Checker, check_estimates, check_no_idle_gpu
from tests.simulation.daemon import SimDaemon, SimHost
from tests.simulation.world import KILL, DaemonDied, RunnerDied, Violation, World

_CONTEXT = Context("/", (), 0o022, "/bin/sh")
_DAY = 86_400.0
_IDLE_CHECKS = 5  # steps


@dataclass(frozen=True)
class Result:
    seed: int
    jobs: int
    steps: int
    counts: Counter[str]


_FIRST_WITH_CORES = 30_000  # hosts of these seeds and higher ones count cores and memory


class Simulator:
    """`preemptible`: the share of jobs that are. Their own random numbers choose them, so that
    the histories of seeds without them stay as they are."""

    def __init__(self, seed: int, folder: str, jobs: int, preemptible: float = 0.0) -> None:
        self.seed = seed
        self._preemptible = preemptible
        self._chance_of_preemptible = Random(f"preemptible {seed}")
        self._own = Random(f"host {seed}")  # other seeds keep their histories
        chance = Random(seed)
        self.world = World(chance)
        self._chance = chance
        self._quota = jobs
        self._fault_rate = chance.choice((0.0, 0.01, 0.03, 0.1))  # probability of a fault per step
        slots = chance.choice((1, 1, 2))
        devices = tuple(Device(i, str(i), slots) for i in range(chance.choice((1, 2, 4, 4))))
        self._gpus = len(devices)
        os.makedirs(folder, exist_ok=True)
        self._users = open_database(folder, durable=False, timeout=0.0)
        self._locker = open_database(folder, durable=False, timeout=0.0)
        self._locked_until: float | None = None
        resources = UNCOUNTED
        if seed >= _FIRST_WITH_CORES:
            resources = HostResources(cores=self._own.randint(1, 8), memory=8, counters=(("a", 2),))
        self._host = SimHost(self.world, folder, devices, chance.randint(1, 4), resources)
        path = os.path.join(folder, FILE_NAME)
        self.checker = Checker(self.world, path, devices, self._host.cpu_slots, resources)
        self._host.on_order = self.checker.check_order
        self._daemon: SimDaemon | None = None
        self._ids: list[int] = []
        self._endless: set[int] = set()
        self._boots = 1
        self.steps = 0

    def run(self) -> Result:
        try:
            while len(self._ids) < self._quota or self._chance.random() > 0.02:
                self._step()
            self._finish_without_faults()
            self.checker.check_database()
        finally:
            self._close()
        return Result(self.seed, len(self._ids), self.steps, self.checker.counts)

    def _close(self) -> None:
        if self._daemon is not None:
            self._daemon.close()
        self._users.close()
        self._locker.close()
        self.checker.close()

    # -- steps -----------------------------------------------------------------------------------

    def _step(self) -> None:
        draw = self._chance.random()
        if draw < 0.07:
            self._act_as_user()
        elif draw < 0.07 + self._fault_rate:
            self._inject_fault()
        elif draw < 0.9 and self._step_a_process():
            pass
        else:
            self._pass_time()
        self._check()

    def _check(self) -> None:
        self.steps += 1
        self.checker.check()
        if self.steps % _IDLE_CHECKS == 0 and self._daemon is not None:
            self._check_idle_devices(self._daemon)

    def _check_idle_devices(self, daemon: SimDaemon) -> None:
        """I8, and I9 for GPUs: no job waits that a freshly loaded snapshot would start."""
        if not daemon.is_working or daemon.has_work():
            return
        now, loop = self.world.clock.mono(), daemon.loop
        snapshot, _ = load_snapshot(
            self._users, now, self.world.clock.wall() - now, loop.gpus.in_order,
            loop.gpus.states, self._host.cpu_slots, MAX_JOBS_PER_GROUP, self._host.resources,
        )  # fmt: skip
        if not snapshot.waiting:
            return
        self.checker.counts["decisions compared"] += 1
        if any(job.request.gpus for job in snapshot.waiting):
            self.checker.counts["GPUs checked"] += 1
        if daemon.without_faults(lambda: loop.is_current):
            known = daemon.without_faults(lambda: loop.snapshot(MAX_JOBS_PER_GROUP))
            check_estimates(known, snapshot)
        limited = limit_waiting_jobs(snapshot)
        plan = decide(limited)
        starts = plan.starts
        self._check_preemptions(daemon, plan_preemptions(limited, plan))
        if not starts:
            return
        missed = daemon.without_faults(loop.missed_starts)
        if missed:
            check_no_idle_gpu(missed, "a fresh snapshot starts them, the daemon does not")
            raise Violation(f"I8: a fresh snapshot starts {missed}, the daemon does not")
        wake = daemon.next_wake()
        longest = MAX_PAUSE_SECONDS if loop.is_paused else 1.0
        if wake is None or wake > now + longest:
            check_no_idle_gpu(starts, f"the daemon sleeps until {wake}")
            raise Violation(f"I8: {starts} could start, and the daemon sleeps until {wake}")

    def _check_preemptions(self, daemon: SimDaemon, asked: tuple[Preemption, ...]) -> None:
        """I10: no job waits for long that others would make room for."""
        wake, now = daemon.next_wake(), self.world.clock.mono()
        longest = MAX_PAUSE_SECONDS if daemon.loop.is_paused else 1.0
        if asked and (wake is None or wake > now + longest):
            raise Violation(f"I10: {asked} could give way, and the daemon sleeps until {wake}")

    def _step_a_process(self) -> bool:
        """Let the daemon or the runner take a step; False if both are idle."""
        daemon, runner = self._daemon, self._host.runner
        busy: list[Callable[[], None]] = []
        if daemon is not None and daemon.has_work():
            busy.append(self._daemon_works)
        if runner is not None and runner.alive and runner.has_work():
            busy.append(self._runner_works)
        if busy:
            self._chance.choice(busy)()
        return bool(busy)

    def _daemon_works(self) -> None:
        assert self._daemon is not None
        try:
            self._daemon.step()
        except DaemonDied:
            self._kill_daemon()

    def _runner_works(self) -> None:
        runner = self._host.runner
        assert runner is not None
        try:
            runner.step()
        except RunnerDied:
            self.world.log("runner dies")
            self.checker.counts["runner deaths"] += 1
            runner.die()

    def _pass_time(self) -> None:
        moment = self._next_event()
        seconds = self._chance.choice((0.001, 0.02, 0.3, 2.0))
        if moment is not None and self._chance.random() < 0.7:
            seconds = max(0.001, moment - self.world.clock.mono())
        self._advance(seconds)

    def _advance(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.world.exit_due_processes()
        if self._locked_until is not None and self._locked_until <= self.world.clock.mono():
            self._unlock()
        if self._daemon is None and self._chance.random() < 0.3:
            self._start_daemon()

    def _next_event(self) -> float | None:
        times = [process.next_change() for process in self.world.live_processes()]
        runner = self._host.runner
        if runner is not None and runner.alive:
            times.append(runner.next_deadline())
        if self._daemon is not None:
            times.append(self._daemon.next_wake())
        times.append(self._locked_until)
        return min((t for t in times if t is not None and t != float("inf")), default=None)

    # -- users -----------------------------------------------------------------------------------

    def _act_as_user(self) -> None:
        weights = {
            self._submit: 40 if len(self._ids) < self._quota else 0,
            self._cancel: 6,
            self._hold: 5,
            self._release: 6,
            self._prioritise: 3,
            self._edit: 4,
            self._rerun: 2,
            self._remove: 3,
            self._drain: 1,
            self._resume: 2,
        }
        action = self._chance.choices(list(weights), list(weights.values()))[0]
        if action != self._submit and not self._ids:
            action = self._submit
        try:
            action()
        except Error as error:
            self.world.log(f"user is refused: {error.message}")

    def _some_ids(self) -> list[int]:
        """Random ids of recent jobs."""
        count = self._chance.choice((1, 1, 1, 3))
        return sorted({self._chance.choice(self._ids[-30:]) for _ in range(count)})

    def _one_id(self) -> int:
        return self._chance.choice(self._ids[-30:])

    def _submit(self) -> None:
        specs = [self._draw_job() for _ in range(self._chance.choice((1, 1, 2, 5)))]
        receipt = Submission(self._users).add(specs, self.world.clock.wall())
        self._acknowledge(receipt.ids)
        for id, spec in zip(receipt.ids, specs, strict=True):
            if spec.held:
                self.checker.held.add(id)
            if spec.argv[0] == "endless" and spec.time_limit is None:
                self._endless.add(id)
        self.world.log(f"user submits {receipt.ids}")
        self._wake()

    def _draw_job(self) -> JobSpec:
        chance, odds = self._chance, self.world.odds
        after: dict[int, Dependency] = {}
        if self._ids and odds(0.3):
            for _ in range(chance.randint(1, 3)):
                needs = self._one_id()
                after[needs] = Dependency(needs, chance.choice(("ok", "any", "notok")))
        limit = chance.choice((0.5, 20.0, 100.0)) if odds(0.3) else None
        endless = odds(0.5) if limit is not None else odds(0.03)
        begin = self.world.clock.wall() + chance.uniform(0, 100) if odds(0.1) else None
        preemptible = self._chance_of_preemptible.random() < self._preemptible
        return JobSpec(
            argv=("endless" if endless else "work", "abc"[len(self._ids) % 3]),
            shell=False,
            context=_CONTEXT,
            request=self._request(
                min(self._gpus, chance.choices((0, 1, 2, 3, 4), (4, 8, 2, 1, 1))[0]), preemptible
            ),
            priority=chance.choice((0, 0, 0, 5, -5)),
            after=tuple(after.values()),
            time_limit=limit,
            settings=JobSettings(
                grace=chance.choice((None, 0.0, 1.0)),
                retries=chance.choice((0, 0, 1, 3)),
                restartable=odds(0.3) or preemptible,
            ),
            begin_at=begin,
            held=odds(0.05),
        )

    def _request(self, gpus: int, preemptible: bool) -> Request:
        cores = self._host.resources.cores
        if cores is None:
            return Request(gpus, preemptible=preemptible)
        own = self._own
        return Request(
            gpus,
            cpus=own.choice((0, 0, 0, 1, min(2, cores), cores)),
            host_memory=own.choice((None, None, 1, 3, 8)),
            needs=own.choice(((), (), ("a=1",), ("a=2",))),
            preemptible=preemptible,
        )

    def _cancel(self) -> None:
        ids = self._some_ids()
        changes.cancel(self._users, ids, self.world.clock.wall(), self._chance.choice((None, 0.0)))
        self.world.log(f"user cancels {ids}")
        self._wake()

    def _hold(self) -> None:
        id = self._one_id()
        if changes.hold(self._users, [id], self.world.clock.wall()):
            self.world.log(f"user holds {id}")
            self.checker.held.add(id)
        self._poke()

    def _release(self) -> None:
        ids = sorted(self.checker.held)
        changes.release(self._users, ids, self.world.clock.wall())
        self.world.log(f"user releases {ids}")
        self.checker.held.clear()
        self._wake()

    def _prioritise(self) -> None:
        priority = self._chance.randint(-9, 9)
        changes.set_priority(self._users, self._some_ids(), priority, self.world.clock.wall())
        self._poke()

    def _edit(self) -> None:
        id = self._one_id()
        values: list[dict[str, object]] = [
            {"gpus": self._chance.randint(0, self._gpus)},
            {"priority": 7, "time_limit": 50.0},
            {"retries": 3},  # never fewer than before: a retry may be due already
        ]
        chosen = self._chance.choice(values)
        edits.edit(self._users, id, chosen, self.world.clock.wall())
        self.world.log(f"user edits {id}: {chosen}")
        self._poke()

    def _rerun(self) -> None:
        old = self._one_id()
        if old in self.checker.removed:
            return  # users cannot select it any more
        new = changes.rerun(self._users, [old], self.world.clock.wall())
        self._acknowledge(new)
        if old in self._endless:
            self._endless.update(new)
        self.world.log(f"user reruns {old} as {new}")
        self._wake()

    def _remove(self) -> None:
        gone = changes.remove(self._users, self._some_ids())
        self.checker.removed.update(gone)
        self.world.log(f"user removes {sorted(gone)}")

    def _drain(self) -> None:
        changes.set_draining(self._users, True)
        self._poke()

    def _resume(self) -> None:
        changes.set_draining(self._users, False)
        self._poke()

    def _acknowledge(self, ids: list[int]) -> None:
        self._ids += ids
        self.checker.acknowledged.update(ids)

    def _poke(self) -> None:
        if self._daemon is not None:
            self._daemon.was_woken = True

    def _wake(self) -> None:
        if self._daemon is None:
            self._start_daemon()
        self._poke()

    # -- faults ----------------------------------------------------------------------------------

    def _inject_fault(self) -> None:
        fault = self._chance.choices(
            (
                self._daemon_will_die,
                self._runner_will_die,
                self._disk_fills,
                self._lock,
                self._clock_jumps,
                self._job_is_killed,
                self._reboot,
            ),
            (8, 5, 4, 4, 2, 2, 1),
        )[0]
        self.checker.counts[fault.__name__.strip("_")] += 1
        fault()

    def _daemon_will_die(self) -> None:
        if self._daemon is not None:
            self._daemon.fuse.left = self._chance.choice((1, self._chance.randint(1, 80)))

    def _runner_will_die(self) -> None:
        runner = self._host.runner
        if runner is not None and runner.alive:
            if self._chance.random() < 0.3:
                self.world.log("runner is killed")
                runner.die()
            else:
                runner.fuse = self._chance.randint(1, 6)

    def _disk_fills(self) -> None:
        if self._daemon is not None:
            self._daemon.disk.writes_left = self._chance.randint(1, 12)

    def _lock(self) -> None:
        """Another process holds the write lock for a while."""
        if self._locked_until is None:
            self._locker.execute("BEGIN IMMEDIATE")
            seconds = self._chance.choice((0.01, 1.0, 20.0))
            self._locked_until = self.world.clock.mono() + seconds
            self.world.log(f"the database is locked for {seconds} s")

    def _unlock(self) -> None:
        self._locker.execute("ROLLBACK")
        self._locked_until = None

    def _clock_jumps(self) -> None:
        seconds = self._chance.choice((-_DAY, -3600.0, -3.0, 3.0, 3600.0, _DAY))
        self.world.clock.jump(seconds)
        self.world.log(f"the wall clock jumps by {seconds}")

    def _job_is_killed(self) -> None:
        live = self.world.live_processes()
        if live:
            self.world.signal(self._chance.choice(live), KILL)

    def _reboot(self) -> None:
        self.world.log("the host reboots")
        if self._locked_until is not None:
            self._unlock()
        if self._host.runner is not None and self._host.runner.alive:
            self._host.runner.die()
        self._boots += 1
        self.world.power_cycle(f"boot-{self._boots}")
        if self._daemon is not None:
            self._kill_daemon()

    def _kill_daemon(self) -> None:
        assert self._daemon is not None
        self.world.log("daemon dies")
        self.checker.counts["daemon deaths"] += 1
        self._daemon.close()
        self._daemon = None

    def _start_daemon(self) -> None:
        self.world.log("daemon starts")
        self._daemon = SimDaemon(self._host)

    # -- the end: without faults, all jobs have to end ---------------------------------------------

    def _finish_without_faults(self) -> None:
        self.world.log("no more faults")
        self.world.is_calm = True
        if self._locked_until is not None:
            self._unlock()
        if self._daemon is not None:
            self._daemon.fuse.left = self._daemon.disk.writes_left = None
            self._daemon.disk.full_until = 0.0
        self._resume()
        self._release()
        for job in sorted(self._endless):
            changes.cancel(self._users, [job], self.world.clock.wall())
        self._wake()
        while True:
            while self._step_a_process():
                self._check()
                if self.steps > 1_000 * self._quota:
                    raise Violation("I6: the daemon keeps working and never finishes")
            if not self.checker.unfinished() and not self.world.live_processes():
                return
            moment = self._next_event()
            if moment is None:
                raise Violation(f"I6: no more events, but jobs are unfinished; {self._stuck()}")
            seconds = max(0.001, moment - self.world.clock.mono())
            if seconds > self._longest_wait():
                raise Violation(f"I6: nothing happens for {seconds} s; {self._stuck()}")
            self._advance(seconds)

    def _longest_wait(self) -> float:
        """Backoffs are capped; only a begin time that a user gave may be later."""
        begin = self._users.value(
            "SELECT min(eligible_at) FROM jobs WHERE state = 'queued' AND blockers = 0"
            " AND attempts = 0"
        )
        wait = 0.0 if begin is None else float(str(begin)) - self.world.clock.wall()
        return max(BACKOFF_CAP_SECONDS, wait) + 10.0

    def _stuck(self) -> str:
        rows = [
            self._users.execute(
                "SELECT id, state, ready, blockers, eligible_at, attempts, attempt, stop_requested"
                " FROM jobs WHERE id = ?",
                (job,),
            ).fetchone()
            for job in self.checker.unfinished()
        ]
        live = [process.attempt for process in self.world.live_processes()]
        return f"unfinished {rows}, running attempts {live}"


def run(seed: int, folder: str, jobs: int = 80, preemptible: float = 0.0) -> Result:
    """Run the history of a seed; raises Violation with the seed and the last events."""
    simulator = Simulator(seed, folder, jobs, preemptible)
    try:
        return simulator.run()
    except Violation as violation:
        last = "\n".join(simulator.world.trace[-25:])
        raise Violation(
            f"seed {seed} with {jobs} jobs, step {simulator.steps}: {violation}\n"
            f"(python -m tests.simulation {seed} {jobs} {preemptible} prints the whole history)\n"
            f"{last}"
        ) from None
