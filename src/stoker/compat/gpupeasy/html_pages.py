"""HTML pages. All text from users, jobs and URLs is escaped with `_text`."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from stoker.core.formats.log_rendering import LogView

Job = Mapping[str, Any]
Messages = Mapping[str, Any]

_BANNERS = (
    ("errorMessage", "danger", "Error:"),
    ("infoMessage", "info", "Info:"),
    ("successMessage", "success", "Success:"),
)
_RELOAD_SECONDS = 10
_STATUS_CLASS = {"Running": "busy", "Succeeded": "good", "Failed": "bad"}
_SYNTAX = """first job ;; /data/out/first.txt ;; python -u train.py --lr 0.1
;;;
second job ;; /data/out/second.txt ;; python -u train.py --lr 0.01"""


def _text(value: object) -> str:
    return escape(str(value), quote=True)


# -- whole pages -----------------------------------------------------------------------------------


def _page(title: str, body: str, reloads: bool = False) -> str:
    refresh = f'<noscript><meta http-equiv="refresh" content="{_RELOAD_SECONDS}"></noscript>'
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(title)}</title>
<link rel="stylesheet" href="/static/style.css">
<script src="/static/refresh.js" defer></script>
{refresh if reloads else ""}
</head>
<body>
<nav><a class="brand" href="/">GPUPeasy</a><a href="/batchaddjobs">Add Jobs</a></nav>
<main>
{body}
</main>
</body>
</html>
"""


def index(messages: Messages, parts: Mapping[str, str], is_paused: bool) -> str:
    pause = (
        _button("/resumescheduler", "Resume the scheduler")
        if is_paused
        else _button("/pausescheduler", "Pause the scheduler")
    )
    note = '<div class="alert">The scheduler is paused: no jobs are started.</div>'
    return _page(
        "GPUPeasy",
        f"""{banners(messages)}
{note if is_paused else ""}
<h2>Device Utilization</h2>
{_section("DeviceUtilization", "deviceutilization", parts)}
<div class="actions">
<form class="inline" method="post" action="/adddevice"><label for="device">Device</label>
<input type="text" id="device" name="device" size="10" placeholder="3 or 2,3">
<button>Add</button></form>
{pause}
</div>
<h2>Scheduled Jobs</h2>
{_section("ScheduledJobs", "scheduledjobs", parts)}
<div class="columns">
<div><h2>Successful Jobs</h2>{_section("SuccessfulJobs", "successfuljobs", parts)}</div>
<div><h2>Failed Jobs</h2>{_section("FailedJobs", "failedjobs", parts)}</div>
</div>""",
        reloads=True,
    )


def _section(id: str, source: str, parts: Mapping[str, str]) -> str:
    return f'<div id="{id}" data-from="/{source}">{parts[source]}</div>'


def add_jobs(messages: Messages) -> str:
    return _page(
        "Add Jobs - GPUPeasy",
        f"""{banners(messages)}
<h2>Add Jobs</h2>
<p>One or more jobs, separated by <code>;;;</code>, each written as
<code>name ;; output file ;; command</code>. The output file must not exist yet. Newlines and
repeated spaces count as one space.</p>
<pre>{_text(_SYNTAX)}</pre>
<form action="/batchaddjobs" method="post">
<label for="jobList">Job List</label>
<textarea id="jobList" name="jobList" rows="8"></textarea>
<button class="primary">Submit</button>
</form>
<h2>Test Job Command</h2>
<p>Shows how a command is split into words. Jobs run without a shell: pipes, redirection and
variables need <code>sh -c '...'</code>.</p>
<form action="/testCommandParser" method="post">
<label for="jobCommand">Job Command</label>
<textarea id="jobCommand" name="jobCommand" rows="4"></textarea>
<button class="primary">Submit</button>
</form>
{_parsed(messages)}""",
    )


def _parsed(messages: Messages) -> str:
    if messages.get("status") != "successful":
        return ""
    found = ""
    if "commandList" in messages:
        found += f"<strong>Command List:</strong> {_text(messages['commandList'])}"
    if "jobList" in messages:
        found += f"\n<strong>Job List:</strong> {_text(messages['jobList'])}"
        found += f"\nErrors: {_text(messages.get('errorCount', 0))}"
    return f'<div class="alert success">{found}</div>'


