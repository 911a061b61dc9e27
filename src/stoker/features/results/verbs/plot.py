"""`stoker plot`: learning curves and parameter plots, in the terminal or as an image."""

from __future__ import annotations

from stoker.text.command_line import Option, Parsed, Verb, count, smoothing

VERB = Verb(
    "plot",
    "plot [OPTIONS] [SWEEP | SWEEP/TRIAL | JOBS | FOLDER]...",
    "Plot the learning curves of trials, or a metric against parameters.",
    (
        Option(
            "-m --metric",
            "the metric: val_loss or acc:max (default: that of the sweep)",
            "NAME[:GOAL]",
        ),
        Option("-p --param", "plot the metric against this parameter", "NAME"),
        Option("-a --params", "plot the metric against every parameter"),
        Option(
            "-g --group",
            "one line per value of lr (or lr,opt; sweep): mean, and the lowest"
            " to the highest value",
            "COLUMNS",
        ),
        Option("-s --smooth", "exponential moving average: 0 (none) to 0.999", "WEIGHT", smoothing),
        Option(
            "-x --x",
            "plot curves over steps (the default) or time: seconds since the start",
            "step|time",
            completes="step|time",
        ),
        Option("-o --output", "write an image: .png or .svg (needs stoker[plot])", "FILE"),
        Option("--log-x", "logarithmic axis for steps or time"),
        Option("--log-y", "logarithmic axis for values"),
        Option("--ascii", "use only ASCII characters"),
        Option("--width", "columns, 24 to 1000 (default: width of the terminal)", "N", count),
        Option(
            "--height", "lines, 6 to 500 (default: height of the terminal, at most 40)", "N", count
        ),
    ),
    (
        ("stoker plot brave-otter", "learning curves"),
        ("stoker plot brave-otter --group lr --smooth 0.6", "mean over seeds, smoothed"),
        ("stoker plot brave-otter calm-fox --group sweep", "two sweeps"),
        ("stoker plot brave-otter --param lr", ""),
        ("stoker plot brave-otter --params -o overview.png", ""),
        ("stoker plot 12 13 --metric val_loss", "jobs outside a sweep"),
    ),
    words="sweeps",
)


def run(parsed: Parsed) -> int:
    # Imported here, so that completion loads only the table above.
    from stoker.features.results.plot_command import run

    return run(parsed)
