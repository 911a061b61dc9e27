"""Requests for backends: checked against what a backend can do, and completed with defaults."""

from __future__ import annotations

from stoker.client.submit.option_values import OptionNames
from stoker.client.submit.parsed_options import ParsedOptions
from stoker.engine.model import LOCAL, Request
from stoker.engine.store.database import Database, open_database
from stoker.errors import Impossible, NotFound, UsageError, about
from stoker.features.backends import store as backends
from stoker.features.backends.nodes import impossible_reason
from stoker.features.backends.options import CAPABILITIES, SLURM, check_options
from stoker.features.backends.store import BackendRow
from stoker.settings import Settings, prepare_state_dir
from stoker.text.commands.output_patterns import uses_node
from stoker.text.suggestions import nearest


def complete_for_backend(options: ParsedOptions, settings: Settings, name: str) -> Request:
    """Return the request for a backend.

    Raises NotFound for an unknown backend, UsageError for an option that it cannot satisfy, and
    Impossible for a request that no node can satisfy.
    """
    prepare_state_dir(settings)
    db = open_database(settings.state_dir)
    try:
        row = find_backend(db, name)
    finally:
        db.close()
    request = options.request._replace(backend=row.name)
    _check_capabilities(request, row, options)
    if request.gpus < 0:
        has_gpus = not row.nodes or any(node.gpus for node in row.nodes)
        request = request._replace(gpus=1 if has_gpus else 0)
    check_nodes(request, row)
    return request


def check_nodes(request: Request, row: BackendRow) -> None:
    """Raise Impossible for a request that the nodes of a backend can never satisfy."""
    reason = impossible_reason(request, row.nodes, row.name)
    if reason is not None:
        field = "nodes" if request.nodes > len(row.nodes) else "gpus"
        raise Impossible(reason, f"its nodes: stoker gpus --on {row.name}", field)


def check_backend_request(db: Database, request: Request) -> None:
    """Raise Impossible or NotFound for a request that its backend can never satisfy."""
    check_nodes(request, find_backend(db, request.backend))


def find_backend(db: Database, name: str) -> BackendRow:
    """Return a backend. Raises NotFound if there is none of that name."""
    row = backends.backend(db, name)
    if row is None:
        known = [one.name for one in backends.backends(db)]
        near = nearest(name, known)
        hint = "add it with: stoker backend add NAME slurm"
        if known:
            hint = f"did you mean `{near}`?" if near else f"backends: local, {', '.join(known)}"
        raise NotFound(f"there is no backend `{name}`", hint, field="on")
    return row


def _check_capabilities(request: Request, row: BackendRow, options: ParsedOptions) -> None:
    capabilities = CAPABILITIES[row.kind]
    given = {
        "gpu_ids": bool(request.ids),
        "prefer": bool(request.prefer),
        "gpu_model": request.model is not None,
        "min_gpu_mem": request.min_memory is not None,
        "cpus": bool(request.cpus),
        "mem": request.host_memory is not None,
        "mem_auto": request.is_auto_host,
        "need": bool(request.needs),
        "preemptible": request.preemptible,
        "share": bool(request.share),
        "stdout": uses_node(options.stdout or ""),
        "stderr": uses_node(options.stderr or ""),
    }
    for key, why in capabilities.refused.items():
        if given.get(key):
            option = "mem" if key == "mem_auto" else key
            shown = f"`{options.named('mem', 'auto')}`" if key == "mem_auto" else None
            if key in ("stdout", "stderr"):
                shown = f"`%N` in {options.named(key)}"
            raise UsageError(
                f"{shown or options.named(option)} is not possible on `{row.name}`: {why}",
                f"remove it{_instead(row.kind, key, options.named)}",
                option,
            )
    if row.kind == SLURM:
        _check_given_once(request, options)
    with about("option"):
        check_options(row.kind, dict(one.partition("=")[::2] for one in request.options))


def _instead(kind: str, key: str, named: OptionNames) -> str:
    if kind == "slurm" and key in ("gpu_model", "min_gpu_mem"):
        examples = [named("option", "constraint=NAME"), named("option", "gpu-type=NAME")]
        return f", or use {' or '.join(examples)}"
    if kind == SLURM and key == "need":
        return f", or use {named('option', 'licenses=NAME:N')}"
    if kind == SLURM and key == "preemptible":
        return f", or use {named('option', 'qos=NAME')} with {named('restartable')}"
    return f", or use {named('mem', '16G')}" if kind == SLURM and key == "mem_auto" else ""


def _check_given_once(request: Request, options: ParsedOptions) -> None:
    """Raise UsageError if an option of sbatch says the same as an option of the job."""
    keys = {one.partition("=")[0] for one in request.options}
    for option, is_given, names in (
        ("cpus", request.cpus, ("cpus-per-task", "cpus-per-gpu")),
        ("mem", request.host_memory, ("mem", "mem-per-cpu", "mem-per-gpu")),
    ):
        for name in names:
            if is_given and name in keys:
                raise UsageError(
                    f"{options.named(option)} and the option `{name}` of sbatch exclude each other",
                    "use one of them",
                    option,
                )


def is_local(name: str | None) -> bool:
    return name in (None, "", LOCAL)
