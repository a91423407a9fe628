r"""Payloads and headers to bytes and back.

Each stored message carries a tag of one letter that says how its body was written, so that a reader needs no setting:

=====  ==========================================================================
tag    body
=====  ==========================================================================
``b``  the bytes that were written, untouched
``m``  MessagePack (the default for everything but bytes)
``j``  JSON
A - Z  a codec of the user's own
=====  ==========================================================================

Decoding never runs code: there is no pickle, an unknown tag is refused before its body is looked at, and an unknown
MessagePack extension stays an inert `msgspec.msgpack.Ext`. Whatever goes wrong is a `CodecError` that says what to do
and never shows the payload; the cause is left out of the traceback, since causes quote their input.

>>> codecs = Codecs()
>>> codecs.encode({"prompt": "a cat"})
('m', b'\x81\xa6prompt\xa5a cat')
>>> codecs.decode("m", b'\x81\xa6prompt\xa5a cat')
{'prompt': 'a cat'}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from shardq.arguments import shown
from shardq.errors import CodecError, ConfigError

T = TypeVar("T")

MAX_HEADERS: Final = 64
"""The most headers that one message may have."""

MAX_HEADER_BYTES: Final = 8 * 1024
"""The most bytes that a message's headers may take when encoded."""

MAX_HEADER_KEY: Final = 128
"""The longest header key, in characters."""


class Codec(Protocol):
    """Turns values into bytes and back; an own one has an upper-case `tag` and may raise anything."""

    @property
    def tag(self) -> str:
        """One ASCII letter, stored with each message; upper case is the users', lower case is shardq's."""
        ...

    def encode(self, value: Any) -> bytes:
        """The bytes of `value`."""
        ...

    def decode(self, body: bytes) -> Any:
        """The value of `body`; must be safe on any bytes."""
        ...


