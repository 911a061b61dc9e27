"""An explicit-state model of how one job is started, recorded, recovered and cancelled.

Every step of the daemon, the runner, the job and a user is a rule; a crash can happen between any
two. `search` explores all orders of steps, breadth first, so that it finds a shortest
counterexample. A `Design` changes single decisions of the protocol; the tests show that the model
detects the wrong ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

ACTIVE = ("starting", "running", "stopping")
FINAL = ("done", "failed", "cancelled", "lost")
TERM = 15  # the status of a job that was terminated


@dataclass(frozen=True)
class Design:
    commits_before_order: bool = True  # the claim is in the database before the order is sent
    journals_before_spawn: bool = True
    drains_dead_daemons: bool = True  # reads all orders of a dead daemon before those of the next
    records_orphans: bool = True  # an adopted orphan is `running` before the old journal is removed
    trusts_pids: bool = False  # no journal of starts: an attempt without a recorded PID never ran
    restartable: bool = False
    daemon_crashes: int = 3
    runner_crashes: int = 1
    reboots: int = 1


class Order(NamedTuple):
    kind: str  # launch or stop
    attempt: int
    text: int = 0  # version of the command


class Run(NamedTuple):
    """One execution: the real process."""

    attempt: int
    text: int
    alive: bool = True
    status: int | None = None
    is_orphan: bool = False
    is_terminated: bool = False  # it got SIGTERM


class State(NamedTuple):
    # the database
    state: str = "queued"
    attempt: int = 0
    rows: tuple[int, ...] = ()  # recorded attempts
    text: int = 0
    stop: bool = False
    # the daemon
    daemon: str = "off"  # off new idle claiming ordered committed
    claim: int = 0  # the attempt it is about to order
    has_stopped: bool = False
    events: tuple[tuple[str, int, int | None], ...] = ()  # sent, not yet received
    # the runner
    runner: str = "off"  # off idle begun spawned ended
    hand: Order = Order("", 0)  # the order being executed
    orders: tuple[Order, ...] = ()
    dead_orders: tuple[Order, ...] = ()  # of daemons that died
    journal: tuple[tuple[str, int, int | None], ...] = ()
    old_journal: tuple[tuple[str, int, int | None], ...] = ()  # of runners that died
    # the real processes
    runs: tuple[Run, ...] = ()
    daemon_crashes: int = 0
    runner_crashes: int = 0
    reboots: int = 0
    cancels: int = 1
    edits: int = 1


Step = tuple[str, State]


def steps(s: State, d: Design) -> Iterator[Step]:
    """All next steps without a fault or a user action."""
    yield from _daemon_steps(s, d)
    if s.runner != "off":
        yield from _runner_steps(s, d)
    for place, run in enumerate(s.runs):
        if run.alive:
            for status in (0, 1, TERM) if run.is_terminated else (0, 1):
                yield f"job exits {status}", _with_run(s, place, alive=False, status=status)


def disturbances(s: State) -> Iterator[Step]:
    """Crashes and user actions."""
    if s.daemon_crashes and s.daemon != "off":
        yield "CRASH daemon", s._replace(
            daemon="off", claim=0, has_stopped=False, events=(), orders=(),
            dead_orders=s.dead_orders + s.orders, daemon_crashes=s.daemon_crashes - 1,
        )  # fmt: skip
    if s.runner_crashes and s.runner != "off":
        yield "CRASH runner", _without_runner(s)._replace(runner_crashes=s.runner_crashes - 1)
    if s.reboots:
        dead = tuple(run._replace(alive=False, is_orphan=True) for run in s.runs)
        off = _without_runner(s)._replace(runs=dead, daemon="off", claim=0, events=())
        yield "REBOOT", off._replace(has_stopped=False, reboots=s.reboots - 1)
    if s.daemon in ("claiming", "ordered"):
        return  # its transaction holds the write lock
    if s.cancels and s.state == "queued":
        yield "user cancels", s._replace(state="cancelled", cancels=0)
    elif s.cancels and s.state in ACTIVE:
        yield "user cancels", s._replace(stop=True, cancels=0)
    if s.edits and s.state == "queued":
        yield "user edits", s._replace(text=s.text + 1, edits=0)


# -- the daemon ------------------------------------------------------------------------------------


def _daemon_steps(s: State, d: Design) -> Iterator[Step]:
    if s.daemon == "off":
        yield "daemon starts", s._replace(daemon="new", runner=_on(s.runner))
    elif s.daemon == "new":
        # The runner's answer to `list` comes after all orders of dead daemons.
        is_drained = not s.dead_orders and s.runner in ("idle", "off")
        if is_drained or not d.drains_dead_daemons:
            yield "daemon recovers", _recover(s, d)._replace(daemon="idle")
    elif s.daemon == "idle":
        yield from _idle_steps(s, d)
    elif s.daemon == "claiming" and d.commits_before_order:
        yield "daemon commits", _commit(s)._replace(daemon="committed")
    elif s.daemon in ("claiming", "committed"):
        order = Order("launch", s.claim, s.text)
        after = "idle" if s.daemon == "committed" else "ordered"
        orders = s.orders if s.runner == "off" else (*s.orders, order)
        yield "daemon sends the order", s._replace(orders=orders, daemon=after)
    elif s.daemon == "ordered":
        yield "daemon commits", _commit(s)._replace(daemon="idle")


def _idle_steps(s: State, d: Design) -> Iterator[Step]:
    if s.events:
        (kind, attempt, status), *rest = s.events
        yield (
            f"daemon records {kind}",
            _receive(s, d, kind, attempt, status)._replace(events=tuple(rest)),
        )
    elif s.runner == "off":
        yield "daemon replaces the runner", _recover(s._replace(runner="idle"), d)
    if s.state == "queued" and len(s.rows) < 4:
        known = [*s.rows, *(attempt for _, attempt, _ in s.old_journal + s.journal)]
        yield "daemon claims", s._replace(daemon="claiming", claim=max(known, default=0) + 1)
    if s.stop and not s.has_stopped and s.state in ACTIVE:
        stopping = s._replace(state="stopping", has_stopped=True)
        orphans = [i for i, r in enumerate(s.runs) if r.is_orphan and r.attempt == s.attempt]
        if orphans:
            yield "daemon stops the orphan", _with_run(stopping, orphans[0], is_terminated=True)
        elif s.runner != "off":
            orders = (*s.orders, Order("stop", s.attempt))
            yield "daemon sends a stop", stopping._replace(orders=orders)
    for run in s.runs:
        if run.is_orphan and not run.alive and run.attempt == s.attempt and s.state in ACTIVE:
            yield "daemon collects the orphan", _end(s, d, run.status)
            yield "daemon misses the orphan's code", _end(s, d, None)


def _commit(s: State) -> State:
    return s._replace(state="starting", attempt=s.claim, rows=(*s.rows, s.claim))


def _receive(s: State, d: Design, kind: str, attempt: int, status: int | None) -> State:
    if attempt != s.attempt or s.state not in ACTIVE:
        return s
    if kind == "begun":
        return s._replace(state="running") if s.state == "starting" else s
    return _end(s, d, status)


def _end(s: State, d: Design, status: int | None) -> State:
    if status is None:
        if s.stop:
            return s._replace(state="cancelled")
        return s._replace(state="queued" if d.restartable and len(s.rows) < 4 else "lost")
    if s.stop and status:
        return s._replace(state="cancelled")
    return s._replace(state="failed" if status else "done")


def _recover(s: State, d: Design) -> State:
    records = s.old_journal + s.journal
    began = {attempt for kind, attempt, _ in records if kind == "begun"}
    ended = {attempt: status for kind, attempt, status in records if kind == "ended"}
    if not d.commits_before_order and not d.trusts_pids:
        # Attempts that were ordered by a transaction that was not committed.
        for attempt in sorted(began - set(s.rows)):
            if s.state == "queued":
                s = _commit(s._replace(claim=attempt))
            elif s.runner != "off":
                s = s._replace(orders=(*s.orders, Order("stop", attempt)))
    if s.state in ACTIVE:
        alive = [run for run in s.runs if run.alive and run.attempt == s.attempt]
        if s.attempt in ended:
            s = _end(s, d, ended[s.attempt])
        elif alive and not (d.trusts_pids and s.state == "starting"):
            if s.state == "starting" and (d.records_orphans or not alive[0].is_orphan):
                s = s._replace(state="running")
        elif s.state != "starting" or (s.attempt in began and not d.trusts_pids):
            s = _end(s, d, None)
        else:
            rows = tuple(attempt for attempt in s.rows if attempt != s.attempt)
            s = s._replace(state="cancelled" if s.stop else "queued", rows=rows, attempt=0)
    return s._replace(old_journal=(), has_stopped=False, claim=0)


# -- the runner ------------------------------------------------------------------------------------


def _runner_steps(s: State, d: Design) -> Iterator[Step]:
    attempt = s.hand.attempt
    if s.runner == "idle":
        queues = ["dead_orders"] if s.dead_orders else ["orders"]
        if not d.drains_dead_daemons:
            queues = ["dead_orders", "orders"]
        for queue in queues:
            yield from _execute(s, d, queue)
        noticed = {record[1] for record in s.journal if record[0] == "ended"}
        for run in s.runs:
            if not run.alive and not run.is_orphan and run.attempt not in noticed:
                record = ("ended", run.attempt, run.status)
                ended = s._replace(runner="ended", hand=Order("", run.attempt))
                yield "runner journals the end", ended._replace(journal=(*s.journal, record))
    elif s.runner == "begun":
        if d.journals_before_spawn:
            yield "runner spawns", _spawn(s)._replace(runner="spawned")
        else:
            journal = (*s.journal, ("begun", attempt, None))
            yield "runner journals begun", s._replace(runner="spawned", journal=journal)
    elif s.runner == "spawned":
        yield "runner reports begun", _report(s, ("begun", attempt, None))
    elif s.runner == "ended":
        status = next(status for _, a, status in reversed(s.journal) if a == attempt)
        yield "runner reports the end", _report(s, ("ended", attempt, status))


def _execute(s: State, d: Design, queue: str) -> Iterator[Step]:
    waiting: tuple[Order, ...] = getattr(s, queue)
    if not waiting:
        return
    order, rest = waiting[0], waiting[1:]
    s = s._replace(**{queue: rest})  # type: ignore[arg-type]
    if order.kind == "stop":
        for place, run in enumerate(s.runs):
            if run.attempt == order.attempt and run.alive and not run.is_orphan:
                s = _with_run(s, place, is_terminated=True)
        yield "runner executes a stop", s
    elif d.journals_before_spawn:
        journal = (*s.journal, ("begun", order.attempt, None))
        yield "runner journals begun", s._replace(runner="begun", hand=order, journal=journal)
    else:
        yield "runner spawns", _spawn(s._replace(hand=order))._replace(runner="begun")


def _spawn(s: State) -> State:
    return s._replace(runs=(*s.runs, Run(s.hand.attempt, s.hand.text)))


def _report(s: State, event: tuple[str, int, int | None]) -> State:
    events = (*s.events, event) if s.daemon != "off" else s.events
    return s._replace(runner="idle", hand=Order("", 0), events=events)


def _without_runner(s: State) -> State:
    orphans = tuple(run._replace(is_orphan=True) for run in s.runs)
    return s._replace(
        runner="off", hand=Order("", 0), orders=(), dead_orders=(), runs=orphans, journal=(),
        old_journal=s.old_journal + s.journal,
    )  # fmt: skip


def _on(runner: str) -> str:
    return "idle" if runner == "off" else runner


def _with_run(s: State, place: int, **changes: object) -> State:
    run = s.runs[place]._replace(**changes)  # type: ignore[arg-type]
    return s._replace(runs=(*s.runs[:place], run, *s.runs[place + 1 :]))
