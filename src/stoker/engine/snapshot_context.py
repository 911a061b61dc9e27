"""The context of a job that runs in a snapshot of its code."""

from __future__ import annotations

from stoker.engine.model import Context

# Variables of such a job: the folder of the snapshot, and the work tree that it is a copy of.
SNAPSHOT_DIR, SNAPSHOT_OF = "STOKER_SNAPSHOT_DIR", "STOKER_SNAPSHOT_OF"
# What `JobSpec.snapshot` has before the snapshot is taken.
NEW_SNAPSHOT = "new"  # the job needs one
SNAPSHOT_IN_GIT = "if-git"  # it gets one if its folder is in a git repository
WISHES = (NEW_SNAPSHOT, SNAPSHOT_IN_GIT)
_PATHS = ("PYTHONPATH",)  # lists of folders; those in the work tree are replaced by the copies


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or inside of it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def moved(path: str, old: str, new: str) -> str:
    """A path in the folder `old` as a path in the folder `new`; other paths do not change."""
    if is_inside(path, old):
        return new + path[len(old.rstrip("/")) :]
    return path


def context_in_snapshot(context: Context, root: str, tree: str) -> Context:
    """The context of a job in `root` that runs in the same folder of the snapshot `tree`."""
    env = dict(context.env)
    for name in _PATHS:
        if name in env:
            env[name] = ":".join(moved(one, root, tree) for one in env[name].split(":"))
    cwd = moved(context.cwd, root, tree)
    env |= {SNAPSHOT_DIR: tree, SNAPSHOT_OF: root, "PWD": cwd}
    return context._replace(cwd=cwd, env=tuple(sorted(env.items())))


def original_context(context: Context) -> Context:
    """The context of a job before it was moved into a snapshot."""
    env = dict(context.env)
    tree, root = env.pop(SNAPSHOT_DIR, None), env.pop(SNAPSHOT_OF, None)
    if tree is None or root is None:
        return context
    for name in _PATHS:
        if name in env:
            env[name] = ":".join(moved(one, tree, root) for one in env[name].split(":"))
    cwd = moved(context.cwd, tree, root)
    env["PWD"] = cwd
    return context._replace(cwd=cwd, env=tuple(sorted(env.items())))


def original_folder(context: Context) -> str:
    """The folder from which a job was submitted."""
    env = dict(context.env)
    if SNAPSHOT_DIR not in env or SNAPSHOT_OF not in env:
        return context.cwd
    return moved(context.cwd, env[SNAPSHOT_DIR], env[SNAPSHOT_OF])
