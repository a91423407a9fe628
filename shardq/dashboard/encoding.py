"""Scenes as JSON, and as events of a stream."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

BEAT: Final = b"event: beat\ndata: {}\n\n"
"""A stream sends this when a scene was made again and all is as it was."""
HERE_EVENT: Final = b"event: here\ndata: {}\n\n"
"""A stream that sent nothing for long sends this: it is there, and its last data may be old."""


def encoded(value: Mapping[str, Any]) -> bytes:
    """Return *value* as JSON on one line. Numbers that JSON does not have are null, and any text can be sent."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, as a name of bytes may have
        return json.dumps(_finite(msgspec.to_builtins(value))).encode()


def _finite(value: Any) -> Any:
    """Return *value* with None for each number that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def event(kind: str, data: bytes, number: int | None = None) -> bytes:
    """Return an event of a stream (text/event-stream). *data* is JSON, so it has no line breaks."""
    mark = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (mark, kind.encode(), data)
