"""All interleavings of the life of one job; and checks that the search finds broken protocols."""

from __future__ import annotations

import pytest

from tests.model.protocol import Design
from tests.model.search import search


def test_no_interleaving_of_crashes_and_user_actions_breaks_an_invariant() -> None:
    report = search(Design())
    assert not report.findings, f"\n{report}"
    assert report.states > 20_000


def test_restartable_job_never_runs_twice_at_once_and_always_ends() -> None:
    report = search(Design(restartable=True, daemon_crashes=1))
    assert not report.findings, f"\n{report}"


@pytest.mark.parametrize(
    ("broken", "invariant", "steps"),
    [
        pytest.param(Design(journals_before_spawn=False), "ran twice", 14, id="spawn-first"),
        pytest.param(Design(drains_dead_daemons=False), "two alive at once", 17, id="no-draining"),
        pytest.param(Design(trusts_pids=True), "two alive at once", 15, id="pid-file"),
        pytest.param(Design(commits_before_order=False), "final while alive", 9, id="order-first"),
        pytest.param(Design(records_orphans=False), "ran twice", 18, id="silent-orphans"),
    ],
)
def test_search_finds_the_shortest_counterexample_of_a_broken_protocol(
    broken: Design, invariant: str, steps: int
) -> None:
    report = search(broken)
    assert invariant in report.findings, f"\n{report}"
    assert len(report.findings[invariant].path) == steps, f"\n{report.findings[invariant]}"
