"""Add and remove backends, and ask them for their nodes."""

from __future__ import annotations

import os
import time

from stoker.client.queue import Queue
from stoker.engine.model import LOCAL
from stoker.engine.store.meta import tag_base
from stoker.errors import Conflict, Unavailable, UsageError
from stoker.features.backends import store as backends
from stoker.features.backends.nodes import Node
from stoker.features.backends.options import CAPABILITIES, KINDS, RAY, SLURM, check_options
from stoker.features.backends.protocol import Rejected, Unreachable, open_backend
from stoker.features.backends.store import BackendRow
from stoker.text.plurals import plural

_MARK = ".stoker-queue"  # file with the number and the state folder of the queue
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def add_backend(
    queue: Queue, name: str, kind: str, options: dict[str, str], folder: str | None
) -> BackendRow:
    """Add a backend, or change one of the same kind, after a first contact with its engine.

    Raises UsageError, Conflict, or Unavailable if the engine does not answer.
    """
    _check_name(name)
    if kind == LOCAL or kind not in KINDS:
        raise UsageError(
            f"`{kind}` is not a kind of backend",
            f"kinds: {', '.join(k for k in KINDS if k != LOCAL)}",
        )
    check_options(kind, options)
    known = backends.backend(queue.db, name)
    if known is not None and known.kind != kind:
        raise Conflict(
            f"`{name}` is a {known.kind} backend", f"remove it first: stoker backend rm {name}"
        )
    row = BackendRow(
        name=name,
        kind=kind,
        options=options,
        environment=_environment(kind),
        folder=_folder(queue, kind, name, folder, known),
        nodes=(),
        problem=None,
        checked_at=None,
    )
    nodes = ask_nodes(queue, row)
    if row.folder is not None:
        try:
            os.makedirs(row.folder, 0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create the folder `{row.folder}`: {error.strerror}") from None
        _take_folder(queue, row.folder)
    with queue.db.transaction():
        backends.add(queue.db, name, kind, options, row.folder, row.environment)
        backends.record_nodes(queue.db, name, nodes, time.time())
    return row._replace(nodes=tuple(nodes))


def _environment(kind: str) -> dict[str, str]:
    """The variables of this process that lead to the engine; the daemon may have others."""
    prefixes = {SLURM: ("SLURM_CONF",), RAY: ("RAY_ADDRESS", "RAY_AUTH_")}[kind]
    return {
        key: value for key, value in os.environ.items() if key == "PATH" or key.startswith(prefixes)
    }


def _check_name(name: str) -> None:
    if name == LOCAL:
        raise UsageError("`local` is this host; it is always there", "use another name")
    if not name or not set(name) <= _NAME_CHARS or name[0] in "-.":
        raise UsageError(
            f"`{name}` is not a valid name of a backend", "use letters, digits, - and _"
        )


def _take_folder(queue: Queue, folder: str) -> None:
    """Mark a folder as that of this queue. Raises Conflict if it is that of another one.

    Job ids are those of one queue, so two queues would overwrite each other's files.
    """
    own = f"{tag_base(queue.db)}"
    path = os.path.join(folder, _MARK)
    where = f"{os.path.abspath(queue.settings.state_dir)} on {os.uname().nodename}"
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(f"{own}\n{where}\n")
    except FileExistsError:
        with open(path, encoding="utf-8", errors="replace") as file:
            number, other = [*file.read().split("\n"), "", ""][:2]
        if number != own:
            raise Conflict(
                f"the folder `{folder}` holds files of another queue ({other})",
                "choose another one with --folder",
            ) from None
    except OSError as error:
        raise UsageError(f"cannot write to the folder `{folder}`: {error.strerror}") from None


def _folder(
    queue: Queue, kind: str, name: str, given: str | None, known: BackendRow | None
) -> str | None:
    """Where the files of jobs lie: on a file system that the nodes share, if they need one."""
    used = backends.folder_with_files(queue.db, name)
    if used is not None and given is not None and os.path.abspath(given) != used:
        raise Conflict(
            f"the files of the jobs of `{name}` are in {used}",
            "remove its jobs first, or add a backend with another name",
        )
    if given is not None:
        return os.path.abspath(given)
    if used is not None:
        return used
    if known is not None:
        return known.folder
    if not CAPABILITIES[kind].needs_shared_files:
        return None
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(base, "stoker", "backends", f"{name}-{os.uname().nodename}")


def ask_nodes(queue: Queue, row: BackendRow) -> list[Node]:
    """The nodes of a backend. Raises Unavailable if its engine does not answer."""
    backend = open_backend(row, queue.settings)
    try:
        return backend.nodes()
    except (Unreachable, Rejected) as error:
        raise Unavailable(f"the backend `{row.name}` cannot be used: {error}") from None
    finally:
        backend.close()


def remove_backend(queue: Queue, name: str) -> None:
    """Remove a backend. Raises Conflict if it has jobs that wait or run."""
    left = backends.unfinished_jobs(queue.db, name)
    if left:
        raise Conflict(
            f"{plural(left, 'job')} of the backend `{name}` {'has' if left == 1 else 'have'}"
            " not finished",
            f"cancel them first; `stoker ls --on {name}` lists them",
        )
    with queue.db.transaction():
        backends.remove(queue.db, name)
