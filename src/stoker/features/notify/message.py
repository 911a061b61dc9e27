"""The text of a notification: one subject and one body for any number of notices."""

from __future__ import annotations

import re
from typing import Any

from stoker.features.notify.rules import FIRST_FAILURE, GPU_LOST, SWEEP_END, TIME_LIMIT
from stoker.record import Record
from stoker.text.durations import format_duration
from stoker.text.plurals import plural
from stoker.text.terminal import cut, printable

_TITLE_COLUMNS = 60
_SUBJECT_COLUMNS = 160
_LISTED = 20  # notices in the body of a message
_STATES = ("done", "failed", "lost", "cancelled")
_MOST_EVENTS = 100  # in the JSON of a message
_MASK = "***"
# Not followed by a letter: `--tokenizer` and `--max-tokens` are not secrets.
_NAMES = r"(?:pass(?:word|wd|phrase)|pwd|secret|token|api[-_]?key|access[-_]?key|auth)(?![a-z])"
# NAME=value and --name=value, also in quotes; `--name value`; and the user part of an address.
_ASSIGNED = re.compile(
    rf"(?i)((?:^|[\s'\"])-{{0,2}}[\w.+-]*{_NAMES}[\w.-]*[=:])('[^']*'|\"[^\"]*\"|[^\s'\"]+)"
)
_FLAG = re.compile(rf"(?i)((?:^|\s)--?[\w.-]*{_NAMES}[\w.-]*\s+)('[^']*'|\"[^\"]*\"|[^\s'\"-]\S*)")
_USER = re.compile(r"(\w[\w+.-]*://)[^\s/@]+@")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]+")


class Notice(Record):
    """One event for one place. `data` has the facts; missing ones are unknown."""

    kind: str  # a word of `--notify`
    job: int | None
    data: dict[str, Any]


class Sender(Record):
    """The queue that notifies."""

    host: str
    user: str


def compose(notices: list[Notice], sender: Sender) -> dict[str, Any]:
    """The content of a message: `subject`, `body`, `events`, `count`, `host` and `user`."""
    subject = subject_of(notices)
    body = _details(notices[0], sender) if len(notices) == 1 else _list(notices, sender)
    return {
        "subject": cut(printable(subject), _SUBJECT_COLUMNS),
        "body": "\n".join(printable(line) for line in body),
        "events": [_event(one) for one in notices[:_MOST_EVENTS]],
        "count": len(notices),
        "host": sender.host,
        "user": sender.user,
    }


def subject_of(notices: list[Notice]) -> str:
    """
    >>> failed = {"title": "train lr=0.1", "state": "failed", "seconds": 7800,
    ...           "result": "out of GPU memory"}
    >>> subject_of([Notice("failure", 7, failed)])
    'train lr=0.1 failed after 2h10m: out of GPU memory'
    >>> done = {"state": "done"}
    >>> subject_of([Notice("end", 1, done), Notice("end", 2, done), Notice("end", 3, failed)])
    '3 jobs ended: 2 done, 1 failed'
    """
    if len(notices) == 1:
        return sentence(notices[0])
    ends = [one for one in notices if one.kind not in (SWEEP_END, TIME_LIMIT, GPU_LOST)]
    others = [one for one in notices if one not in ends]
    parts = [sentence(one) for one in others[:2]]
    if len(others) > 2:
        parts.append(plural(len(others) - 2, "more event"))
    if len(ends) == 1:
        parts.insert(0, sentence(ends[0]))
    elif ends:
        counts: dict[str, int] = {}
        for one in ends:
            counts[one.data["state"]] = counts.get(one.data["state"], 0) + 1
        parts.insert(0, f"{len(ends)} jobs ended: {count_words(counts)}")
    return "; ".join(parts)


def count_words(counts: dict[str, int]) -> str:
    """
    >>> count_words({"failed": 2, "done": 35})
    '35 done, 2 failed'
    """
    return ", ".join(f"{counts[state]} {state}" for state in _STATES if counts.get(state))


