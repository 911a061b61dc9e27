"""Commands in messages: values that look like secrets are masked.

A message leaves the machine, and a command line may contain a password. The rules find what has a
telling name; they cannot find a secret in an argument without one (docs/notifications.md).
"""

from __future__ import annotations

import re

MASK = "***"
# Not followed by a letter: `--tokenizer` and `--max-tokens` are not secrets.
_NAMES = r"(?:pass(?:word|wd|phrase)|pwd|secret|token|api[-_]?key|access[-_]?key|auth)(?![a-z])"
# NAME=value and --name=value, also in quotes; `--name value`; and the user part of an address.
_ASSIGNED = re.compile(
    rf"(?i)((?:^|[\s'\"])-{{0,2}}[\w.+-]*{_NAMES}[\w.-]*[=:])('[^']*'|\"[^\"]*\"|[^\s'\"]+)"
)
_FLAG = re.compile(rf"(?i)((?:^|\s)--?[\w.-]*{_NAMES}[\w.-]*\s+)('[^']*'|\"[^\"]*\"|[^\s'\"-]\S*)")
_USER = re.compile(r"(\w[\w+.-]*://)[^\s/@]+@")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]+")


def masked_command(command: str) -> str:
    """
    >>> masked_command("WANDB_API_KEY=abc python train.py --token xyz --lr 0.1")
    'WANDB_API_KEY=*** python train.py --token *** --lr 0.1'
    >>> masked_command("curl https://me:pw@host/x -H 'Authorization: Bearer abc.def'")
    "curl https://***@host/x -H 'Authorization: Bearer ***'"
    >>> masked_command("python train.py --tokenizer bpe --max-tokens 100")
    'python train.py --tokenizer bpe --max-tokens 100'
    """
    command = _USER.sub(rf"\1{MASK}@", command)
    command = _BEARER.sub(rf"\1{MASK}", command)
    command = _ASSIGNED.sub(rf"\1{MASK}", command)
    return _FLAG.sub(rf"\1{MASK}", command)
