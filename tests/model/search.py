"""Breadth-first search of all states of a design; checks the invariants in each state."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tests.model.protocol import FINAL, Design, State, disturbances, steps


@dataclass(frozen=True)
class Finding:
    invariant: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((f"broken: {self.invariant}", *self.path))


@dataclass(frozen=True)
class Report:
    states: int
    findings: dict[str, Finding]  # the shortest one for each broken invariant

    def __str__(self) -> str:
        return "\n\n".join([f"{self.states} states", *map(str, self.findings.values())])


def broken(s: State, design: Design) -> str | None:
    """The invariant that this state breaks, if any."""
    alive = [run for run in s.runs if run.alive]
    if len(alive) > 1:
        return "two alive at once"
    if len(s.runs) > 1 and not design.restartable:
        return "ran twice"
    if alive and s.state in FINAL:
        return "final while alive"
    status = {run.attempt: run.status for run in s.runs}.get(s.attempt)
    if s.state == "done" and status != 0:
        return "done, but the process did not succeed"
    if s.state == "failed" and not status:
        return "failed, but the process did not fail"
    if s.state in ("running", "done", "failed") and s.runs and s.runs[-1].text != s.text:
        return "ran another command than recorded"
    return None


def search(design: Design) -> Report:
    start = State(
        daemon_crashes=design.daemon_crashes,
        runner_crashes=design.runner_crashes,
        reboots=design.reboots,
    )
    came_from: dict[State, tuple[str, State] | None] = {start: None}
    undisturbed: dict[State, list[State]] = {}  # predecessors by steps without faults
    findings: dict[str, Finding] = {}
    goals: list[State] = []
    todo = deque([start])
    while todo:
        state = todo.popleft()
        invariant = broken(state, design)
        if invariant is not None:
            if invariant not in findings:
                findings[invariant] = Finding(invariant, _path(state, came_from))
            continue  # states after a broken one are not explored
        if state.state in FINAL and not any(run.alive for run in state.runs):
            goals.append(state)
        for name, following in steps(state, design):
            undisturbed.setdefault(following, []).append(state)
            if following not in came_from:
                came_from[following] = (name, state)
                todo.append(following)
        for name, following in disturbances(state):
            if following not in came_from:
                came_from[following] = (name, state)
                todo.append(following)
    if not findings:
        _check_ends(came_from, undisturbed, goals, findings)
    return Report(len(came_from), findings)


def _check_ends(
    came_from: dict[State, tuple[str, State] | None],
    undisturbed: dict[State, list[State]],
    goals: list[State],
    findings: dict[str, Finding],
) -> None:
    """Check that a final state is reachable from every state without further faults."""
    ends = set(goals)
    todo = deque(goals)
    while todo:
        for before in undisturbed.get(todo.popleft(), ()):
            if before not in ends:
                ends.add(before)
                todo.append(before)
    for state in came_from:
        if state not in ends:
            findings["never ends"] = Finding("never ends", _path(state, came_from))
            return


def _path(state: State, came_from: dict[State, tuple[str, State] | None]) -> tuple[str, ...]:
    names: list[str] = []
    step = came_from[state]
    while step is not None:
        names.append(step[0])
        step = came_from[step[1]]
    alive = sum(run.alive for run in state.runs)
    return (*reversed(names), f"-> {state.state}, {len(state.runs)} runs, {alive} alive")
