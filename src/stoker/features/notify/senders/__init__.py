"""One file for each kind of place. `send` returns when the receiver has accepted the message."""

from __future__ import annotations


class SendError(Exception):
    """`is_final`: another try cannot succeed before a user changes something."""

    def __init__(self, message: str, is_final: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_final = is_final
