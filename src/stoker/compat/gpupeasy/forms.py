"""Parse the fields of a form in both encodings of browsers and `curl`."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import Message
from email.parser import BytesHeaderParser
from urllib.parse import parse_qs

_MAX_FIELDS = 100
_LINE = b"\r\n"


def fields_of(kind: str, body: bytes) -> dict[str, str]:
    """The first value of each field; `kind` is the Content-Type. Empty if it is not a form.

    >>> fields_of("", b"a=1&b=x+y&a=2")
    {'a': '1', 'b': 'x y'}
    >>> lines = (b"--X", b'Content-Disposition: form-data; name="a"', b"", b"1", b"2", b"--X--")
    >>> fields_of("multipart/form-data; boundary=X", b"\\r\\n".join(lines))
    {'a': '1\\r\\n2'}
    """
    if kind.partition(";")[0].strip().lower() == "multipart/form-data":
        return _multipart(kind, body)
    return encoded(body.decode("utf-8", "replace"))


def encoded(text: str) -> dict[str, str]:
    """The fields of a query string or of a URL-encoded form."""
    try:
        found = parse_qs(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        return {}
    return {key: values[0] for key, values in found.items()}


def _multipart(kind: str, body: bytes) -> dict[str, str]:
    head = Message()
    head["Content-Type"] = kind
    boundary = head.get_boundary("")
    if not boundary:
        return {}
    found: dict[str, str] = {}
    for name, content in _parts(body, boundary.encode("utf-8", "surrogateescape")):
        found.setdefault(name, content.decode("utf-8", "replace"))
    return found


def _parts(body: bytes, boundary: bytes) -> Iterator[tuple[str, bytes]]:
    """The parts, split by hand: the `email` parser takes seconds for a few megabytes."""
    pieces = (_LINE + body).split(_LINE + b"--" + boundary, _MAX_FIELDS + 1)
    for piece in pieces[1 : _MAX_FIELDS + 1]:
        if piece.startswith(b"--"):
            return
        lines, _, content = piece.partition(_LINE + _LINE)
        head = BytesHeaderParser().parsebytes(lines.lstrip())
        name = head.get_param("name", header="Content-Disposition")
        if isinstance(name, tuple):  # with a character set (RFC 2231)
            name = name[2]
        if isinstance(name, str):
            # The header was decoded as ASCII, but names may be UTF-8.
            yield name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), content
