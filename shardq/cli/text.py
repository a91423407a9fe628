"""Formatting of values as text for people and as JSON for programs.

A tenant may put terminal escapes, or characters that reverse a line, into a message. So all text for people goes
through `printable` (`output` sees to it), and all JSON through `json_line`, which escapes the same characters.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

import msgspec

from shardq.codec import Codecs
from shardq.errors import CodecError

_INVISIBLE_CATEGORIES = frozenset(
    {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
)  # controls, bidi and other formats, lone surrogates, line ends
_JOINERS = "\u200c\u200d"  # Persian and emoji need them, and they do no harm
_PASSWORD = re.compile(r"(://[^:/@]*):.*@")


def printable(text: str, *, keep: str = "") -> str:
    r"""*text* with each character escaped that would control a terminal, such as ``\x1b``; those of *keep* stay."""
    if text.isprintable():
        return text
    return "".join(char if char in keep or not is_control(char) else _escape(char) for char in text)


def is_control(char: str) -> bool:
    """Whether a terminal would obey *char* instead of showing it."""
    return char not in _JOINERS and unicodedata.category(char) in _INVISIBLE_CATEGORIES


def _escape(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if named:
        return named
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8, kept by surrogateescape
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_line(value: Mapping[str, Any]) -> str:
    r"""One JSON object on one line; characters that would control a terminal are escaped as ``\u001b``."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    if text.isprintable():
        return text
    return "".join(_json_escape(char) if is_control(char) else char for char in text)


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
    """A payload as JSON fields: `payload` (a value), `payload_text` or `payload_base64` (bytes), `fields` (legacy)."""
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
    """*value* as a JSON field: a str under `name`, UTF-8 bytes under `name_text`, others under `name_base64`."""
    if isinstance(value, str):
        return {name: value}
    try:
        return {f"{name}_text": value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": _base64(value)}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def shown_key(shard_key: str | bytes) -> str:
    """A shard key as text for people."""
    return printable(shard_key if isinstance(shard_key, str) else shard_key.decode(errors="surrogateescape"))


def shown_url(url: str) -> str:
    """*url* without its password, even if that has an `@` or `/` that should have been quoted."""
    return _PASSWORD.sub(r"\1:***@", printable(url))


def duration(seconds: float | None) -> str:
    """A time as `20 ms`, `0.5 s`, `12 min` or `3.5 h`; `-` for None."""
    from shardq.model.wording import span  # with it come all models, which an error of the command line does not need

    return span(seconds)


def ends_at(time: float | None, zone: tzinfo | None = None) -> str:
    """The end of a pause: its `date_and_time`, or `resumed` if it has none; '' for None."""
    from shardq.model import wording

    return wording.ends_at(time, zone)


def date_and_time(time: float, zone: tzinfo | None = None) -> str:
    """`2026-11-28 02:31:00` in the time zone of the process, as all screens show times; `...Z` with *zone* UTC."""
    from shardq.model import wording

    return wording.date_and_time(time, zone)


def plural(count: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
