"""Write arrays as PNG with zlib alone: `stoker.log_image` works without Pillow."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # channels: gray, RGB, RGBA
MAX_PIXELS = 40_000_000


def png_of_array(array: Any) -> bytes:
    """The PNG of a NumPy array: height x width, height x width x channels, or (as in PyTorch)
    channels x height x width, with 1, 3 or 4 channels; uint8, bool, or floats from 0 to 1.

    Raises TypeError and ValueError for other arrays.
    """
    import numpy

    array = numpy.asarray(array)
    if array.ndim == 3 and array.shape[2] not in _COLOR_TYPES and array.shape[0] in _COLOR_TYPES:
        array = array.transpose(1, 2, 0)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in _COLOR_TYPES or 0 in array.shape:
        raise ValueError(
            f"an image has shape (height, width) or (height, width, 1|3|4), not {array.shape}"
        )
    if array.shape[0] * array.shape[1] > MAX_PIXELS:
        raise ValueError(f"an image has at most {MAX_PIXELS:,} pixels, not {array.shape}")
    if array.dtype.kind == "f":
        low, high = float(numpy.nanmin(array)), float(numpy.nanmax(array))
        if low < -1e-3 or high > 1 + 1e-3:
            raise ValueError(
                f"floats of an image are from 0 to 1, not from {low:.6g} to {high:.6g}; "
                "scale them, or convert them to uint8"
            )
        array = numpy.nan_to_num(array).clip(0, 1) * 255 + 0.5
    elif array.dtype.kind == "b":
        array = array * numpy.uint8(255)
    elif array.dtype != numpy.uint8:
        raise TypeError(f"an image is uint8, bool or float, not {array.dtype}")
    return encode_png(array.astype(numpy.uint8, copy=False))


def encode_png(array: Any) -> bytes:
    """The PNG of a uint8 array with the shape (height, width, channels)."""
    import numpy

    height, width, channels = array.shape
    lines = numpy.zeros((height, 1 + width * channels), numpy.uint8)  # each begins with filter 0
    lines[:, 1:] = array.reshape(height, -1)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", _size(width, height) + bytes((8, _COLOR_TYPES[channels], 0, 0, 0))),
            _chunk(b"IDAT", _compressed(lines.tobytes())),
            _chunk(b"IEND", b""),
        )
    )


def _compressed(data: bytes) -> bytes:
    import zlib

    return zlib.compress(data, 6)


def _size(width: int, height: int) -> bytes:
    return width.to_bytes(4, "big") + height.to_bytes(4, "big")


def _chunk(kind: bytes, data: bytes) -> bytes:
    import zlib

    checksum = zlib.crc32(kind + data)
    return len(data).to_bytes(4, "big") + kind + data + checksum.to_bytes(4, "big")
