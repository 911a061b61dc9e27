"""`stoker backend test`: run a job on a backend and explain what fails."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from stoker.client.live.change_feed import ChangeFeed
from stoker.client.queue import Queue
from stoker.client.submit.job_options import as_flag
from stoker.client.submit.parsed_options import make_spec, parse_options
from stoker.client.views.job import log_paths, result_words
from stoker.client.views.why import why
from stoker.engine.store import job_queries
from stoker.errors import Unavailable
from stoker.features.backends import store as backends
from stoker.features.backends.administration import ask_nodes
from stoker.features.backends.nodes import UP
from stoker.features.backends.store import BackendRow
from stoker.record import Record
from stoker.states import FINAL
from stoker.text.durations import format_duration
from stoker.text.plurals import plural

_COMMAND = (
    'echo "stoker probe on $(hostname)"; echo "gpus=${CUDA_VISIBLE_DEVICES-}";'
    ' echo ok > "$STOKER_OUTPUT_DIR/probe"'
)


class Step(Record):
    """One step of the test. `is_ok` None: still going on."""

    text: str
    is_ok: bool | None


def probe(queue: Queue, row: BackendRow, timeout: float, gpus: int | None) -> Iterator[Step]:
    """Run the steps of the test; ends after the first that fails."""
    try:
        nodes = ask_nodes(queue, row)
    except Unavailable as error:
        yield Step(error.message, False)
        return
    with queue.db.transaction():
        backends.record_nodes(queue.db, row.name, nodes, time.time())
        backends.record_problem(queue.db, row.name, None, time.time())  # its driver tries again
    up = [node for node in nodes if node.state == UP]
    total = sum(node.gpus for node in up)
    yield Step(f"{plural(len(up), 'node')} with {plural(total, 'GPU')} up", bool(up))
    for node in nodes:
        if node.state != UP:
            yield Step(f"node {node.name} is {node.note or node.state}", None)
    if not up:
        return
    wanted = min(1, total) if gpus is None else gpus
    options = parse_options(
        {"on": row.name, "gpus": wanted, "name": "stoker-probe", "time_limit": 60.0}, as_flag
    )
    spec = make_spec(options, queue.settings, queue.devices())
    spec = spec._replace(argv=(_COMMAND,), context=spec.context._replace(cwd="/"))
    job = queue.submission().add([spec], time.time()).first
    queue.ensure_daemon()
    yield from _follow(queue, job, timeout)


def _follow(queue: Queue, job: int, timeout: float) -> Iterator[Step]:
    feed = ChangeFeed(queue.settings.state_dir)
    began, shown = time.monotonic(), ""
    try:
        while True:
            row = job_queries.job(queue.db, job)
            if row.state in FINAL:
                break
            if time.monotonic() - began > timeout:
                reason = "; ".join(why(queue.db, queue.settings, row))
                queue.cancel([job], 0.0)
                yield Step(
                    f"the probe job {job} did not finish in {format_duration(timeout)}: {reason}",
                    False,
                )
                return
            text = "; ".join(why(queue.db, queue.settings, row))
            if text != shown:
                shown = text
                yield Step(f"job {job}: {text}", None)
            feed.wait(1.0)
    finally:
        feed.close()
    seconds = format_duration(time.monotonic() - began)
    if row.state != "done":
        yield Step(f"the probe job {job} {row.state}: {result_words(row, queue.db)}", False)
        return
    yield Step(f"job {job} ran on {row.node} after {seconds}", True)
    yield from _check_files(queue, row)


def _check_files(queue: Queue, row: job_queries.JobRow) -> Iterator[Step]:
    """Whether log and output of the job have arrived here."""
    log = log_paths(queue.settings, row)[0]
    try:
        with open(log or "", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        text = ""
    if "stoker probe" not in text:
        yield Step(
            f"the log `{log}` of the job is not visible on this host: use a folder on a file "
            "system that the nodes share (stoker backend add ... --folder DIR)",
            False,
        )
        return
    output = os.path.join(os.path.dirname(log or ""), str(row.id), "probe")
    is_there = os.path.exists(output)
    if is_there:
        yield Step("log and output folder are visible on this host", True)
    else:
        yield Step(f"the output `{output}` of the job is not visible on this host", False)