def job_page(messages: Messages, job: Job | None, log: str | None, last: str) -> str:
    if job is None:
        return _page("Job Info - GPUPeasy", f"{banners(messages)}\n<h2>Job Info</h2>")
    status = str(job["status"])
    fields = [
        ("Job ID", _text(job["jobid"])),
        ("Job Name", _text(job["jobName"])),
        (
            "Status",
            f'<span class="{_STATUS_CLASS.get(status, "")}">{_text(status)}</span>'
            f" {_text(job['result'])}",
        ),
        ("Return Code", _text(job["returnCode"])),
        ("Device", _text(_or_dash(job["gpu"]))),
        ("PID", _text(_or_dash(job["pid"]))),
        ("Priority", _text(job["priority"])),
        ("Submitted", _text(_or_dash(job["submittedAt"]))),
        ("Started", _text(_or_dash(job["startedAt"]))),
        ("Ended", _text(_or_dash(job["endedAt"]))),
        ("Checkpoints", _text(job["checkpointDir"] if job["checkpoint"] else "-")),
        ("Job Command", f"<code>{_text(job['jobCommand'])}</code>"),
        ("Output File", f"<code>{_text(job['outFile'])}</code>"),
    ]
    rows = "\n".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in fields)
    shown = _text(log_as_text(log)) if log is not None else "#Press Load to load log file"
    id = quote(str(job["jobid"]))
    return _page(
        f"{job['jobName']} - GPUPeasy",
        f"""{banners(messages)}
<h2>Job Info</h2>
<div class="card"><dl>{rows}</dl></div>
<div class="actions">{_actions(job, status)}</div>
<h2>Log</h2>
<form class="actions" method="get" action="/jobinfo/{id}" id="loadLogFileForm00">
<input class="wide" type="text" name="fileName" readonly value="{_text(job["outFile"])}">
<label for="lastN">Last N lines:</label>
<input type="number" id="lastN" name="lastN" value="{_text(last)}">
<button>Load</button>
</form>
<pre id="logTextArea00">{shown}</pre>""",
    )


def _actions(job: Job, status: str) -> str:
    id = quote(str(job["jobid"]))
    if status == "Scheduled":
        return f"""<form class="inline" method="post" action="/setpriority/{id}">
<label for="priority">Priority</label>
<input type="number" id="priority" name="priority" value="{_text(job["priority"])}">
<button>Set</button></form>
{_button(f"/canceljob/{id}", "Cancel", "danger")}"""
    if status == "Running":
        return _button(f"/canceljob/{id}", "Cancel", "danger")
    return _button(f"/rerunjob/{id}", "Run again")


def _button(action: str, label: str, kind: str = "") -> str:
    return (
        f'<form class="inline" method="post" action="{action}">'
        f'<button class="{kind}">{label}</button></form>'
    )


def log_as_text(log: str) -> str:
    """The log as a terminal shows it: progress bars collapsed, escape sequences removed."""
    view = LogView(False)
    return "\n".join((*view.feed(log), *view.finish()))


def banners(messages: Messages) -> str:
    return "\n".join(
        f'<div class="alert {kind}" role="alert"><strong>{title}</strong> '
        f"{_text(str(messages[key]).strip())}</div>"
        for key, kind, title in _BANNERS
        if key in messages
    )


# -- fragments -------------------------------------------------------------------------------------


def error_box(message: str) -> str:
    return f'<div class="alert danger"><strong>Error:</strong> {_text(message)}</div>'


def job_list(jobs: list[Job], empty: str, hidden: int = 0) -> str:
    if not jobs:
        return f'<div class="card"><div class="row faint">{_text(empty)}</div></div>'
    rows = "\n".join(_job_row(job) for job in jobs)
    if hidden > 0:
        rows += f'\n<div class="row faint">and {hidden} more</div>'
    return f'<div class="card list">{rows}</div>'


def _job_row(job: Job) -> str:
    code = job.get("returnCode", 0)
    end = f'<span class="faint">return code {_text(code)}</span>' if code else ""
    return (
        f'<div class="row"><span class="id">{_text(job["jobID"])}</span>'
        f'<span class="grow">{_link(job)} <span class="faint">{_text(job["jobCommand"])}</span>'
        f"</span>{end}</div>"
    )


def devices(names: list[str], running: list[Job]) -> str:
    """Each slot with its running job; jobs on removed devices are shown at the end."""
    left = list(running)
    rows = []
    for name in names:
        job = next((job for job in left if job["gpu"] == name), None)
        if job is not None:
            left.remove(job)
        rows.append(_device(name, job))
    rows += [_device(str(job["gpu"]), job, " (removed)") for job in left]
    return "\n".join(rows)


def _device(name: str, job: Job | None, note: str = "") -> str:
    head = f'<strong>Device: {_text(name)}</strong><span class="faint">{note}</span>'
    if job is None:
        remove = (
            '<form class="inline" method="post" action="/removedevice">'
            f'<input type="hidden" name="device" value="{_text(name)}">'
            "<button>Remove</button></form>"
        )
        status = '<span class="idle grow">Status: Idle</span>'
        return f'<div class="card"><div class="row">{head}{status}{remove}</div></div>'
    cancel = _button(f"/canceljob/{quote(str(job['jobID']))}", "Cancel", "danger")
    return (
        f'<div class="card"><div class="row">{head}'
        '<span class="busy">Status: running</span>'
        f'<span class="faint">Job ID: {_text(job["jobID"])}</span>'
        f'<span class="grow">Job Name: {_link(job)}</span>{cancel}</div>'
        f'<div class="row faint"><span class="grow">Command: {_text(job["jobCommand"])}</span>'
        "</div></div>"
    )


def _link(job: Job) -> str:
    return f'<a href="/jobinfo/{quote(str(job["jobID"]))}">{_text(job["jobName"])}</a>'


def _or_dash(value: object) -> object:
    return "-" if value is None else value