class BytesCodec:
    """Bytes as they are; a bytearray or memoryview comes back as bytes."""

    tag: Final = "b"

    def encode(self, value: Any) -> bytes:
        """A copy of a bytes-like `value`; CodecError for anything else."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise CodecError(f"cannot encode a {_type_name(value)} as raw bytes: pass bytes, bytearray or memoryview")
        return _guarded("encode", "raw bytes", bytes, value)  # fails on a released memoryview

    def decode(self, body: bytes) -> bytes:
        """`body` itself."""
        return body


class MsgpackCodec:
    """MessagePack; `type` is what to decode to: a msgspec.Struct, dataclass, TypedDict or any type msgspec takes.

    Without `type`, tuples and sets come back as lists, dataclasses and Structs as dicts; datetimes with a zone and
    nested bytes survive. Integers go from -2**63 to 2**64 - 1.
    """

    tag: Final = "m"

    def __init__(self, type: Any = Any) -> None:  # noqa: A002 - msgspec's own word
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = _make_decoder(msgspec.msgpack.Decoder, type)

    def __reduce__(self) -> tuple[Any, ...]:
        """For the start of a child process, which makes its own."""
        return self.__class__, (self._decoder.type,)

    def encode(self, value: Any) -> bytes:
        """MessagePack of `value`; CodecError when it has none."""
        return _guarded("encode", "MessagePack", self._encoder.encode, value)

    def decode(self, body: bytes) -> Any:
        """The value of a MessagePack `body`; CodecError when it is not one, or not of `type`."""
        return _guarded("decode", "MessagePack", self._decoder.decode, body)


class JsonCodec:
    """JSON, for readers in other languages; `type` as in `MsgpackCodec`.

    JSON has fewer types, and msgspec maps what is left: NaN and infinities become null, nested bytes base64 text,
    keys text. Integers of any practical size survive here, though not in every other language's reader.
    """

    tag: Final = "j"

    def __init__(self, type: Any = Any) -> None:  # noqa: A002 - msgspec's own word
        self._encoder = msgspec.json.Encoder()
        self._decoder = _make_decoder(msgspec.json.Decoder, type)

    def __reduce__(self) -> tuple[Any, ...]:
        """For the start of a child process, which makes its own."""
        return self.__class__, (self._decoder.type,)

    def encode(self, value: Any) -> bytes:
        """JSON of `value` in UTF-8; CodecError when it has none."""
        return _guarded("encode", "JSON", self._encoder.encode, value)

    def decode(self, body: bytes) -> Any:
        """The value of a JSON `body`; CodecError when it is not one, or not of `type`."""
        return _guarded("decode", "JSON", self._decoder.decode, body)


_BUILT_IN: Final = (BytesCodec, MsgpackCodec, JsonCodec)


class Codecs:
    """The codecs of one client: one that writes, all of them read.

    `writer` encodes what is written. A built-in writer leaves bytes, bytearray and memoryview as they are, under tag
    ``b``; a codec of the user's own sees every value, so that one that encrypts cannot be passed by. `others` are
    only read with. The three built-in codecs can always be read. ConfigError for a bad tag, two codecs with one tag,
    or a method that is missing. Safe across threads as long as the user's own codecs are.
    """

    __slots__ = ("_by_tag", "_raw", "_writer")

    def __init__(self, writer: Codec | None = None, *others: Codec) -> None:
        self._writer: Codec = MsgpackCodec() if writer is None else writer
        self._raw: Codec | None = BytesCodec() if isinstance(self._writer, _BUILT_IN) else None
        self._by_tag = _by_tag(self._writer, *others)

    def encode(self, value: Any) -> tuple[str, bytes]:
        """The tag and body to store for `value`; CodecError when it cannot be encoded."""
        codec = self._writer
        if self._raw is not None and isinstance(value, bytes | bytearray | memoryview):
            if type(value) is bytes:
                return BytesCodec.tag, value  # what most writes come to, without the detour
            codec = self._raw
        body: object = _guarded("encode", f"with codec {codec.tag!r}", codec.encode, value)
        if not isinstance(body, bytes):
            raise CodecError(f"codec {codec.tag!r} must encode to bytes, not {_type_name(body)}: fix its encode()")
        return codec.tag, body

    def decode(self, tag: str, body: bytes) -> Any:
        """The value of a stored `tag` and `body`; CodecError for an unknown tag or a body that does not fit it."""
        codec = self._by_tag.get(tag)
        if codec is None:
            raise CodecError(_unknown(tag))
        return _guarded("decode", f"with codec {tag!r}", codec.decode, body)


def _by_tag(*codecs: Codec) -> dict[str, Codec]:
    """The built-in codecs, replaced and joined by `codecs`, by tag."""
    own: dict[str, Codec] = {}
    for codec in codecs:
        tag = _check_codec(codec)
        if tag in own:
            raise ConfigError(f"two codecs have the tag {tag!r}: give each its own letter")
        own[tag] = codec
    built_in: dict[str, Codec] = {codec.tag: codec for codec in (BytesCodec(), MsgpackCodec(), JsonCodec())}
    return built_in | own


def _check_codec(codec: Codec) -> str:
    """The tag of `codec`; ConfigError unless it is a codec."""
    tag = getattr(codec, "tag", None)
    if isinstance(codec, _BUILT_IN) and tag == type(codec).tag:
        return codec.tag
    for method in ("encode", "decode"):
        if not callable(getattr(codec, method, None)):
            raise ConfigError(f"a codec must have {method}(): {_type_name(codec)} has none")
    if not isinstance(tag, str) or len(tag) != 1 or not "A" <= tag <= "Z":
        raise ConfigError(f"the tag of {_type_name(codec)} must be one letter from A to Z, not {shown(tag)}")
    return tag


def _make_decoder(make: Any, target: Any) -> Any:
    """`make(target)`; ConfigError for a type that msgspec cannot decode to."""
    try:
        return make(target)
    except Exception as error:  # msgspec raises TypeError, and NameError for unresolved annotations
        raise ConfigError(f"cannot decode to {shown(target)}: {error}") from error


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """A message's headers as a MessagePack map, ``b""`` when there are none.

    Limits: 64 headers, keys of 1 to 128 printable ASCII characters, 8,192 bytes in all. ConfigError for headers that
    break them or are not str to str.
    """
    if not isinstance(headers, Mapping):
        raise ConfigError(f"headers must be a mapping of str to str, not {_type_name(headers)}")
    if not headers:
        return b""
    if len(headers) > MAX_HEADERS:
        raise ConfigError(f"a message may have at most {MAX_HEADERS} headers, not {len(headers)}")
    for key, value in headers.items():
        _check_header(key, value)
    return _pack_headers(dict(headers))


def _check_header(key: object, value: object) -> None:
    """ConfigError unless `key` and `value` may be a header; values are user data, so no message shows them."""
    if not isinstance(key, str) or not isinstance(value, str):
        raise ConfigError(f"headers must be str to str, not {_type_name(key)} to {_type_name(value)}")
    if not 1 <= len(key) <= MAX_HEADER_KEY:
        raise ConfigError(f"a header key must have 1 to {MAX_HEADER_KEY} characters, not {len(key)}")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"a header key must be printable ASCII: {key!a} is not")


def _pack_headers(headers: dict[str, str]) -> bytes:
    """MessagePack of checked headers; ConfigError when it is too large."""
    try:
        body = msgspec.msgpack.encode(headers)
    except UnicodeEncodeError:
        raise ConfigError("a header value must be valid Unicode: one holds a lone surrogate") from None
    if len(body) > MAX_HEADER_BYTES:
        raise ConfigError(f"headers may take at most {MAX_HEADER_BYTES} bytes, these take {len(body)}")
    return body


_HEADERS: Final = msgspec.msgpack.Decoder(dict[str, str])


def decode_headers(body: bytes) -> dict[str, str]:
    """The headers of a message, empty for ``b""``; CodecError when `body` is not a MessagePack map of str to str.

    Limits are the writer's business: whatever decodes is returned.
    """
    if not body:
        return {}
    return _guarded("decode", "headers (a MessagePack map)", _HEADERS.decode, body)


def _guarded(verb: str, what: str, call: Callable[[Any], T], argument: object) -> T:
    """`call(argument)`; whatever it raises becomes a CodecError without a byte of what was encoded or decoded."""
    try:
        return call(argument)
    except CodecError:
        raise
    except Exception as error:  # noqa: BLE001 - codecs fail in a dozen ways, and poison must not stop a worker
        raise CodecError(f"cannot {verb} {what}: {_advice(verb, error)}") from None


def _advice(verb: str, error: Exception) -> str:
    """What is wrong and what to do about it; looks at the error's type, since its text may quote the payload."""
    decoding = verb == "decode"
    match error:
        case RecursionError():
            return "nested too deeply: flatten it, or write bytes"
        case MemoryError():
            return "not enough memory: write less at once, or a reference to where the data lies"
        case OverflowError():
            return "an integer does not fit 64 bits: write it as text"
        case UnicodeError() if decoding:
            return "text in it is not UTF-8: Delivery.body has the bytes"
        case UnicodeError():
            return "text in it holds a lone surrogate, which UTF-8 cannot hold: clean it, or write bytes"
        case msgspec.ValidationError():
            return f"a value is out of range or not of the type asked for{_path(error)}: Delivery.body has the bytes"
        case _ if decoding:
            return f"it is damaged or of another format ({_type_name(error)}): Delivery.body has the bytes"
        case TypeError():
            return "it holds a type without an encoding: convert it to dict, list, str, bytes or numbers"
        case _:
            return f"{_type_name(error)} was raised: fix the value or the codec"


def _path(error: Exception) -> str:
    """Where msgspec found the error, such as ``, at `$.items[...].price` ``: field names of the type, no payload."""
    _, found, path = str(error).rpartition(" - at `")
    return f", at `{path}" if found else ""


def _unknown(tag: object) -> str:
    """Advice for a tag that no codec has; shows it only when it is one letter, since it came from Redis."""
    is_letter = isinstance(tag, str) and len(tag) == 1 and tag.isascii() and tag.isalpha()
    shown_tag = repr(tag) if is_letter else "that is not a letter"
    return f"no codec has the tag {shown_tag}: give the client the codec that wrote it; Delivery.body has the bytes"


def _type_name(value: object) -> str:
    return type(value).__name__
