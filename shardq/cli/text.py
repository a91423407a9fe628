"""How values look to people and to programs.

Whatever came out of a queue may hold terminal escapes or characters that reverse the line, put there by a tenant. So
everything that is shown to people passes `printable`; JSON passes `json_line`, which escapes the same characters.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import msgspec

from shardq.codec import Codecs
from shardq.errors import CodecError

_UNSEEN = frozenset(
    {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
)  # controls, bidi and other formats, lone surrogates, line ends
_JOINERS = "\u200c\u200d"  # Persian and emoji need them, and they do no harm
_PASSWORD = re.compile(r"(://[^:/@]*):.*@")


def printable(text: str, *, keep: str = "") -> str:
    r"""*text* with each character that a terminal would obey rather than show as an escape, such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(char if char in keep or not _obeyed(char) else _escape(char) for char in text)


def _obeyed(char: str) -> bool:
    return char not in _JOINERS and unicodedata.category(char) in _UNSEEN


def _escape(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if named:
        return named
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8, kept by surrogateescape
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_line(value: Mapping[str, Any]) -> str:
    """One JSON object on one line, safe to show: what a terminal would obey is escaped as JSON escapes it."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    if text.isprintable():
        return text
    return "".join(_json_escape(char) if _obeyed(char) else char for char in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


def payload_text(codecs: Codecs, tag: str, body: bytes, legacy: Mapping[str, bytes] | None = None) -> str:
    """A payload on one line for people: bytes as text, other values as JSON, a legacy entry as its fields."""
    if legacy is not None:
        return json_line(_legacy(legacy))
    if tag != "b":
        try:
            return json_line({"": codecs.decode(tag, body)})[len('{"":') : -1]
        except (CodecError, TypeError, ValueError):
            pass
    return printable(body.decode(errors="surrogateescape"))


def payload_fields(codecs: Codecs, tag: str, body: bytes, legacy: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    """For programs: `payload` for a value, `payload_text` or `payload_base64` for bytes, `fields` for legacy."""
    if legacy is not None:
        return {"fields": _legacy(legacy)}
    if tag == "b":
        return bytes_fields("payload", body)
    try:
        value = codecs.decode(tag, body)
        msgspec.json.encode(value, enc_hook=str)
    except (CodecError, TypeError, ValueError):
        return {"payload_base64": _base64(body), "codec": tag}
    return {"payload": value}


def _legacy(fields: Mapping[str, bytes]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in fields.items():
        shown |= {key.removesuffix("_text"): text for key, text in bytes_fields(name, value).items()}
    return shown


def bytes_fields(name: str, value: str | bytes) -> dict[str, Any]:
    """Text under `name_text`, or `name` for what is text anyway; `name_base64` for bytes that are not UTF-8."""
    if isinstance(value, str):
        return {name: value}
    try:
        return {f"{name}_text": value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": _base64(value)}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def shown_key(shard_key: str | bytes) -> str:
    """A shard key for people."""
    return printable(shard_key if isinstance(shard_key, str) else shard_key.decode(errors="surrogateescape"))


def shown_url(url: str) -> str:
    """*url* without its password, even one with an `@` or `/` that should have been quoted."""
    return _PASSWORD.sub(r"\1:***@", printable(url))


def duration(seconds: float | None) -> str:
    """Such as `340 ms`, `4.2 s`, `12 min`, `3.5 h`; `-` for None."""
    if seconds is None:
        return "-"
    for limit, factor, unit in ((1, 1000, "ms"), (120, 1, "s"), (7200, 1 / 60, "min"), (172_800, 1 / 3600, "h")):
        if seconds < limit:
            value = seconds * factor
            return f"{value:.0f} {unit}" if value >= 10 or unit == "ms" else f"{value:.1f} {unit}"
    return f"{seconds / 86_400:.1f} d"


def plural(count: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
