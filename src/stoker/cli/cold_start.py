"""Make the start of a command faster. Imported before all other modules of Stoker.

- `collections.abc` is the module `_collections_abc`, which Python has loaded by itself. Without the
  line below, the first import of that name also loads `collections` and what it needs.
- While modules are imported, almost nothing is garbage, so the collector runs less often.
"""

from __future__ import annotations

import gc
import sys

sys.modules.setdefault("collections.abc", sys.modules["_collections_abc"])
gc.set_threshold(20_000, *gc.get_threshold()[1:])
