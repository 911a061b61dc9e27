"""Samples as lines of JSON, sent from the driver process to the daemon and the usage recorder."""

from __future__ import annotations

import json

from stoker.engine.gpus.sample import GpuFault, GpuProcess, GpuSample, Sample
from stoker.fields import from_fields, to_fields

_encode = json.JSONEncoder(separators=(",", ":")).encode


def encode(sample: Sample) -> bytes:
    """Return a sample as one line, with fields by name."""
    return _encode(to_fields(sample)).encode() + b"\n"


def decode(line: bytes) -> Sample:
    """Return the sample of a line. Raises ValueError for another line.

    >>> sample = Sample(1.5, (), None, (GpuFault("GPU-1", "Xid 79"),))
    >>> decode(encode(sample)) == sample
    True
    """
    try:
        sample = from_fields(Sample, json.loads(line))
        gpus = sample.gpus
        return sample._replace(
            gpus=None if gpus is None else tuple(_gpu(gpu) for gpu in gpus),
            faults=tuple(from_fields(GpuFault, fault) for fault in sample.faults),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a sample: {line[:80]!r}") from error


def _gpu(given: GpuSample) -> GpuSample:
    gpu = from_fields(GpuSample, given)
    return gpu._replace(
        processes=tuple(from_fields(GpuProcess, p) for p in gpu.processes),
        links=tuple(gpu.links),
        computing=None if gpu.computing is None else tuple(gpu.computing),
    )
