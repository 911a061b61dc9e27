"""Models of responses, made of the types of the JSON that views return (`job_types.py`)."""

from __future__ import annotations

from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic import BaseModel, ConfigDict, Field, create_model

from stoker.client.views.job import settings_json
from stoker.engine.job_settings import DEFAULT_SETTINGS, JobSettings


class _Exact(BaseModel):
    model_config = ConfigDict(extra="forbid")


@cache
def model_of(kind: Any) -> type[BaseModel]:
    """The model of a typed dictionary; with `notify`, also of the settings of jobs."""
    hints = get_type_hints(kind, include_extras=True)
    base: type[BaseModel] = BaseModel
    if "notify" in hints:
        hints, base = _setting_hints() | hints, _Exact
    fields: dict[str, Any] = {name: _field(hint) for name, hint in hints.items()}
    name: str = kind.__name__
    return create_model(name, __base__=base, __doc__=kind.__doc__, __module__=__name__, **fields)


def _setting_hints() -> dict[str, Any]:
    """The types of the settings of jobs that JSON shows."""
    shown = settings_json(DEFAULT_SETTINGS)
    hints = get_type_hints(JobSettings, localns={"Any": Any})
    return {name: hint for name, hint in hints.items() if name in shown}


def _field(hint: Any) -> tuple[Any, Any]:
    if get_origin(hint) is Annotated:
        return _as_model(hint.__origin__), Field(description=hint.__metadata__[0])
    return _as_model(hint), ...


def _as_model(hint: Any) -> Any:
    """The type with models instead of typed dictionaries."""
    if is_typeddict(hint):
        return model_of(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if not parts or origin is Literal:
        return hint
    made = tuple(_as_model(part) for part in parts)
    return Union[made] if type(None) in parts else origin[made]  # noqa: UP007
