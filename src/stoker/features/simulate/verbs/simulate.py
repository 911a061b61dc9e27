"""`stoker simulate`: waiting times of a recorded trace of jobs under different policies."""

from __future__ import annotations

import csv
import sys
import time
from random import Random

from stoker.cli.output import notice, print_json, table
from stoker.engine.model import Rules
from stoker.engine.profiles.estimates import Estimate
from stoker.errors import UsageError
from stoker.features.simulate.replay import ReplayProfiles, Result, TraceJob, replay
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.durations import format_duration
from stoker.text.plurals import plural_word

_POLICIES = ("fifo", "backfill", "learned", "oracle")


def _gpus(text: str) -> list[int]:
    if not all(part.isdigit() and int(part) for part in text.split(",")):
        raise UsageError(f"`{text}` is not a number of GPUs", "example: 16 or 16,24,32")
    return [int(part) for part in text.split(",")]


def _policies(text: str) -> list[str]:
    names = list(_POLICIES) if text == "all" else text.split(",")
    for name in names:
        if name not in _POLICIES:
            raise UsageError(f"`{name}` is not a policy", f"policies: {', '.join(_POLICIES)}, all")
    return names


def _users(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise UsageError(f"`{text}` is not a number of users", "example: 4")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"`{text}` is not a share from 0 to 1", "example: 0.3")
    return share


VERB = Verb(
        "simulate",
        "simulate [OPTIONS] TRACE.csv",
        "Replay a trace of jobs in virtual time with the policy code of the scheduler.",
        (
            Option("--gpus", "number of GPUs (default: 8); a list compares several", "N[,N]",
                   _gpus),
            Option("--preemptible", "share of jobs that are preemptible, 0 to 1, chosen at random",
                   "SHARE", _share),
            Option("--users", "divide the jobs at random among users: the second has half as many"
                   " as the first, the third a third, and so on", "N", _users),
            Option("--policy", "fifo, backfill, learned, oracle or all (default)", "NAME",
                   _policies, completes="|".join((*_POLICIES, "all"))),
        ),
        (
            ("stoker simulate jobs.csv --gpus 16,24,32", ""),
            ("stoker simulate jobs.csv --gpus 8 --policy learned --json", ""),
            ("stoker simulate jobs.csv --gpus 16 --preemptible 0.3", ""),
            ("stoker simulate jobs.csv --gpus 16 --users 4 --policy learned", ""),
        ),
        """The trace is a CSV file with the columns submit_s, duration_s and gpus. Jobs with the
same number of GPUs and the same family, name, user or vc (the first of these columns that exists)
share a command profile. If there is a column preemptible, jobs with 1 there are preemptible; a job
that gives way continues later where it was stopped. Their waits, which count all time in the queue,
are shown apart, and so are those of each user (--users, or a column group): each is a fair-share
group.

Policies:
  fifo      strict order of submission
  backfill  EASY backfill with time limits: the duration, rounded up to 1, 4, 12, 24, 72 or 168 h
  learned   what Stoker does: highest response ratio next (HRRN), by durations learned per profile;
    in a trace without profiles, by the true duration times a log-normal factor (sigma 1)
  oracle    HRRN by true durations""",
        words="files",
    )  # fmt: skip


def run(parsed: Parsed) -> int:
    if len(parsed.words) != 1:
        raise UsageError("no trace given", "example: stoker simulate jobs.csv --gpus 16")
    jobs = _read(parsed.words[0])
    if parsed["preemptible"] is not None:
        share = parsed["preemptible"]
        jobs = [job._replace(preemptible=Random(-job.id).random() < share) for job in jobs]
    if parsed["users"] is not None:
        names = [f"user{number}" for number in range(1, parsed["users"] + 1)]
        weights = [1 / number for number in range(1, parsed["users"] + 1)]
        jobs = [
            job._replace(user=Random(f"user of {job.id}").choices(names, weights)[0])
            for job in jobs
        ]
    has_kinds = any(job.preemptible for job in jobs)
    has_users = any(job.user for job in jobs)
    records: list[dict[str, object]] = []
    code = 0
    try:
        _simulate_all(jobs, parsed, has_kinds, has_users, records)
    except KeyboardInterrupt:
        notice("interrupted; only simulations that were complete are shown")
        code = 130
    if parsed["json"]:
        print_json(simulations=records)
    else:
        rows = [_row(record) for record in records]
        header = (
            "GPUS",
            "POLICY",
            *(("USER", "COUNT") if has_users else ()),
            *(("JOBS",) if has_kinds else ()),
            "WAIT MEAN",
            "P50",
            "P95",
            "P99",
            "MAX",
            "MAKESPAN",
            "UTIL",
            "SIM TIME",
        )
        print(table(header, rows))
    return code


def _simulate_all(
    jobs: list[TraceJob],
    parsed: Parsed,
    has_kinds: bool,
    has_users: bool,
    records: list[dict[str, object]],
) -> None:
    """Simulate every number of GPUs with every policy; adds what is complete to `records`."""
    for gpus in parsed["gpus"] or [8]:
        usable = [job for job in jobs if job.gpus <= gpus]
        if len(usable) < len(jobs):
            notice(f"{len(jobs) - len(usable)} jobs need more than {gpus} GPUs and are skipped")
        for policy in parsed["policy"] or _POLICIES:
            if sys.stderr.isatty():
                notice(f"simulating {len(usable)} jobs on {gpus} GPUs, {policy} ...")
            began = time.perf_counter()
            result = simulate(usable, gpus, policy)
            took = time.perf_counter() - began
            classes: dict[tuple[str | None, bool | None], list[float]] = {}
            if has_kinds and not has_users:
                classes = {(None, False): [], (None, True): []}
            for job, wait in zip(usable, result.waits, strict=True):
                user = job.user if has_users else None
                kind = job.preemptible if has_kinds else None
                classes.setdefault((user, kind), []).append(wait)
            for (user, kind), waits in sorted(classes.items()):
                records.append(_record(gpus, policy, result, waits, took, kind, user))


