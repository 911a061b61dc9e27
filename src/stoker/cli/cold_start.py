"""Make the start of a command faster. Imported before all other modules of Stoker.

- `collections.abc` is the module `_collections_abc`, which Python has loaded by itself. Without the
  lines below, the first import of that name also loads `collections` and what it needs.
- While modules are imported, almost nothing is garbage, so the collector runs less often.
"""

from __future__ import annotations

import _collections_abc
import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class _AddsAbc:
    """Adds the attribute `abc` to the package `collections` if that is imported later."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "collections":
            return None
        sys.meta_path.remove(_AddsAbc)
        found = (finder.find_spec(name, None) for finder in sys.meta_path)
        spec = next((one for one in found if one is not None), None)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            module.abc = _collections_abc  # type: ignore[attr-defined]

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if "collections" not in sys.modules:
    sys.modules.setdefault("collections.abc", _collections_abc)
    sys.meta_path.insert(0, _AddsAbc)
gc.set_threshold(20_000, *gc.get_threshold()[1:])
