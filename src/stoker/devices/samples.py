"""Samples as lines of text, for the way from the watcher to us."""

from __future__ import annotations

import json

from stoker.core.cards import Card, CardProcess, Sample, Xid

_encode = json.JSONEncoder(separators=(",", ":")).encode


def encode(sample: Sample) -> bytes:
    """One line; records are tuples, and so become lists in the order of their fields."""
    return _encode(sample).encode() + b"\n"


def decode(line: bytes) -> Sample:
    """
    >>> decode(encode(Sample(1.5, (), None, (Xid("GPU-1", 79),)))).xids[0].code
    79
    """
    try:
        at, cards, trouble, xids = json.loads(line)
        return Sample(
            at,
            None if cards is None else tuple(_card(*values) for values in cards),
            trouble,
            tuple(Xid(*values) for values in xids),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a sample: {line[:80]!r}") from error


def _card(*values: object) -> Card:
    card = Card._make(values)
    return card._replace(processes=tuple(CardProcess(*values) for values in card.processes))
