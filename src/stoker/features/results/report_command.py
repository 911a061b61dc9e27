"""Runs `stoker report`: gather the report and write it."""

from __future__ import annotations

import os
import sys
import tempfile

from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, print_json
from stoker.errors import Conflict, UsageError
from stoker.features.results.report_html import html
from stoker.features.results.report_markdown import markdown
from stoker.features.results.results_command import write_stdout
from stoker.features.results.sweep_report import ReportRequest, sweep_report
from stoker.features.results.sweep_report_model import Report
from stoker.text.command_line import Parsed
from stoker.text.plurals import plural
from stoker.text.terminal import printable

_FORMATS = {"md": "md", "markdown": "md", "html": "html", "htm": "html"}


def run(parsed: Parsed) -> int:
    if len(parsed.words) != 1:
        given = f"not {len(parsed.words)}" if parsed.words else "and none was given"
        raise UsageError(
            f"`stoker report` needs the name of one sweep, {given}",
            "list the sweeps with: stoker sweep ls",
        )
    form, path = _format(parsed), parsed["output"]
    request = ReportRequest(
        metric=parsed["metric"],
        group=tuple(name for text in parsed["group"] or () for name in text.split(",") if name),
        top=parsed["top"] or 10,
        smooth=parsed["smooth"] or 0.0,
    )
    name = parsed.words[0].removeprefix("sweep:")
    report = sweep_report(open_queue(), name, request)
    if path is None or parsed["to_stdout"]:
        if parsed["json"] and not parsed["to_stdout"]:
            print_json(report=html(report) if form == "html" else markdown(report), format=form)
            return 0
        write_stdout(_bytes(html(report) if form == "html" else markdown(report)))
        return 0
    files = _files(report, path, form)
    if not may_write(list(files), parsed):
        return 1
    for place, data in files.items():
        _write(place, data)
    if parsed["json"]:
        print_json(files=list(files))
    else:
        notice(f"wrote {', '.join(map(printable, files))}")
    return 0


def _format(parsed: Parsed) -> str:
    given = parsed["format"]
    if given is not None:
        if given.lower() not in _FORMATS:
            raise UsageError(f"`{given}` is not a format of reports", "use md or html")
        return _FORMATS[given.lower()]
    path = parsed["output"]
    if path is None:
        return "md"
    suffix = path.rpartition(".")[2].lower() if "." in os.path.basename(path) else ""
    if suffix not in _FORMATS:
        raise UsageError(f"`{path}` has an unknown suffix", "use .md or .html, or give --format")
    return _FORMATS[suffix]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _files(report: Report, path: str, form: str) -> dict[str, bytes]:
    """The files of a report: itself, and with matplotlib the images beside Markdown."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        if report.figures:
            notice("plots are text, because matplotlib is not installed: pip install stoker[plot]")
        return {path: _bytes(html(report) if form == "html" else markdown(report))}
    if form == "html":
        return {path: _bytes(html(report))}
    from stoker.features.results.image_plot import draw

    stem = path.rpartition(".")[0] or path
    images = {f"{stem}-{n}.png": draw(one, "png") for n, one in enumerate(report.figures, 1)}
    return {path: _bytes(markdown(report, list(map(os.path.basename, images)))), **images}


def may_write(places: list[str], parsed: Parsed) -> bool:
    """Whether files may be written: on a terminal, the user is asked before any is replaced.

    Raises Conflict in a script, and UsageError for a folder.
    """
    known = [place for place in places if os.path.lexists(place)]
    for place in known:
        if os.path.isdir(place):
            raise UsageError(f"`{place}` is a folder", "give the name of a file")
    if not known or parsed["force"]:
        return True
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()) or parsed["json"]:
        raise Conflict(f"`{known[0]}` exists already", "to replace it, use --force")
    which = printable(known[0]) if len(known) == 1 else plural(len(known), "file")
    notice(f"replace {which}? [y/N] ", end="")
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    notice("nothing was written")
    return False


def _write(path: str, data: bytes) -> None:
    """Write a file as a whole: a reader sees the old one or the new one."""
    folder, base = os.path.split(os.path.abspath(path))
    try:
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{base[:100]}.")
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            mask = os.umask(0o077)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None
