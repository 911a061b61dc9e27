"""Decide and claim: what the policy sees, which jobs it starts, and the orders that start them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from stoker.engine.daemon.gpus.gpus import Gpus
from stoker.engine.daemon.interfaces import Clock, EventListener, Host, Parent
from stoker.engine.daemon.launch_order import OrderMaker
from stoker.engine.daemon.loop_state import DECIDE_AGAIN_SECONDS, LoopState
from stoker.engine.daemon.machine_ids import MachineIds
from stoker.engine.daemon.preempter import Preempter
from stoker.engine.daemon.waiting_jobs import WaitingJobs
from stoker.engine.devices.leases.lease import Lease
from stoker.engine.model import MPS, Context, Device, Plan, ReadyJob, RunningJob, Snapshot, Start
from stoker.engine.policy.decide import decide, jobs_per_group
from stoker.engine.policy.host_share import HostLimits, limits_of, recorded_claim, thread_share
from stoker.engine.policy.share_mode import share_of_start
from stoker.engine.store import attempts, events, meta
from stoker.engine.store.attempts import Claim
from stoker.engine.store.database import Database
from stoker.engine.store.profiles import Profiles
from stoker.engine.supervisor.messages import Order
from stoker.testing.failpoints import failpoint

# The id of an attempt is on its processes and in the journal, so it is never used again, even if
# its row is removed; ids are reserved in the database in blocks.
_ATTEMPTS_RESERVED = 1000


class JobStarter:
    """`running`: the loop's attempts that were claimed and have not ended."""

    def __init__(
        self,
        db: Database,
        state: LoopState,
        *,
        running: dict[int, RunningJob],
        waiting: WaitingJobs,
        profiles: Profiles,
        gpus: Gpus,
        orders: OrderMaker,
        preempter: Preempter,
        host: Host,
        clock: Clock,
        next_attempt: int,
    ) -> None:
        self._db = db
        self._state = state
        self._running = running
        self._waiting = waiting
        self._profiles = profiles
        self._gpus = gpus
        self._order_maker = orders
        self._preempter = preempter
        self._host = host
        self._clock = clock
        self._next_attempt = next_attempt
        self._reserved = 0  # ids below this may be used: the reservation is committed
        self._reserving: range | None = None
        self._orders: list[tuple[Order, Context, Lease]] = []  # claimed, not yet launched
        self.machines = MachineIds(db)
        self.limits: dict[str, int] = {}  # running jobs allowed, by fair-share group
        self.is_draining = False
        self.takes_work = True
        self.clock_offset = 0.0  # wall clock less monotonic clock
        # The last decision, for readers of its reasons; None if no job waits.
        self.decision: tuple[Snapshot, Plan] | None = None
        self.revision = 0  # counts decisions, and changes that may need one

    def snapshot(self, depth: int | None = None) -> Snapshot:
        """What the policy sees: all running jobs, the first few of each request group.

        `depth`: how many of each group; None: as many as a decision considers.
        """
        if depth is None:
            depth = jobs_per_group(
                self._waiting.requests(),
                self._gpus.devices,
                self._running.values(),
                self._host.cpu_slots,
            )
        waiting = self._waiting.first(depth, self.clock_offset)
        running = self._running.values()
        profiles = {job.profile for job in running} | {job.profile for job in waiting}
        return Snapshot(
            now=self._clock.mono(),
            devices=self._gpus.in_order,
            cpu_slots=self._host.cpu_slots,
            running=tuple(running),
            waiting=tuple(waiting),
            draining=self.is_draining or not self.takes_work,
            states=self._gpus.states,
            limits=self.limits,
            estimates=self._profiles.estimates(profiles),
            resources=self._host.resources,
        )

    def _decide(self) -> tuple[Snapshot, Plan]:
        snapshot = self.snapshot()
        self.decision = snapshot, decide(snapshot, with_reasons=False)
        self.revision += 1
        return self.decision

    def would_start(self) -> bool:
        """Whether the policy would start a job now."""
        return bool(self._decide()[1].starts)

    def reconsider(self, now: float) -> None:
        """Find out whether a job can start now only because time has passed."""
        state = self._state
        if state.decide_at is not None and state.decide_at <= now:
            state.may_start = (
                state.may_start or self.would_start() or self._preempter.would_ask(self.snapshot)
            )
            state.decide_at = now + DECIDE_AGAIN_SECONDS if self._waiting else None

    def claim_jobs(self) -> None:
        """Claim every job that can start now, each with its devices."""
        state = self._state
        if state.claims_wait:
            state.claims_wait, state.may_start = False, True
        if not state.may_start:
            return
        self.revision += 1
        if self._clock.mono() < state.paused_until or not self._reserve_ids():
            return
        state.paused_until, state.may_start, state.decide_at = 0.0, False, None
        self.decision = None
        # Again until nothing starts: a request group may have more jobs than the policy saw, a
        # lease may be refused, and every start changes which fair-share group has least.
        while self._waiting:
            snapshot, plan = self._decide()
            starts = self._preempter.allowed_starts(snapshot, plan)
            if not starts and plan.starts:
                self.decision = snapshot, plan._replace(starts=())
                if self._gpus.demands():  # of other users, which may end without an event
                    state.decide_at = self._clock.mono() + DECIDE_AGAIN_SECONDS
                break
            claimed = self._claim_all(starts)
            is_done = claimed == len(plan.starts) and not plan.has_room
            if state.is_stale or state.claims_wait or is_done:
                break
            if not plan.starts:
                if self._waiting:
                    state.decide_at = self._clock.mono() + DECIDE_AGAIN_SECONDS
                break
        self._gpus.drop_unused_waiter()
        if not state.is_stale and not state.claims_wait:
            self._preempter.ask(self.snapshot)

    def _reserve_ids(self) -> bool:
        """Reserve more attempt ids when few are left; False when none may be used yet."""
        if self._next_attempt + _ATTEMPTS_RESERVED // 2 > self._reserved and self._waiting:
            # Drivers of backends take ids too, so the blocks of this process have gaps.
            first = max(self._next_attempt, attempts.next_attempt(self._db))
            self._reserving = range(first, first + _ATTEMPTS_RESERVED)
            meta.set_meta(self._db, "next_attempt", self._reserving.stop)
            self._state.claims_wait = True  # the ids may be used after the commit
            return self._next_attempt < self._reserved
        return True

    def _claim_all(self, starts: Iterable[Start]) -> int:
        claimed = 0
        for start in starts:
            if self._next_attempt >= self._reserved:
                self._state.claims_wait = True
                break
            claimed += self._claim(start)
        return claimed

    def _claim(self, start: Start) -> bool:
        job = self._waiting.find(start.job)
        gpus = self._gpus
        share = share_of_start(job.request, start.devices, gpus.devices, gpus.states)
        session = gpus.join_server(job.request, start.devices[0]) if share else None
        if share and session is None:
            return False  # MPS is being started, or does not work; the GPU's state says so now
        lease = gpus.lease(job.request, start.devices)
        if lease is None:
            if session is not None:
                os.close(session.descriptor)
            return False  # leased to another process of this host; the GPU's state says so now
        if session is not None:
            lease.descriptors.append(session.descriptor)
        cpus, host_memory = recorded_claim(job.request, self._host_limits())
        by_number = {device.number: device for device in self._gpus.devices}
        devices = tuple(by_number[number] for number in start.devices)
        claim = Claim(
            attempt=self._next_attempt,
            job=job.id,
            number=job.attempts + 1,
            devices=start.devices,
            memory=job.request.memory,
            at=self._clock.wall(),
            boot=self._host.boot,
            cpus=cpus,
            host_memory=host_memory,
            share=share,
            machine=self.machines.of(devices),
        )
        if not attempts.claim(self._db, claim):
            lease.close()
            self._state.is_stale = True  # should not happen under the write lock; reload
            return False
        self._waiting.take(job)
        self._next_attempt += 1
        self._running[claim.attempt] = _running_job(job, claim, self._clock.mono())
        failpoint("daemon.after_claim")
        cores, threads = self._host.resources.cores, None
        if cores is not None:
            threads = thread_share(job.request, devices, self._gpus.devices, cores)
        order, context = self._order_maker.make(job, claim, devices, threads, self._clock.mono())
        if session is not None:
            order = order._replace(env={**order.env, **session.env})
        elif devices:
            self._leave_mps(job, devices)
        has_several = "," in order.env["STOKER_GPUS"]  # also if one device stands for two GPUs
        if self._host.leases_ports and has_several and "MASTER_PORT" not in order.env:
            order = self._with_port(order, context, lease)
        self._orders.append((order, context, lease))
        return True

    def _leave_mps(self, job: ReadyJob, devices: tuple[Device, ...]) -> None:
        """A job starts without MPS; if it should use it, say once why it does not."""
        servers = self._gpus.servers
        for device in devices:
            servers.leave(device.uuid)
        request, device = job.request, devices[0]
        is_asked = request.gpus == 1 and not request.exclusive and not job.attempts
        if is_asked and (request.share or device.share).startswith(MPS):
            why = servers.problem(device.uuid) or "it does not work on this GPU"
            text = f"MPS is not used: {why}; the job shares its GPU by time slices"
            events.record_event(self._db, job.id, self._clock.wall(), "share", text)

    def _host_limits(self) -> HostLimits:
        return limits_of(self._host.resources, self._host.cpu_slots, self._gpus.devices)

    def _with_port(self, order: Order, context: Context, lease: Lease) -> Order:
        """Give a job with several GPUs a port for its rendezvous, unless it has its own."""
        own = dict(context.env)
        if "MASTER_PORT" in own:
            return order
        from stoker.engine.devices.leases.port_lease import take_port
        from stoker.engine.supervisor.distributed import rendezvous_environment

        port, held = take_port()
        if held is not None:
            lease.descriptors.append(held)
        added = rendezvous_environment(own.get("MASTER_ADDR", "127.0.0.1"), port)
        added = {key: value for key, value in added.items() if key not in own}
        return order._replace(env={**added, **order.env})

    def committed(self) -> None:
        """The claims are in the database, and so is the reservation of ids."""
        if self._reserving is not None:
            self._next_attempt, self._reserved = self._reserving.start, self._reserving.stop
            self._reserving = None

    def rolled_back(self) -> None:
        """The claims of this tick did not happen."""
        self._reserving = None
        for order, _, lease in self._orders:
            del self._running[order.attempt]
            lease.close()
        self._orders.clear()

    def launch(self, parent: Parent, listener: EventListener) -> None:
        """Order the starts of committed claims."""
        for order, context, lease in self._orders:
            listener.starting(order.job, order.devices)
            parent.launch(order, context, lease.descriptors)
            failpoint("daemon.after_launch")
            listener.ordered(order.job, order.devices)
        self._orders.clear()


def _running_job(job: ReadyJob, claim: Claim, now: float) -> RunningJob:
    request = job.request
    if request.host_memory != claim.host_memory:
        request = request._replace(host_memory=claim.host_memory)
    return RunningJob(
        id=job.id,
        attempt=claim.attempt,
        request=request,
        devices=claim.devices,
        started=now,
        ends_by=None if job.time_limit is None else now + job.time_limit,
        fair_share_group=job.fair_share_group,
        profile=job.profile,
        cpus=claim.cpus,
        preemptions=job.preemptions,
        gives_way=False,
        share=claim.share,
    )
