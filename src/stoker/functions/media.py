"""Images, figures, tables and files that a job logs, written into its output folder.

media/NAME/STEP.png    log_image and log_figure; also .jpg, .gif and .webp
media/NAME/STEP.csv    log_table
media/index.jsonl      one line per call: {"at", "attempt", "kind", "name", "step", "file"}
artifacts/NAME         log_artifact: a copy of a file or folder

The files alone are enough for readers; the index is for programs that want times and attempts.
Every file is written under another name first and renamed, so a reader never sees a part of it.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, SupportsFloat

MAX_IMAGE_BYTES = 32 << 20
MAX_TABLE_ROWS = 100_000
MAX_FILES_PER_NAME = 10_000
MAX_COPIED_FILES = 10_000
_MAX_STEP = 10**15
_SUFFIXES = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
)

_counts: dict[str, int] = {}  # files by folder, counted once
_warned: set[str] = set()


def log_image(name: str, image: object, step: SupportsFloat | None = None) -> None:
    """Log an image under a name, as `stoker.log_image("samples", array, step=10)`."""
    _check_name(name)
    number = _check_step(step)
    data = image_bytes(image)
    _write_media("image", name, number, _suffix(data) or "png", data)


def log_figure(name: str, figure: object, step: SupportsFloat | None = None) -> None:
    """Log a figure of Matplotlib; `pyplot` itself stands for the current figure."""
    _check_name(name)
    number = _check_step(step)
    save = getattr(figure, "savefig", None)
    if not callable(save):
        raise TypeError(f"log_figure() takes a figure of Matplotlib, not {_kind(figure)}")
    import io

    file = io.BytesIO()
    save(file, format="png")
    _write_media("figure", name, number, "png", _limited(file.getvalue()))


def log_table(
    name: str,
    rows: object,
    columns: Sequence[str] | None = None,
    step: SupportsFloat | None = None,
) -> None:
    """Log a table: a list of dicts, a list of rows with `columns`, a dict of columns, or a data
    frame of pandas or polars."""
    _check_name(name)
    number = _check_step(step)
    header, lines = _table(rows, columns)
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for count, line in enumerate(lines):
        if count >= MAX_TABLE_ROWS:
            raise ValueError(f"a table has at most {MAX_TABLE_ROWS:,} rows")
        writer.writerow(["" if cell is None else cell for cell in line])
    _write_media("table", name, number, "csv", text.getvalue().encode("utf-8", "backslashreplace"))


def log_artifact(path: str | os.PathLike[str], name: str | None = None) -> None:
    """Copy a file or folder into the output folder of the job; `name` replaces its name.

    Links in a folder are left out. Raises OSError if it cannot be read.
    """
    path = os.fspath(path)
    os.stat(path)
    shown = os.path.basename(os.path.abspath(path)) if name is None else name
    _check_name(shown)
    folder = os.environ.get("STOKER_OUTPUT_DIR")
    if not folder:
        return
    target = os.path.join(folder, "artifacts", *shown.split("/"))
    if os.path.isdir(path):
        for count, (place, below) in enumerate(_files_below(path, folder)):
            if count >= MAX_COPIED_FILES:
                raise ValueError(f"an artifact has at most {MAX_COPIED_FILES:,} files")
            _copy(place, os.path.join(target, below))
    else:
        _copy(path, target)
    _add_to_index(folder, "artifact", shown, None, f"artifacts/{shown}")


# -- values ---------------------------------------------------------------------------------------


def image_bytes(image: object) -> bytes:
    """The content of an image file: from an array, a tensor, a Pillow image, a path or bytes.

    Raises TypeError and ValueError.
    """
    if isinstance(image, (str, os.PathLike)):
        with open(image, "rb") as file:
            return _checked(file.read(MAX_IMAGE_BYTES + 1), os.fspath(image))
    if isinstance(image, (bytes, bytearray)):
        return _checked(bytes(image), "the data")
    save = getattr(image, "save", None)
    if callable(save) and hasattr(image, "mode"):  # Pillow
        import io

        target = io.BytesIO()
        save(target, format="PNG")
        return _limited(target.getvalue())
    for method in ("detach", "cpu"):  # PyTorch
        call = getattr(image, method, None)
        if callable(call):
            image = call()
    if not hasattr(image, "__array__"):
        raise TypeError(
            f"log_image() takes an array, a tensor, a Pillow image, a path or bytes, "
            f"not {_kind(image)}"
        )
    return _limited(png_of_array(image))


def _checked(data: bytes, what: str) -> bytes:
    if _suffix(data) is None:
        raise ValueError(f"{what[:200]!r} is not a PNG, JPEG, GIF or WebP image")
    return _limited(data)


def _limited(data: bytes) -> bytes:
    if len(data) > MAX_IMAGE_BYTES:
        raise ValueError(f"an image has at most {MAX_IMAGE_BYTES >> 20} MiB")
    return data


def _suffix(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((suffix for start, suffix in _SUFFIXES if data.startswith(start)), None)


def _table(rows: Any, columns: Sequence[str] | None) -> tuple[list[object], Iterable[Any]]:
    """(header, lines) of a table; raises TypeError and ValueError."""
    if hasattr(rows, "columns") and callable(getattr(rows, "itertuples", None)):  # pandas
        return [*rows.columns], rows.itertuples(index=False, name=None)
    if hasattr(rows, "columns") and callable(getattr(rows, "iter_rows", None)):  # polars
        return [*rows.columns], rows.iter_rows()
    if hasattr(rows, "keys"):
        content = {key: list(values) for key, values in rows.items()}
        if len({len(values) for values in content.values()}) > 1:
            raise ValueError("the columns of the table differ in length")
        return [*content], zip(*content.values(), strict=True)
    try:
        lines = list(rows)
    except TypeError:
        raise TypeError(f"log_table() takes rows or a data frame, not {_kind(rows)}") from None
    if lines and all(hasattr(line, "keys") for line in lines):
        names = list(columns or dict.fromkeys(key for line in lines for key in line))
        return [*names], ([line.get(key) for key in names] for line in lines)
    if columns is None:
        raise TypeError("log_table() needs columns=[...] for rows that are not dicts")
    for line in lines:
        if isinstance(line, str) or not hasattr(line, "__len__") or len(line) != len(columns):
            raise ValueError(f"a row of the table does not have {len(columns)} values: {line!r}")
    return [*columns], lines


def _check_name(name: object) -> None:
    """Names become paths: letters, digits and `_ . @ - / space`, no part that begins with a dot."""
    if (
        not isinstance(name, str)
        or not 0 < len(name.encode("utf-8", "replace")) <= 200
        or not all(c.isalnum() or c in "_./@- " for c in name)
        or any(not part or part.startswith(".") or part != part.strip() for part in name.split("/"))
    ):
        raise TypeError(
            f"{str(name)[:40]!r} is not a valid name: use letters, digits and _ . / @ -, "
            "and no part that begins with a dot"
        )


def _check_step(step: SupportsFloat | None) -> int | None:
    if step is None:
        return None
    number = float(step)
    if number != int(number) or not 0 <= number <= _MAX_STEP:
        raise ValueError(f"step is a whole number from 0, not {step!r}")
    return int(number)


def _kind(value: object) -> str:
    return type(value).__name__


# -- files ----------------------------------------------------------------------------------------


def _write_media(kind: str, name: str, step: int | None, suffix: str, data: bytes) -> None:
    output = os.environ.get("STOKER_OUTPUT_DIR")
    if not output:
        return
    folder = os.path.join(output, "media", *name.split("/"))
    try:
        os.makedirs(folder, exist_ok=True)
        count = _counts.get(folder)
        if count is None:
            count = len(os.listdir(folder))
        if count >= MAX_FILES_PER_NAME:
            _warn(f"{name} has {MAX_FILES_PER_NAME} files; further ones are not written")
            return
        number = _next_step(folder) if step is None else step
        _counts[folder] = count + 1
        file = f"{number}.{suffix}"
        _replace(os.path.join(folder, file), data)
        _add_to_index(output, kind, name, number, f"media/{name}/{file}")
    except OSError as error:
        _warn(f"cannot write media: {folder}: {error.strerror}")


def _next_step(folder: str) -> int:
    """The step for a call without one: after the highest in the folder."""
    steps = [int(stem) for stem, _, _ in map(_parted, os.listdir(folder)) if stem.isdecimal()]
    return max(steps, default=-1) + 1


def _parted(name: str) -> tuple[str, str, str]:
    return name.partition(".")


def _replace(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def _copy(source: str, target: str) -> None:
    import shutil

    os.makedirs(os.path.dirname(target), exist_ok=True)
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        shutil.copyfile(source, temporary)
        os.replace(temporary, target)
    except BaseException:
        _remove(temporary)
        raise


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _files_below(folder: str, output: str) -> Iterator[tuple[str, str]]:
    """(path, path below the folder) of regular files, except those of the output folder itself."""
    inside = os.path.realpath(output)
    for place, folders, names in os.walk(folder):
        folders[:] = [
            one for one in sorted(folders) if os.path.realpath(os.path.join(place, one)) != inside
        ]
        for name in sorted(names):
            path = os.path.join(place, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path, os.path.relpath(path, folder)


def _add_to_index(output: str, kind: str, name: str, step: int | None, file: str) -> None:
    import json

    from stoker.functions.current_job import append_line, current

    line: Mapping[str, object] = {
        "at": time.time(),
        "attempt": current().attempt,
        "kind": kind,
        "name": name,
        "step": step,
        "file": file,
    }
    append_line(os.path.join(output, "media", "index.jsonl"), json.dumps(line).encode() + b"\n")


def _warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        print(f"stoker: {text}", file=sys.stderr)


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
