"""Run a file of command lines with one of the compared Python libraries.

    run_lines.py LIBRARY LINES SLOTS FORM

Imports nothing from this repository, because the interpreter that has the library runs it.
"""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from pathlib import Path


def by_hyperqueue(commands: list[list[str]], slots: int) -> None:
    """An in-process server and one local worker with one core per slot.

    The Python package contains the engine but no `hq` command. Output goes to its default files.
    """
    hyperqueue = importlib.import_module("hyperqueue")
    worker = importlib.import_module("hyperqueue.cluster").WorkerConfig(cores=slots)
    with hyperqueue.LocalCluster(str(Path("hq-server").absolute()), worker) as cluster:
        job = hyperqueue.Job(default_workdir=Path.cwd())
        for command in commands:
            job.program(command)
        client = cluster.client()
        client.wait_for_jobs([client.submit(job)])


def by_dask(commands: list[list[str]], slots: int) -> None:
    """One worker in this process, one thread per slot."""
    distributed = importlib.import_module("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=slots, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        client.gather(client.map(subprocess.call, commands, pure=False))


def by_joblib(commands: list[list[str]], slots: int) -> None:
    """A pool with one thread per slot."""
    joblib = importlib.import_module("joblib")
    pool = joblib.Parallel(n_jobs=slots, prefer="threads")
    pool(joblib.delayed(subprocess.call)(command) for command in commands)


LIBRARIES = {"hyperqueue": by_hyperqueue, "dask": by_dask, "joblib": by_joblib}


def main() -> None:
    library, lines, slots, form = sys.argv[1:]
    texts = Path(lines).read_text().splitlines()
    if form == "plain":
        commands = [shlex.split(text) for text in texts]
    else:
        commands = [["/bin/sh", "-c", text] for text in texts]
    LIBRARIES[library](commands, int(slots))


if __name__ == "__main__":
    main()
