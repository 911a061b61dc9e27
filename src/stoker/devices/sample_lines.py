"""Samples as lines of JSON, on their way from the watcher to the daemon and on to the tracer."""

from __future__ import annotations

import json

from stoker.core.fields import from_fields, to_fields
from stoker.core.gpus.sample import GpuProcess, GpuSample, Sample, Xid

_encode = json.JSONEncoder(separators=(",", ":")).encode
_FIELDS_OF_0_1 = 16  # of a card


def encode(sample: Sample) -> bytes:
    """One line, fields by name."""
    return _encode(to_fields(sample)).encode() + b"\n"


def encode_0_1(sample: Sample) -> bytes:
    """One line for a daemon of 0.1, which reads by position: its files were replaced under it."""
    cards = None if sample.cards is None else [card[:_FIELDS_OF_0_1] for card in sample.cards]
    return _encode([sample.at, cards, sample.trouble, sample.xids]).encode() + b"\n"


def decode(line: bytes) -> Sample:
    """The sample of a line in either form; ValueError when it is not a sample.

    >>> sample = Sample(1.5, (), None, (Xid("GPU-1", 79),))
    >>> decode(encode(sample)) == decode(encode_0_1(sample)) == sample
    True
    """
    try:
        sample = from_fields(Sample, json.loads(line))
        cards = sample.cards
        return sample._replace(
            cards=None if cards is None else tuple(_card(card) for card in cards),
            xids=tuple(from_fields(Xid, xid) for xid in sample.xids),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a sample: {line[:80]!r}") from error


def _card(given: GpuSample) -> GpuSample:
    card = from_fields(GpuSample, given)
    return card._replace(processes=tuple(from_fields(GpuProcess, p) for p in card.processes))
