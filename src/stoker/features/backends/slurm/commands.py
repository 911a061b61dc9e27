"""Run Slurm's commands, and tell an engine that does not answer from one that refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from stoker.features.backends.protocol import Rejected, Unreachable

TIMEOUT_SECONDS = 60.0

# Slurm reads defaults from these variables; a user's own format or filter would break parsing.
_PREFIXES = ("SQUEUE_", "SACCT_", "SBATCH_", "SINFO_", "SCANCEL_", "SCONTROL_", "SALLOC_", "SLURM_")
_KEPT = ("SLURM_CONF",)
# Texts of errors after which nothing is known about the request.
_UNREACHABLE = (
    "unable to contact slurm controller", "connection refused", "connect failure",
    "communication connection failure", "socket timed out", "munge", "authentication",
    "credential", "zero bytes were transmitted", "slurm backup controller in standby",
    "resource temporarily unavailable", "unable to establish", "unexpected message",
    "slurm_persist_conn", "transport endpoint", "unable to process configuration",
    "configuration source", "connection reset", "connection abort", "connection timed out",
    "broken pipe", "no route to host", "network is unreachable",
)  # fmt: skip
# Limits of the cluster: the same request may be accepted later.
_LIMITS = (
    "maxsubmitjob",
    "max submit",
    "job violates accounting/qos policy",
    "maxjobcount",
    "job submit limit",
    "slurm temporarily unable to accept job",
    "too many",
)


def slurm_environment(added: Mapping[str, str] = {}) -> dict[str, str]:
    """The environment of Slurm's commands; the programs of `added` are found after our own."""
    env = {
        key: value
        for key, value in os.environ.items()
        if key in _KEPT or not key.startswith(_PREFIXES)
    }
    paths = [part for part in (env.get("PATH"), added.get("PATH")) if part]
    return {
        **env,
        **added,
        "PATH": ":".join(paths),
        "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
    }


def is_ending(job: str) -> bool | None:
    """Whether Slurm ends this job, for another process of it; None: Slurm does not say.

    Slurm changes the state before it sends signals. A preempted job runs on for its grace time.
    """
    try:
        text = run_slurm(["squeue", "-h", "-O", "State:30,PreemptTime:30", "-j", job], timeout=10.0)
    except (Unreachable, Rejected):
        return None
    words = text.split()
    return None if len(words) != 2 else words[0] != "RUNNING" or words[1].isdigit()


def run_slurm(
    argv: list[str],
    stdin: str | None = None,
    added: Mapping[str, str] = {},
    timeout: float = TIMEOUT_SECONDS,
) -> str:
    """Return what a command prints. Raises Unreachable or Rejected."""
    env = slurm_environment(added)
    name, *arguments = argv
    program = shutil.which(name, path=env["PATH"]) or name
    try:
        done = subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=env,
            check=False,
            stdin=subprocess.DEVNULL if stdin is None else None,
        )
    except FileNotFoundError:
        raise Unreachable(f"the program `{name}` is not installed on this host") from None
    except OSError as error:
        raise Unreachable(f"cannot run `{name}`: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"Slurm does not answer: `{name}` ran for {timeout:.0f} s") from None
    if done.returncode == 0:
        return done.stdout
    text = error_text(done.stderr or done.stdout) or f"exit code {done.returncode}"
    lower = text.lower()
    if any(part in lower for part in _UNREACHABLE):
        raise Unreachable(f"Slurm cannot be reached: {text}")
    raise Rejected(text, any(part in lower for part in _LIMITS))


def error_text(stderr: str) -> str:
    """The error of a Slurm command in one line, without its prefixes.

    >>> error_text("sbatch: error: invalid partition specified: x\\nsbatch: error: Batch job sub"
    ...            "mission failed: Invalid partition name specified\\n")
    'invalid partition specified: x; Batch job submission failed: Invalid partition name specified'
    """
    found = []
    for line in stderr.splitlines():
        words = line.strip()
        program, _, rest = words.partition(": ")
        if program.isalpha() and program.islower() and rest:
            words = rest
        words = words.removeprefix("error: ").removeprefix("fatal: ").strip()
        if words and words not in found:
            found.append(words)
    return "; ".join(found)
