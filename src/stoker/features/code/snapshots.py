"""Take snapshots of the code of new jobs, and remove those that no job needs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from stoker.engine.model import Context, JobSpec
from stoker.engine.snapshot_context import NEW_SNAPSHOT, WISHES, context_in_snapshot
from stoker.engine.store.database import Database
from stoker.errors import UsageError
from stoker.record import Record
from stoker.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.features.code.repository import Repository
    from stoker.features.code.snapshot_store import Snapshot, SnapshotStore
    from stoker.features.code.work_tree_files import WorkTree

# A program that submits jobs one by one takes a snapshot of its code once a second.
_REUSE_SECONDS = 1.0
_NAMED = 5  # files in errors and warnings


class _Recent(Record):
    at: float  # monotonic
    snapshot: Snapshot


class Snapshots:
    """Takes snapshots for the jobs of one queue; a `SnapshotTaker` (engine/store/submit.py).

    `files_dir` returns the folder for files of jobs on a backend, which its nodes see.
    """

    def __init__(self, settings: Settings, files_dir: Callable[[str], str]) -> None:
        self._settings = settings
        self._files_dir = files_dir
        self._stores: dict[str, SnapshotStore] = {}  # by folder; they hold locks
        self._recent: dict[tuple[str, str], _Recent] = {}  # by folder and work tree
        self._taken: dict[str, Snapshot] = {}
        # By context and backend, for the jobs of one submit: the context in the snapshot.
        self._contexts: dict[tuple[int, str], tuple[Context, Context, str | None]] = {}

    def take(self, specs: list[JobSpec]) -> list[JobSpec]:
        """The same jobs, in snapshots of their code if they wish for that.

        Raises UsageError for a folder that cannot have one, Unavailable if git fails.
        """
        if all(spec.snapshot not in WISHES for spec in specs):
            return specs
        return [self.take_one(spec) if spec.snapshot in WISHES else spec for spec in specs]

    def take_one(self, spec: JobSpec) -> JobSpec:
        """The same job, in a snapshot. Call `release` when it is in the database."""
        key = id(spec.context), spec.request.backend
        known = self._contexts.get(key)
        if known is None or known[0] is not spec.context:
            known = self._contexts[key] = (spec.context, *self._moved(spec))
        return spec._replace(context=known[1], snapshot=known[2])

    def taken(self, id: str) -> Snapshot | None:
        """A snapshot that `take` made or found; None if another process did."""
        return self._taken.get(id)

    def save(self, db: Database, id: str, now: float) -> None:
        from stoker.features.code import store_snapshots

        if id in self._taken:
            store_snapshots.save(db, self._taken[id], now)

    def release(self) -> None:
        """The jobs are in the database: their snapshots may be removed with them."""
        self._contexts.clear()
        for store in self._stores.values():
            store.close()

    def _moved(self, spec: JobSpec) -> tuple[Context, str | None]:
        from stoker.features.code.repository import find_repository

        context = spec.context
        repository = find_repository(context.cwd)
        if repository is None:
            if spec.snapshot == NEW_SNAPSHOT:
                raise UsageError(
                    f"a snapshot needs a git repository, and `{context.cwd}` is in none",
                    "run `git init` there, or submit without a snapshot",
                    "snapshot",
                )
            return context, None
        snapshot = self._snapshot(repository, self._files_dir(spec.request.backend))
        return context_in_snapshot(context, repository.root, snapshot.tree), snapshot.id

    def _snapshot(self, repository: Repository, folder: str) -> Snapshot:
        from stoker.features.code.snapshot_store import SnapshotStore
        from stoker.features.code.work_tree_files import list_work_tree

        store = self._stores.setdefault(folder, SnapshotStore(folder))
        recent = self._recent.get((folder, repository.root))
        now = time.monotonic()
        is_recent = recent is not None and now - recent.at < _REUSE_SECONDS
        if recent is not None and is_recent and store.reuse(recent.snapshot.id):
            return recent.snapshot
        content = list_work_tree(repository)
        check_size(repository.root, content, self._settings.snapshot_limit)
        snapshot = store.take(repository, content)
        if snapshot.changing:
            named = ", ".join(snapshot.changing[:_NAMED])
            print(
                "warning: the snapshot may have half-written files, because they changed while it"
                f" was taken: {named}{', ...' if len(snapshot.changing) > _NAMED else ''}",
                file=sys.stderr,
            )
        self._recent[folder, repository.root] = _Recent(now, snapshot)
        self._taken[snapshot.id] = snapshot
        return snapshot


def check_size(root: str, content: WorkTree, limit: int) -> None:
    """Raise UsageError, with the largest files, for code that is too large for a snapshot."""
    if content.size <= limit:
        return
    from stoker.text.sizes import format_size

    largest = sorted(content.files, key=lambda file: file.size, reverse=True)[:_NAMED]
    named = ", ".join(f"{file.path} ({format_size(file.size)})" for file in largest)
    raise UsageError(
        f"a snapshot of `{root}` would have {format_size(content.size)}, and the limit is"
        f" {format_size(limit)}; the largest files: {named}",
        "ignore files of data with .gitignore (a snapshot has links to ignored files), or raise"
        " `snapshot_limit` in the settings",
        "snapshot",
    )


def remove_unused_files(db: Database, folders: list[str]) -> list[str]:
    """Remove what no job needs of these folders: snapshots, and the files of states of code.

    Returns the folders with files that jobs created in removed snapshots.
    """
    from stoker.features.code import store as code_states
    from stoker.features.code import store_snapshots as snapshots
    from stoker.features.code.check_files import remove_checks
    from stoker.features.code.snapshot_store import SnapshotStore

    remove_checks(db.folder, code_states.known(db))
    kept: list[str] = []
    stores = [SnapshotStore(folder) for folder in dict.fromkeys(folders)]
    if not any(store.exists for store in stores):
        return []
    with db.transaction():
        snapshots.forget_unused(db)
    for store in stores:
        kept += store.remove_unused(lambda: snapshots.used(db))
    return kept