def simulate(jobs: list[TraceJob], gpus: int, policy: str) -> Result:
    is_fair = policy != "fifo" and any(job.user for job in jobs)
    rules = Rules(
        backfill=policy != "fifo", short_first=policy in ("learned", "oracle"), is_fair=is_fair
    )
    jobs, profiles = _profiles(jobs, policy)
    return replay(jobs, gpus, rules, profiles)


def _profiles(jobs: list[TraceJob], policy: str) -> tuple[list[TraceJob], ReplayProfiles]:
    """The jobs, and the estimates of their durations that a policy has."""
    if policy == "backfill":
        return [job._replace(time_limit=_rounded(job.seconds)) for job in jobs], ReplayProfiles()
    if policy == "learned" and any(job.profile for job in jobs):
        return jobs, ReplayProfiles(learns=True)
    if policy == "fifo":
        return jobs, ReplayProfiles()
    known = {job.id: Estimate(job.seconds) for job in jobs}
    if policy == "learned":
        for job in jobs:
            known[job.id] = Estimate(job.seconds * Random(job.id).lognormvariate(0.0, 1.0))
    return [job._replace(profile=job.id) for job in jobs], ReplayProfiles(known)


def _rounded(seconds: float) -> float:
    for hours in (1, 4, 12, 24, 72, 168):
        if seconds <= hours * 3600:
            return hours * 3600.0
    return seconds * 1.5


def _read(path: str) -> list[TraceJob]:
    jobs = []
    profiles: dict[tuple[str, int], int] = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or []
            missing = {"submit_s", "duration_s", "gpus"} - set(columns)
            if missing:
                names = plural_word(len(missing), "column")
                raise UsageError(
                    f"`{path}` is missing the {names} {', '.join(sorted(missing))}",
                    "required columns: submit_s, duration_s, gpus",
                )
            kind = next((c for c in ("family", "name", "user", "vc") if c in columns), None)
            for number, row in enumerate(reader, 2):
                try:
                    job = TraceJob(
                        number,
                        float(row["submit_s"]),
                        float(row["duration_s"]),
                        int(row["gpus"]),
                    )
                except (ValueError, TypeError):
                    raise UsageError(
                        f"line {number} of `{path}`: submit_s, duration_s and gpus must be numbers"
                    ) from None
                if job.gpus < 1 or job.seconds < 0:
                    raise UsageError(
                        f"line {number} of `{path}`: gpus must be at least 1, duration_s at least 0"
                    )
                word = (row.get("preemptible") or "").strip().lower()
                user = (row.get("group") or "").strip()
                job = job._replace(preemptible=word in ("1", "true", "yes"), user=user)
                if kind:
                    key = (row[kind], job.gpus)
                    job = job._replace(profile=profiles.setdefault(key, len(profiles) + 1))
                jobs.append(job)
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read `{path}`: it is not UTF-8 text") from None
    except csv.Error as error:
        raise UsageError(f"`{path}` is not a CSV file: {error}") from None
    return jobs


def _record(
    gpus: int,
    policy: str,
    result: Result,
    waits: list[float],
    took: float,
    is_preemptible: bool | None,
    user: str | None,
) -> dict[str, object]:
    """`is_preemptible`, `user`: the jobs to which the waits belong; None: all of them."""
    waits = sorted(waits)
    return {
        "gpus": gpus,
        "policy": policy,
        "user": user,
        "preemptible": is_preemptible,
        "preemptions": result.preemptions,
        "jobs": len(waits),
        "wait_mean_s": sum(waits) / len(waits) if waits else 0.0,
        "wait_p50_s": _quantile(waits, 0.5),
        "wait_p95_s": _quantile(waits, 0.95),
        "wait_p99_s": _quantile(waits, 0.99),
        "wait_max_s": waits[-1] if waits else 0.0,
        "makespan_s": result.makespan,
        "utilisation": result.utilization,
        "took_s": took,
    }


def _quantile(waits: list[float], share: float) -> float:
    return waits[min(len(waits) - 1, int(share * len(waits)))] if waits else 0.0


_TIMES = ("wait_mean_s", "wait_p50_s", "wait_p95_s", "wait_p99_s", "wait_max_s", "makespan_s")


def _row(record: dict[str, object]) -> tuple[object, ...]:
    times = [format_duration(float(str(record[key]))) for key in _TIMES]
    used = f"{100 * float(str(record['utilisation'])):.0f}%"
    took = f"{float(str(record['took_s'])):.1f}s"
    kind = record["preemptible"]
    of_kind = () if kind is None else ("preemptible" if kind else "normal",)
    of_user = () if record["user"] is None else (record["user"] or "-", record["jobs"])
    return (record["gpus"], record["policy"], *of_user, *of_kind, *times, used, took)
