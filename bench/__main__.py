"""`python -m bench`: run benchmarks, print Markdown. `--help` lists the options."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import machine
from bench.bulk import measure_bulk
from bench.clean import measure_clean
from bench.cli import measure_cli
from bench.depth import measure_depth
from bench.gap import measure_gap
from bench.lab import Lab, open_lab
from bench.process import ToolError
from bench.race import BenchPlan
from bench.report import Section
from bench.slurm import measure_slurm
from bench.table import replace_between_markers
from bench.throughput import measure_throughput
from bench.tools import NAMES, chosen_tools
from bench.tools.base import Tool
from bench.workload import FORMS

BENCHMARKS = ("throughput", "gap", "cli", "bulk", "depth", "clean", "slurm")


def main() -> None:
    options = parse_options(sys.argv[1:])
    try:
        with open_lab(keep=options.keep) as lab:
            if options.keep:
                print(f"keeping {lab.root}", file=sys.stderr)
            publish(lab, options)
    except ToolError as error:
        raise SystemExit(f"bench: {error}") from None


def publish(lab: Lab, options: argparse.Namespace) -> None:
    """Run the selected benchmarks and print each section as soon as it is complete."""
    tools, missing = chosen_tools(lab, options.tools)
    if options.list:
        for tool in tools:
            print(f"{tool.name:<22}{tool.version()}")
        for name, reason in missing.items():
            print(f"{name:<22}not available: {reason}")
        return
    opening = machine_text(lab)
    if missing:
        opening += "\n\nNot run:\n\n"
        opening += "\n".join(f"- {name}: {reason}" for name, reason in missing.items())
    print(opening, flush=True)
    sections = []
    for name in options.benchmarks:
        section = measure(name, lab, tools, options)
        print(f"\n{section.markdown()}", flush=True)
        sections.append(section)
    if options.json:
        found = {"machine": machine.facts(lab.root), "not_run": missing}
        records = {section.name: section.data() for section in sections}
        options.json.write_text(json.dumps({**found, **records}, indent=1) + "\n")
    if options.markdown:
        parts = [opening, *(section.markdown() for section in sections)]
        replace_between_markers(options.markdown, "\n\n".join(parts))


def measure(name: str, lab: Lab, tools: Sequence[Tool], options: argparse.Namespace) -> Section:
    """Run one benchmark."""
    sizes: list[int] = options.sizes
    if name == "cli":
        return measure_cli(lab, sizes, options.samples)
    if name == "bulk":
        return measure_bulk(lab, sizes[1:] or sizes, options.repeats)
    if name == "clean":
        return measure_clean(lab, sizes[1:2] or sizes, options.repeats)
    if name == "depth":
        return measure_depth(lab, sizes, options.slots[0], options.repeats)
    if name == "slurm":
        return measure_slurm(lab, options.slurm_jobs, options.repeats)
    if name == "gap":
        plan = BenchPlan(options.forms, options.slots[:1], options.gap_jobs, options.repeats, True)
        return measure_gap(lab, tools, plan)
    plan = BenchPlan(options.forms, options.slots, options.jobs, options.repeats, False)
    return measure_throughput(lab, tools, plan)


def machine_text(lab: Lab) -> str:
    facts = machine.facts(lab.root)
    return "Machine: " + ", ".join(f"{key} {value}" for key, value in facts.items()) + "."


def parse_options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("benchmarks", nargs="*", default=["all"], help=f"{', '.join(BENCHMARKS)}, or all")
    add("--slots", type=numbers, default=[4, 8], help="default 4,8; gap and depth use the first")
    add("--jobs", type=int, default=400, help="jobs per throughput run (default 400)")
    add("--gap-jobs", type=int, default=100, help="jobs per gap run (default 100)")
    add("--repeats", type=int, default=5, help="default 5; at most 3 for bulk, depth, clean, slurm")
    add("--slurm-jobs", type=int, default=2000, help="jobs per Slurm run (default 2000)")
    add("--samples", type=int, default=40, help="calls of each command in cli (default 40)")
    add("--sizes", type=numbers, default=[1_000, 100_000, 1_000_000], help="queue sizes")
    add("--forms", type=names, default=list(FORMS), help="shell,plain")
    add("--tools", type=names, default=list(NAMES), help="default: all that are available")
    add("--json", type=Path, help="write all figures to this file")
    add("--markdown", type=Path, help="write the tables between the markers in this file")
    add("--keep", action="store_true", help="keep the temp folder")
    add("--list", action="store_true", help="list the available tools and exit")
    options = parser.parse_args(words)
    if "all" in options.benchmarks:
        options.benchmarks = list(BENCHMARKS)
    for word, known in (
        *((word, BENCHMARKS) for word in options.benchmarks),
        *((word, NAMES) for word in options.tools),
        *((word, FORMS) for word in options.forms),
    ):
        if word not in known:
            parser.error(f"unknown: {word} (known: {', '.join(known)})")
    return options


def names(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def numbers(text: str) -> list[int]:
    found = [int(word.replace("_", "")) for word in names(text)]
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError("expected positive numbers separated by commas")
    return found


if __name__ == "__main__":
    main()
