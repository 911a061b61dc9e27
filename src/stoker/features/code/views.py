"""The code of a job, and the host and versions of its attempts, as text and JSON."""

from __future__ import annotations

from stoker.engine.store import machines
from stoker.engine.store.database import Database
from stoker.engine.store.machines import Machine
from stoker.features.code import store as code_states
from stoker.features.code.store import StoredCode
from stoker.text.sizes import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.client.views import job_types
    from stoker.engine.store.job_queries import JobRow

_SHOWN_HASH = 12


def code_words(code: StoredCode) -> str:
    """`commit 1a2b3c4d5e6f on main, with changes`: the code at submit."""
    if code.commit is None and (code.problem or "").startswith("in no git repository"):
        return str(code.problem)
    words = "no commit yet" if code.commit is None else f"commit {code.commit[:_SHOWN_HASH]}"
    if code.commit is None and code.problem is not None:
        words = "unknown commit"
    words += " (detached HEAD)" if code.branch is None else f" on {code.branch}"
    if code.is_dirty:
        words += f", with changes ({code.problem or format_size(code.diff_bytes) + ' diff'})"
    elif code.is_dirty is None:
        words += f" ({code.problem})"
    return words


def code_json(db: Database, row: JobRow) -> dict[str, job_types.Code | None]:
    """The code of a job at submit as JSON; null if its folder was in no git repository."""
    code = code_states.of_job(db, row.id)
    if code is None:
        return {"code": None}
    found: job_types.Code = {
        "root": code.root,
        "commit": code.commit,
        "branch": code.branch,
        "dirty": code.is_dirty,
        "diff_bytes": code.diff_bytes,
        "problem": code.problem,
        "summary": code_words(code),
    }
    return {"code": found}


def diff_of_job(db: Database, job: int) -> tuple[bytes, str | None]:
    """The diff of a job at submit; if there is none, the second value says why."""
    code = code_states.of_job(db, job)
    if code is None:
        return b"", f"the folder of job {job} was in no git repository when it was submitted"
    if code.problem is not None:
        return b"", code.problem
    if not code.is_dirty:
        commit = "no commit" if code.commit is None else f"commit {code.commit[:_SHOWN_HASH]}"
        return b"", f"the tracked files of job {job} were as in {commit} when it was submitted"
    return code_states.diff_of(db, code.id), None


def machine_words(machine: Machine, python: str | None) -> str:
    """`host box, Python 3.11, Stoker 0.1.0, driver 550.54, 2 x NVIDIA H200`."""
    words = [f"host {machine.host}"]
    words.append(f"Python {python}" if python else f"Python {machine.python} (of Stoker)")
    words.append(f"Stoker {machine.stoker}")
    if machine.driver:
        words.append(f"driver {machine.driver}")
    if machine.gpus:
        words.append(machine.gpus)
    return ", ".join(words)


def machines_json(db: Database, job: int) -> dict[int, job_types.Machine]:
    """Host and versions of the attempts of a job, by number of attempt."""
    return {
        number: {
            "host": machine.host,
            "python": python or machine.python,
            "python_of": "job" if python else "stoker",
            "stoker": machine.stoker,
            "driver": machine.driver or None,
            "gpu_model": machine.gpus or None,
            "summary": machine_words(machine, python),
        }
        for number, (machine, python) in machines.of_attempts(db, job).items()
    }
