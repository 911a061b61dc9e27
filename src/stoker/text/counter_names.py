"""Names of counters: resources that users define in their settings."""

from __future__ import annotations

_OTHERS = "_-."


def is_counter_name(text: str) -> bool:
    """Whether the text may name a counter: letters, digits, `_`, `-` and `.`."""
    return text.isascii() and all(char.isalnum() or char in _OTHERS for char in text) and text != ""
