"""What a file of a job is: by its name, and by its first bytes.

The name decides what a list shows; only the content decides what a browser gets. SVG and HTML are
text here: they can contain scripts.
"""

from __future__ import annotations

from stoker.record import Record

IMAGE, AUDIO, TABLE, TEXT, EVENTS, CHECKPOINT, OTHER = (
    "image",
    "audio",
    "table",
    "text",
    "events",
    "checkpoint",
    "file",
)
HEAD_BYTES = 64 << 10  # enough for the size of nearly every JPEG
MAX_IMAGE_BYTES = 32 << 20
MAX_IMAGE_PIXELS = 40_000_000
_MAX_SIDE = 32_768

_SUFFIXES = {
    IMAGE: "png jpg jpeg gif webp",
    AUDIO: "wav mp3 ogg oga opus",
    TABLE: "csv tsv parquet",
    CHECKPOINT: "pt pth ckpt safetensors h5 keras pkl pickle npz npy bin onnx gguf msgpack",
    TEXT: "txt log md json jsonl yaml yml toml ini cfg py sh html htm svg xml tex out err rst js",
}
_BY_SUFFIX = {suffix: kind for kind, words in _SUFFIXES.items() for suffix in words.split()}


class ImageFormat(Record):
    """An image that a browser may show: its content type and its size in pixels."""

    content_type: str
    width: int
    height: int

    @property
    def problem(self) -> str | None:
        """Why it is not shown: a small file can be a huge picture."""
        if self.width * self.height > MAX_IMAGE_PIXELS or max(self.width, self.height) > _MAX_SIDE:
            return f"the image has {self.width} x {self.height} pixels, which is too large to show"
        return None


def kind_by_name(path: str) -> str:
    """What a file seems to be.

    >>> kind_by_name("media/samples/10.png"), kind_by_name("checkpoints/last"), kind_by_name("x")
    ('image', 'checkpoint', 'file')
    """
    folder, _, name = path.rpartition("/")
    if "tfevents" in name:
        return EVENTS
    kind = _BY_SUFFIX.get(name.rpartition(".")[2].lower()) if "." in name else None
    if "checkpoints" in folder.split("/") and kind not in (IMAGE, AUDIO, TABLE, TEXT):
        return CHECKPOINT
    return kind or OTHER


def image_format(head: bytes) -> ImageFormat | None:
    """The format of an image from its first bytes; None for everything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR" and len(head) >= 24:
        return _image("png", _big(head[16:20]), _big(head[20:24]))
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return _image("gif", _little(head[6:8]), _little(head[8:10]))
    if head.startswith(b"\xff\xd8\xff"):
        size = _jpeg_size(head)
        return None if size is None else _image("jpeg", *size)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        size = _webp_size(head)
        return None if size is None else _image("webp", *size)
    return None


def audio_type(head: bytes) -> str | None:
    """The content type of a sound file from its first bytes; None for everything else."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    if head[:4] == b"OggS":
        return "audio/ogg"
    is_frame = len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2  # layer III
    return "audio/mpeg" if head[:3] == b"ID3" or is_frame else None


def is_text(head: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8 text; the last character may be cut."""
    if b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3 and len(head) > 3
    return True


def _image(name: str, width: int, height: int) -> ImageFormat | None:
    return ImageFormat(f"image/{name}", width, height) if width and height else None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """(width, height) in the frame header; None if it is not in the first bytes."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:  # fill bytes
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(head[at + 7 : at + 9]), _big(head[at + 5 : at + 7])
        elif marker in (0x01, *range(0xD0, 0xD9)):
            at += 2
        else:
            at += 2 + max(2, _big(head[at + 2 : at + 4]))
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X" and len(head) >= 30:
        return _little(head[24:27]) + 1, _little(head[27:30]) + 1
    if kind == b"VP8L" and len(head) >= 25:
        bits = _little(head[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and len(head) >= 30:
        return _little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF
    return None


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
