"""A folder of files as a careless or hostile job could leave them."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

SCRIPT = b"<script>window.pwned=1</script>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=1"><script>1</script></svg>'
HTML = b"<!doctype html><title>x</title>" + SCRIPT
NAMES = (
    b"<img src=x onerror=window.pwned=1>.txt",
    b"new\nline.txt",
    b"quote\"semi;colon'.txt",
    b"\xff\xfe not utf-8.txt",
    "\u202eevil.txt".encode(),
    b"%2e%2e%2f..txt",
    b"-rf.txt",
    b"tab\tand\x1b[31mcolor.txt",
)


def png(width: int, height: int, body: bytes | None = None) -> bytes:
    """A PNG file; without a body, one that claims to be larger than it is."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    lines = body if body is not None else b"\0" * 100
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )  # fmt: skip


def gray(width: int, height: int, shade: int) -> bytes:
    return png(width, height, (b"\0" + bytes([shade]) * width) * height)


def wav(seconds: float = 0.1) -> bytes:
    data = bytes(int(8000 * seconds))
    form = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
    return (
        b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<I", 16) + form
        + b"data" + struct.pack("<I", len(data)) + data
    )  # fmt: skip


def fill(folder: Path, outside: Path) -> None:
    """Files, links and special files; `outside` has a secret that no response may contain."""
    outside.mkdir(parents=True)
    (outside / "secret.txt").write_text("SECRET")
    (folder / "media/samples").mkdir(parents=True)
    for step in (1, 2, 10):
        (folder / f"media/samples/{step}.png").write_bytes(gray(8, 8, step * 20))
    (folder / "sound.wav").write_bytes(wav())
    (folder / "page.html").write_bytes(HTML)
    (folder / "drawing.svg").write_bytes(SVG)
    (folder / "script.png").write_bytes(HTML)  # not what its name says
    (folder / "picture.txt").write_bytes(gray(8, 8, 3))
    (folder / "bomb.png").write_bytes(png(50_000, 50_000))
    (folder / "wide.gif").write_bytes(b"GIF89a\xff\xff\xff\xff" + bytes(20))
    (folder / "table.csv").write_text(
        'name,note\n"<b>x</b>","=cmd()"\n' + "".join(f"row {n},{n}\n" for n in range(500))
    )
    (folder / "broken.csv").write_bytes(b'a,"b\n' + b"x" * 200_000)
    (folder / "deep.json").write_text("[" * 20_000)
    (folder / "small.json").write_text('{"a":[1,2]}')
    (folder / "model.pt").write_bytes(bytes(range(256)) * 20)
    (folder / "damaged.parquet").write_bytes(b"PAR1" + b"\xff" * 100 + b"PAR1")
    for name in NAMES:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("harmless")
    os.symlink(outside / "secret.txt", folder / "link.txt")
    os.symlink(outside, folder / "linked")
    os.symlink("../../../../etc", folder / "media/up")
    os.symlink("loop", folder / "loop")
    os.mkfifo(folder / "fifo.txt")
    deep = folder
    for number in range(12):
        deep = deep / f"d{number}"
    deep.mkdir(parents=True)
    (deep / "too deep.txt").write_text("x")
