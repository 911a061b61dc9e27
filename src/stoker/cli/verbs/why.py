"""`stoker why`: explain why a job waits, with the policy code of the daemon."""

from __future__ import annotations

from stoker.cli.open_queue import open_queue
from stoker.cli.output import print_json
from stoker.client.views import why as wait_reasons
from stoker.client.views.what_if import what_if_json
from stoker.engine.store import job_queries
from stoker.engine.store.job_queries import JobRow
from stoker.states import WAITING
from stoker.text.command_line import Parsed, Verb
from stoker.text.terminal import printable

VERB = Verb(
    "why",
    "why [JOB...]",
    "Explain why jobs wait (default: the first job in the queue).",
    (),
    (("stoker why 7", ""), ("stoker why", "the first waiting job")),
    """Lines below the reasons are changes that would start the job now or much earlier, with the
commands that make them. Each was tried with the scheduling policy on the queue as it is.""",
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    if parsed.words:
        ids = queue.select(parsed.words)
    else:
        ids = wait_reasons.queue_order(queue.db, 1) or [
            r.id for r in job_queries.jobs_in_states(queue.db, ("queued", "held"), 1)
        ]
    rows = job_queries.jobs(queue.db, ids)
    answers = [(row, wait_reasons.explain_wait(queue.db, queue.settings, row)) for row in rows]
    if parsed["json"]:
        print_json(jobs=[_as_json(row, wait) for row, wait in answers])
        return 0
    if not rows:
        print("no jobs are waiting")
    for row, wait in answers:
        reasons = wait.reasons
        text = "; ".join(reasons) if reasons else "it starts now"
        if row.state in WAITING and reasons:
            print(printable(f"job {row.id} waits: {text}"))
            for one in wait.what_ifs:
                print(f"  {one.start_words}: {one.command(row.id)}")
        else:
            print(printable(f"job {row.id} {text.removeprefix('it ')}"))
    return 0


def _as_json(row: JobRow, wait: wait_reasons.WaitExplanation) -> dict[str, object]:
    return {
        "id": row.id,
        "state": row.state,
        "reasons": wait.reasons,
        "starts_in": None if wait.starts_in is None else round(wait.starts_in, 1),
        "what_if": what_if_json(row, wait.what_ifs),
    }
