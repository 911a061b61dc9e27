"""Pytest hooks for the whole suite.

The summary has one line about skipped tests and how to install what they need. With CI=true a
skipped test fails, except tests of what no package provides: a real GPU, and cgroups that the host
allows us to create.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator

import pytest

from tests import system_packages

_MAY_SKIP = (
    "tests/hardware/", "tests/faults/test_job_cgroups.py", "tests/faults/test_enforced_limits.py",
    "tests/faults/test_oom_kills.py", "in_other_pythons",
)  # fmt: skip


def pytest_configure() -> None:
    """Restore default signal handlers and the buffers of Python, which child processes inherit.

    Under nohup, or in the background of a script, signals are ignored; tests interrupt their child
    processes. Containers often set PYTHONUNBUFFERED, which changes the order of a job's output.
    """
    os.environ.pop("PYTHONUNBUFFERED", None)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


def _is_forbidden(report: pytest.TestReport | pytest.CollectReport) -> bool:
    is_expected_failure = hasattr(report, "wasxfail")
    in_ci = os.environ.get("CI") == "true"
    may_skip = any(path in report.nodeid for path in _MAY_SKIP)
    return in_ci and report.skipped and not is_expected_failure and not may_skip


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    report.longrepr = f"skipped, but CI=true does not allow skips: {_reason(report)}"
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
    counts = ", ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
    needs_package = any(reason.startswith("needs ") for reason in reasons)
    how = system_packages.hint() if needs_package else None
    terminalreporter.write_line(
        f"{len(skipped)} tests skipped ({counts})" + (f"; install: {how}" if how else "")
    )
