"""HTML: the files of `pages/`, and fragments. Every value that is not `Html` is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from stoker.text.logs.log_rendering import LogView

Job = Mapping[str, Any]
Messages = Mapping[str, Any]

_BANNERS = (("error", "danger"), ("info", "info"), ("success", "success"))


class Html(str):
    """Text that is already escaped."""


def fill(text: str, /, **values: object) -> Html:
    """Replace `$name` by the value of that name.

    >>> fill("<b>$a</b>$c", a="<i>", c=Html("<br>"))
    '<b>&lt;i&gt;</b><br>'
    """
    escaped = {k: v if isinstance(v, Html) else escape(str(v)) for k, v in values.items()}
    return Html(Template(text).substitute(escaped))


@cache
def page_file(name: str) -> str:
    return (Path(__file__).parent / "pages" / name).read_text(encoding="utf-8")


def _page(title: str, messages: Messages, body: Html) -> Html:
    banners = Html(
        "\n".join(
            fill(
                '<div class="alert $kind" role="alert"><strong>$title:</strong> $text</div>',
                kind=kind,
                title=name.capitalize(),
                text=str(messages[f"{name}Message"]).strip(),
            )
            for name, kind in _BANNERS
            if f"{name}Message" in messages
        )
    )
    return fill(page_file("page.html"), title=title, banners=banners, body=body)


def index(messages: Messages, parts: Mapping[str, Html], is_paused: bool) -> Html:
    note, button = Html(""), _button("/pausescheduler", "Pause the scheduler")
    if is_paused:
        note = Html('<div class="alert">The scheduler is paused: no jobs are started.</div>')
        button = _button("/resumescheduler", "Resume the scheduler")
    body = fill(page_file("index.html"), paused=note, pause=button, **parts)
    return _page("GPUPeasy", messages, body)


def add_jobs(messages: Messages) -> Html:
    parsed = Html("")
    if messages.get("status") == "successful":
        text = "<strong>Command List:</strong> $words" if "commandList" in messages else ""
        if "jobList" in messages:
            text += "\n<strong>Job List:</strong> $jobs\nErrors: $errors"
        parsed = fill(
            f'<div class="alert success">{text}</div>',
            words=messages.get("commandList"),
            jobs=messages.get("jobList"),
            errors=messages.get("errorCount", 0),
        )
    body = fill(page_file("add_jobs.html"), parsed=parsed)
    return _page("Add Jobs - GPUPeasy", messages, body)


def job_page(messages: Messages, job: Job | None, log: str = "", last: str = "") -> Html:
    if job is None:
        return _page("Job Info - GPUPeasy", messages, Html("<h2>Job Info</h2>"))
    shown = {name: "-" if value is None else value for name, value in job.items()}
    if not job["checkpoint"]:
        shown["checkpointDir"] = "-"
    body = fill(
        page_file("job.html"), log=log_as_text(log), last=last, actions=_actions(job), **shown
    )
    return _page(f"{job['jobName']} - GPUPeasy", messages, body)


def _actions(job: Job) -> Html:
    id = job["jobid"]
    if job["status"] not in ("Scheduled", "Running"):
        return _button(f"/rerunjob/{id}", "Run again")
    cancel = _button(f"/canceljob/{id}", "Cancel", "danger")
    if job["status"] == "Running":
        return cancel
    return fill(
        '<form class="inline" method="post" action="/setpriority/$id">'
        '<label for="priority">Priority</label>'
        '<input type="number" id="priority" name="priority" value="$priority">'
        "<button>Set</button></form>$cancel",
        id=id,
        priority=job["priority"],
        cancel=cancel,
    )


def _button(action: str, label: str, kind: str = "", fields: str = "") -> Html:
    return fill(
        '<form class="inline" method="post" action="$action">$fields'
        '<button class="$kind">$label</button></form>',
        action=action,
        label=label,
        kind=kind,
        fields=fields,
    )


def log_as_text(log: str) -> str:
    """The log as a terminal shows it: progress bars collapsed, escape sequences removed."""
    view = LogView(False)
    return "\n".join((*view.feed(log), *view.finish()))


# -- fragments -------------------------------------------------------------------------------------


def error_box(message: str) -> Html:
    return fill('<div class="alert danger"><strong>Error:</strong> $text</div>', text=message)


def job_list(jobs: list[Job], empty: str, hidden: int = 0) -> Html:
    if not jobs:
        return fill('<div class="card"><div class="row faint">$text</div></div>', text=empty)
    rows = [
        fill(
            '<div class="row"><span class="id">$id</span><span class="grow">$link '
            '<span class="faint">$command</span></span><span class="faint">$code</span></div>',
            id=job["jobID"],
            link=_link(job),
            command=job["jobCommand"],
            code=f"return code {job['returnCode']}" if job.get("returnCode") else "",
        )
        for job in jobs
    ]
    if hidden > 0:
        rows.append(fill('<div class="row faint">and $count more</div>', count=hidden))
    return fill('<div class="card list">$rows</div>', rows=Html("\n".join(rows)))


def devices(names: list[str], running: list[Job]) -> Html:
    """Each slot with its running job; jobs on removed devices are shown at the end."""
    left = list(running)
    rows = []
    for name in names:
        job = next((job for job in left if job["gpu"] == name), None)
        if job is not None:
            left.remove(job)
        rows.append(_device(name, job))
    rows += [_device(str(job["gpu"]), job, " (removed)") for job in left]
    return Html("\n".join(rows))


def _device(name: str, job: Job | None, note: str = "") -> Html:
    head = fill(
        '<strong>Device: $name</strong><span class="faint">$note</span>', name=name, note=note
    )
    if job is None:
        field = fill('<input type="hidden" name="device" value="$name">', name=name)
        return fill(
            '<div class="card"><div class="row">$head<span class="idle grow">Status: Idle</span>'
            "$remove</div></div>",
            head=head,
            remove=_button("/removedevice", "Remove", fields=field),
        )
    return fill(
        '<div class="card"><div class="row">$head<span class="busy">Status: running</span>'
        '<span class="faint">Job ID: $id</span><span class="grow">Job Name: $link</span>$cancel'
        '</div><div class="row faint"><span class="grow">Command: $command</span></div></div>',
        head=head,
        id=job["jobID"],
        link=_link(job),
        cancel=_button(f"/canceljob/{job['jobID']}", "Cancel", "danger"),
        command=job["jobCommand"],
    )


def _link(job: Job) -> Html:
    return fill('<a href="/jobinfo/$id">$name</a>', id=job["jobID"], name=job["jobName"])
