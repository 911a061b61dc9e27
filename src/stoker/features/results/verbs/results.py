"""`stoker results`: the results of a sweep or of other jobs, as a table."""

from __future__ import annotations

from stoker.text.command_line import Option, Parsed, Verb, count

VERB = Verb(
        "results",
        "results [OPTIONS] [SWEEP | SWEEP/TRIAL | JOBS | FOLDER]...",
        "Show the metrics of each trial of a sweep. Without arguments: the newest sweep.",
        (
            Option("-s --sort", "sort by columns: val_loss, -acc (largest first), lr,-acc",
                   "COLUMNS"),
            Option("-w --where", "show only matching rows: 'lr < 0.01 and state == \"done\"'",
                   "EXPR", many=True),
            Option("-b --best", "show the best N trials by the sweep's metric (or --metric)", "N",
                   count),
            Option("-m --metric", "the metric for --best and --group: val_loss or acc:max",
                   "NAME[:GOAL]"),
            Option("-g --group", "mean and standard deviation over rows with equal values of"
                   " lr,opt", "COLUMNS"),
            Option("--compare", "compare runs side by side: parameters and code that differ, and"
                   " metrics"),
            Option("-c --columns", "show only these columns", "COLUMNS"),
            Option("-a --all", "also show what is equal in all trials: parameters; with --compare,"
                   " code and host too"),
            Option("-n --limit", "show at most N rows; with --compare, compare the best N runs"
                   " (default: 20)", "N", count),
            Option("--csv", "print CSV"),
            Option("--jsonl", "print JSON lines"),
            Option("--parquet", "write a Parquet file", "FILE"),
            Option("-o --output", "write to a .csv, .json, .jsonl, .parquet or .html file",
                   "FILE"),
        ),
        (
            ("stoker results brave-otter --sort val_loss", ""),
            ("stoker results brave-otter --best 3", ""),
            ("stoker results brave-otter --group lr --metric val_loss", "average over seeds"),
            ("stoker results brave-otter --where 'lr < 0.01' --csv > table.csv", ""),
            ("stoker results 12-20", "jobs outside a sweep"),
            ("stoker results brave-otter/3 calm-fox/7 12 --compare", "two trials and a job"),
        ),
        """A job reports metrics with `stoker.log(val_loss=0.2, step=10)` in Python, by appending
JSON lines to $STOKER_METRICS, or by printing `stoker: val_loss=0.2 step=10`. The table shows the
last value of each metric. FOLDER is the log folder of `stoker run`.""",
        words="sweeps",
    )  # fmt: skip


def run(parsed: Parsed) -> int:
    # Imported here, so that completion loads only the table above.
    from stoker.features.results.results_command import run

    return run(parsed)
