"""Samples as lines of JSON, sent from the NVML process to the daemon and the usage recorder."""

from __future__ import annotations

import json

from stoker.engine.gpus.sample import GpuProcess, GpuSample, Sample, Xid
from stoker.fields import from_fields, to_fields

_encode = json.JSONEncoder(separators=(",", ":")).encode
_FIELDS_OF_0_1 = 16  # of a GpuSample


def encode(sample: Sample) -> bytes:
    """Return a sample as one line, with fields by name."""
    return _encode(to_fields(sample)).encode() + b"\n"


def encode_0_1(sample: Sample) -> bytes:
    """Return a line for a daemon of 0.1, which reads fields by position.

    Such a daemon starts this code if Stoker is upgraded while it runs.
    """
    gpus = None if sample.gpus is None else [gpu[:_FIELDS_OF_0_1] for gpu in sample.gpus]
    return _encode([sample.at, gpus, sample.error, sample.xids]).encode() + b"\n"


def decode(line: bytes) -> Sample:
    """Return the sample of a line in either form. Raises ValueError for another line.

    >>> sample = Sample(1.5, (), None, (Xid("GPU-1", 79),))
    >>> decode(encode(sample)) == decode(encode_0_1(sample)) == sample
    True
    """
    try:
        sample = from_fields(Sample, json.loads(line))
        gpus = sample.gpus
        return sample._replace(
            gpus=None if gpus is None else tuple(_gpu(gpu) for gpu in gpus),
            xids=tuple(from_fields(Xid, xid) for xid in sample.xids),
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
