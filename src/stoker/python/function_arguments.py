"""Check functions and their arguments before their jobs are submitted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stoker.engine.model import JobSpec
from stoker.errors import UsageError
from stoker.features.environments.environment_options import has_own_python
from stoker.functions.payload import label
from stoker.text.activation import is_in_container

if TYPE_CHECKING:
    from stoker.python.sweep import Params


def check_calls(
    function: Callable[..., Any], calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    """Raise TypeError, as a call would, if the arguments do not fit."""
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a C function without a signature; the job would raise the error
    for args, kwargs in calls:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            known = signature.parameters
            hint = _option_hint(function, {k: v for k, v in kwargs.items() if k not in known})
            raise TypeError(f"{label(function)}(): {error}{hint}") from None


def _option_hint(function: Callable[..., Any], unknown: dict[str, Any]) -> str:
    """How to set job options, if one of the unknown arguments is the name of one."""
    from stoker.client.submit.job_options import NAMES

    options = ", ".join(f"{key}={value!r}" for key, value in unknown.items() if key in NAMES)
    if not options:
        return ""
    name = getattr(function, "__name__", "f")
    return (
        f"; set job options with @stoker.job({options}) or"
        f" stoker.job({name}, {options}).submit(...)"
    )


def check_parameters(function: Callable[..., Any], params: Params) -> None:
    """Raise TypeError if the function does not accept the parameters."""
    import inspect

    if isinstance(params, Mapping) and ("test_config" in params or "scheduler_config" in params):
        always = params.get("global_config", {})
        grids = [{**always, **one} for one in params.get("test_config", [{}])]
    elif isinstance(params, Mapping):
        grids = [dict(params)]
    else:
        grids = [dict(one) for one in params if isinstance(one, Mapping)]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    takes_any = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
    for grid in grids:
        for name in grid:
            if name not in signature.parameters and not takes_any:
                raise TypeError(_unknown_argument(function, name, list(signature.parameters)))
        try:
            signature.bind(**grid)
        except TypeError as error:
            raise TypeError(f"{label(function)}(): {error}") from None


def _unknown_argument(function: Callable[..., Any], name: str, known: list[str]) -> str:
    from stoker.text.suggestions import nearest

    near = nearest(name, known)
    hint = f"did you mean '{near}'?" if near else f"its arguments: {', '.join(known) or 'none'}"
    return f"{label(function)}(): got an unexpected keyword argument '{name}'; {hint}"


def python_for(spec: JobSpec) -> str:
    """The Python that calls a function: that of the job's environment, otherwise this one.

    Stoker must be installed in that environment. Raises UsageError for a container, which does not
    have the files of the call.
    """
    if is_in_container(spec.settings.activation):
        raise UsageError(
            "a function cannot run in a container",
            'submit a command instead, e.g. ["python", "train.py"]',
            "container",
        )
    return "python" if has_own_python(spec.settings.activation) else sys.executable
