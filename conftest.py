"""Skips: one line at the end says how to run those tests, and with CI=true they are failures.

Only tests of a real GPU (tests/hardware) may be skipped in CI.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

from tests import system_packages

_MAY_SKIP = "tests/hardware/"


def _is_forbidden(report: pytest.TestReport | pytest.CollectReport) -> bool:
    is_expected_failure = hasattr(report, "wasxfail")
    in_ci = os.environ.get("CI") == "true"
    return in_ci and report.skipped and not is_expected_failure and _MAY_SKIP not in report.nodeid


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    report.longrepr = f"skipped although CI=true: {_reason(report)}"
    report.outcome = "failed"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _is_forbidden(report):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _is_forbidden(report):
        _fail(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(map(_reason, skipped))
    if not reasons:
        return
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    how = system_packages.hint()
    terminalreporter.write_line(
        f"skipped {len(skipped)} tests ({counts})" + (f"; install: {how}" if how else "")
    )
