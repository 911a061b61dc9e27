"""`stoker report`: a report of a sweep as Markdown or HTML."""

from __future__ import annotations

from stoker.text.command_line import Option, Parsed, Verb, positive, smoothing

VERB = Verb(
    "report",
    "report [OPTIONS] SWEEP",
    "Write a report of a sweep: note, failures, best trials, groups over seeds, curves, parameter"
    " importance, provenance, and the commands to repeat it.",
    (
        Option("-o --output", "write a file, .md or .html (default: Markdown on stdout)", "FILE"),
        Option("-f --format", "md or html, if the name of the file does not say it", "FORMAT",
               completes="md|html"),
        Option("-m --metric", "the metric: val_loss or acc:max (default: that of the sweep)",
               "NAME[:GOAL]", completes="metrics"),
        Option("-g --group", "group trials that are equal in these columns (default: all but"
               " seeds, if there are seeds)", "COLUMNS", many=True),
        Option("-n --top", "number of best trials to list (default: 10)", "N", positive),
        Option("--smooth", "smooth the curves: 0 (default) to 0.999", "WEIGHT", smoothing),
        Option("--force", "replace existing files without asking"),
    ),
    (
        ("stoker report brave-otter", "Markdown, with plots as text"),
        ("stoker report brave-otter -o report.html", "one file without scripts, to send around"),
        ("stoker report brave-otter -o report.md", "with images beside it (needs stoker[plot])"),
        ("stoker report brave-otter --group lr,opt --metric acc:max", ""),
    ),
    """The HTML is one file that loads nothing. Markdown refers to images beside it, NAME-1.png;
on stdout, its plots are text. Images need matplotlib; without it, all plots are text.
`stoker note SWEEP` writes the text at the beginning of the report.""",
    words="sweeps",
)  # fmt: skip


def run(parsed: Parsed) -> int:
    # Imported here, so that completion loads only the table above.
    from stoker.features.results.report_command import run

    return run(parsed)
