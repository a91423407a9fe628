"""Payloads as they are shown: decoded as far as that is safe, and no more than a screen has room for."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shardq.codec import Codecs
from shardq.errors import CodecError

MAX_READ: Final = 65_536
"""Bytes of a payload that is read to be shown."""
MAX_SHOWN: Final = 8_000
"""Letters of a payload that are shown."""


def payload_text(codecs: Codecs, tag: str, body: bytes) -> str:
    r"""Return a payload as text: bytes as they are, other values as JSON.

    >>> payload_text(Codecs(), "m", b"\x81\xa1n\x01"), payload_text(Codecs(), "b", b"a\xff")
    ('{\n  "n": 1\n}', 'a\\xff')
    """
    text = _decoded(codecs, tag, body) if tag != "b" else None
    if text is None:
        text = body[: 4 * MAX_SHOWN].decode(errors="backslashreplace")
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _decoded(codecs: Codecs, tag: str, body: bytes) -> str | None:
    try:
        value: Any = codecs.decode(tag, body)
        return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
    except (CodecError, TypeError, ValueError, RecursionError):
        return None