def sentence(notice: Notice) -> str:
    """What happened, in one line.

    >>> sentence(Notice("time-limit", 7, {"title": "train", "limit": 7200, "left": 720}))
    'train reaches its time limit of 2h00m in 12m00s'
    """
    data = notice.data
    title = cut(printable(str(data.get("title") or f"job {notice.job}")), _TITLE_COLUMNS)
    if notice.kind == SWEEP_END:
        how = "was stopped" if data.get("stopped") else "finished"
        return f"{title} {how}{_after(data)}: {count_words(data.get('counts', {})) or 'no jobs'}"
    if notice.kind == TIME_LIMIT:
        limit, left = format_duration(data["limit"]), format_duration(data["left"])
        return f"{title} reaches its time limit of {limit} in {left}"
    if notice.kind == GPU_LOST:
        if notice.job is None:
            return f"GPU {data.get('gpu')} is not used any more: {data.get('why')}"
        return f"{title} lost its GPU{_after(data)}"
    text = f"{title} {_ENDS.get(data['state'], data['state'])}{_after(data)}"
    if data.get("result"):
        text += f": {data['result']}"
    if notice.kind == FIRST_FAILURE and data.get("group"):
        return f"first failure of {data['group']}: {text}"
    return text


_ENDS = {"done": "finished", "lost": "was lost", "cancelled": "was cancelled"}


def _after(data: dict[str, Any]) -> str:
    seconds = data.get("seconds")
    return "" if seconds is None else f" after {format_duration(seconds)}"


def _details(notice: Notice, sender: Sender) -> list[str]:
    data = notice.data
    facts = [
        ("job", "" if notice.job is None else _job(notice)),
        ("trial", data.get("trial")),
        ("detail", data.get("detail")),
        ("stopped", data.get("stopped")),
        ("host", f"{sender.host} (user {sender.user})"),
        ("runs on", data.get("place")),
        ("folder", data.get("cwd")),
        ("command", data.get("command")),
        ("log", data.get("log")),
        ("link", data.get("link")),
    ]
    lines = [f"{name}: {value}" for name, value in facts if value]
    if data.get("log_lines"):
        lines += ["", "last lines of its log:", *data["log_lines"]]
    return lines


def _job(notice: Notice) -> str:
    name = notice.data.get("name")
    return f"{notice.job} ({name})" if name else str(notice.job)


def _list(notices: list[Notice], sender: Sender) -> list[str]:
    """One line for each notice; failures come first."""
    ordered = sorted(notices, key=lambda one: one.data.get("state") in ("done", "cancelled"))
    lines = [
        sentence(one) if one.job is None else f"job {one.job}: {sentence(one)}"
        for one in ordered[:_LISTED]
    ]
    if len(notices) > _LISTED:
        lines.append(f"and {len(notices) - _LISTED} more")
    link = next((one.data["queue_link"] for one in notices if one.data.get("queue_link")), None)
    lines += ["", f"host: {sender.host} (user {sender.user})"]
    return [*lines, f"link: {link}"] if link else lines


_EVENT_FIELDS = (
    "name", "state", "cause", "result", "exit_code", "seconds", "command", "cwd", "place", "sweep",
    "trial", "counts", "stopped", "limit", "left", "gpu", "why", "link",
)  # fmt: skip


def _event(notice: Notice) -> dict[str, Any]:
    known = {key: notice.data[key] for key in _EVENT_FIELDS if notice.data.get(key) is not None}
    return {"when": notice.kind, "job": notice.job, "text": sentence(notice), **known}


def masked_command(command: str) -> str:
    """A command with values masked that look like secrets: a message leaves the machine.

    A secret in an argument without a telling name cannot be found (docs/notifications.md).

    >>> masked_command("WANDB_API_KEY=abc python train.py --token xyz --lr 0.1")
    'WANDB_API_KEY=*** python train.py --token *** --lr 0.1'
    >>> masked_command("curl https://me:pw@host/x -H 'Authorization: Bearer abc.def'")
    "curl https://***@host/x -H 'Authorization: Bearer ***'"
    >>> masked_command("python train.py --tokenizer bpe --max-tokens 100")
    'python train.py --tokenizer bpe --max-tokens 100'
    """
    command = _USER.sub(rf"\1{_MASK}@", command)
    command = _BEARER.sub(rf"\1{_MASK}", command)
    command = _ASSIGNED.sub(rf"\1{_MASK}", command)
    return _FLAG.sub(rf"\1{_MASK}", command)
