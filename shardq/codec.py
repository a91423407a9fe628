r"""Codecs, which turn payloads and headers into bytes and back.

Each stored message has a tag of one letter, which says how its body was encoded. So a reader needs no setting:

=====  ==========================================================================
tag    body
=====  ==========================================================================
``b``  the bytes that were written, untouched
``m``  MessagePack (the default for everything but bytes)
``j``  JSON
A - Z  a codec of the user's own
=====  ==========================================================================

Decoding never runs code: there is no pickle, a body with an unknown tag is not decoded, and an unknown MessagePack
extension stays a `msgspec.msgpack.Ext`. Every failure is a `CodecError` that says what to do and never shows the
payload. Its cause is left out of the traceback, because causes quote their input.

>>> codecs = Codecs()
>>> codecs.encode({"prompt": "a cat"})
('m', b'\x81\xa6prompt\xa5a cat')
>>> codecs.decode("m", b'\x81\xa6prompt\xa5a cat')
{'prompt': 'a cat'}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, ClassVar, Final, Protocol, TypeVar

import msgspec

from shardq.arguments import shown
from shardq.errors import CodecError, ConfigError
from shardq.parts import kind_of, refused_part

T = TypeVar("T")

MAX_HEADERS: Final = 64
"""The most headers that one message may have."""

MAX_HEADER_BYTES: Final = 8 * 1024
"""The most bytes that a message's headers may take when encoded."""

MAX_HEADER_KEY: Final = 128
"""The longest header key, in characters."""


class Codec(Protocol):
    """Turns values into bytes and back. A user's own codec has an upper-case `tag`, and may raise any exception.

    >>> class Upper:
    ...     tag = "U"
    ...     def encode(self, value):
    ...         return value.upper().encode()
    ...     def decode(self, body):
    ...         return body.decode().lower()
    >>> codecs = Codecs(Upper())
    >>> codecs.encode("hello")
    ('U', b'HELLO')
    """

    @property
    def tag(self) -> str:
        """One ASCII letter, stored with each message. Users' codecs have upper case, built-in ones lower case."""
        ...

    def encode(self, value: Any) -> bytes:
        """Encode `value`. Its errors become a CodecError.

        >>> Upper().encode("hello")
        b'HELLO'
        """
        ...

    def decode(self, body: bytes) -> Any:
        """Decode `body`. It must be safe with any bytes. Its errors become a CodecError.

        >>> Upper().decode(b"HELLO")
        'hello'
        """
        ...


class BytesCodec:
    """Bytes that are stored as they are. A bytearray or memoryview comes back as bytes.

    >>> codec = BytesCodec()
    >>> codec.encode(bytearray(b"abc")), codec.decode(b"abc")
    (b'abc', b'abc')
    """

    tag: Final = "b"
    """The letter that is stored with each message."""

    def encode(self, value: Any) -> bytes:
        """Return a copy of a bytes-like `value`. CodecError for anything else."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise CodecError(f"cannot encode a {_type_name(value)} as raw bytes: pass bytes, bytearray or memoryview")
        return _guarded("encode", "raw bytes", bytes, value)  # fails on a released memoryview

    def decode(self, body: bytes) -> bytes:
        """Return `body` itself. It raises nothing."""
        return body


class _Msgspec:
    """The common part of the codecs of msgspec."""

    _name: ClassVar[str]
    _format: ClassVar[Any]

    def __init__(self, type: Any = Any) -> None:  # noqa: A002 - msgspec's own word
        self._encoder: msgspec.msgpack.Encoder | msgspec.json.Encoder = self._format.Encoder(enc_hook=_plain)
        self._decoder = _make_decoder(self._format.Decoder, type)

    def __reduce__(self) -> tuple[Any, ...]:
        """For the start of a child process, which makes its own."""
        return self.__class__, (self._decoder.type,)

    def encode(self, value: Any) -> bytes:
        """Encode `value`. CodecError, with place and type of what the format cannot represent."""
        try:
            return self._encoder.encode(value)
        except Exception as error:  # noqa: BLE001 (of any type's making)
            text = refusal(f"cannot encode {self._name}: payload", value, error, self._encoder.encode)
            raise CodecError(text) from None

    def decode(self, body: bytes) -> Any:
        """Decode a `body`. CodecError if it is damaged, or not of `type`."""
        return _guarded("decode", self._name, self._decoder.decode, body)


class MsgpackCodec(_Msgspec):
    """MessagePack. `type` is what to decode to: a msgspec.Struct, dataclass, TypedDict or any type msgspec takes.

    Without `type`, tuples and sets come back as lists, dataclasses and Structs as dicts, UUIDs, decimals and dates as
    text, enums as their values; datetimes with a zone and nested bytes stay what they are. Integers may be from -2**63
    to 2**64 - 1.

    >>> codec = MsgpackCodec(dict[str, int])
    >>> codec.decode(codec.encode({"order": 7}))
    {'order': 7}
    """

    tag: Final = "m"
    """The letter that is stored with each message."""
    _name = "MessagePack"
    _format: ClassVar = msgspec.msgpack


class JsonCodec(_Msgspec):
    """JSON in UTF-8, for readers in other languages. `type` is as in `MsgpackCodec`.

    JSON has fewer types, so msgspec converts some: NaN and infinities to null, nested bytes to base64 text, keys to
    text. Large integers are kept, but readers in some other languages cannot read them exactly.

    >>> codec = JsonCodec()
    >>> codec.encode({"order": 7}), codec.decode(b"[1, null]")
    (b'{"order":7}', [1, None])
    """

    tag: Final = "j"
    """The letter that is stored with each message."""
    _name = "JSON"
    _format: ClassVar = msgspec.json


_BUILT_IN: Final = (BytesCodec, MsgpackCodec, JsonCodec)


class Codecs:
    """The codecs of one client: one of them encodes, and all of them decode.

    `writer` encodes payloads. If it is a built-in codec, bytes, bytearray and memoryview are stored as they are, under
    tag ``b``. A user's own codec gets every value, so that, for example, an encrypting codec encrypts bytes too.
    `others` only decode. The three built-in codecs can always decode. ConfigError for a bad tag, two codecs with one
    tag, or a missing method. Safe across threads as long as the user's own codecs are.

    >>> codecs = Codecs(JsonCodec())
    >>> codecs.encode({"order": 7}), codecs.encode(b"raw")
    (('j', b'{"order":7}'), ('b', b'raw'))
    >>> codecs.decode("j", b'{"order":7}')
    {'order': 7}
    """

    __slots__ = ("_by_tag", "_raw", "_writer")

    def __init__(self, writer: Codec | None = None, *others: Codec) -> None:
        self._writer: Codec = MsgpackCodec() if writer is None else writer
        self._raw: Codec | None = BytesCodec() if isinstance(self._writer, _BUILT_IN) else None
        self._by_tag = _by_tag(self._writer, *others)

    def encode(self, value: Any) -> tuple[str, bytes]:
        """Return the tag and body to store for `value`. CodecError if it cannot be encoded."""
        codec = self._writer
        if self._raw is not None and isinstance(value, bytes | bytearray | memoryview):
            if type(value) is bytes:
                return BytesCodec.tag, value  # a shortcut for a common case
            codec = self._raw
        body: object = _guarded("encode", f"with codec {codec.tag!r}", codec.encode, value)
        if not isinstance(body, bytes):
            raise CodecError(f"codec {codec.tag!r} must encode to bytes, not {_type_name(body)}: fix its encode()")
        return codec.tag, body

    def decode(self, tag: str, body: bytes) -> Any:
        """Decode a stored `body` by its `tag`. CodecError for an unknown tag, or a body that does not fit it."""
        codec = self._by_tag.get(tag)
        if codec is None:
            raise _of_read(CodecError(_unknown(tag)))
        return _guarded("decode", f"with codec {tag!r}", codec.decode, body)


def _by_tag(*codecs: Codec) -> dict[str, Codec]:
    """Return all codecs by tag: the built-in ones, and `codecs`, which replace built-in ones of the same tag."""
    own: dict[str, Codec] = {}
    for codec in codecs:
        tag = _check_codec(codec)
        if tag in own:
            raise ConfigError(f"two codecs have the tag {tag!r}: give each its own letter")
        own[tag] = codec
    built_in: dict[str, Codec] = {codec.tag: codec for codec in (BytesCodec(), MsgpackCodec(), JsonCodec())}
    return built_in | own


def _check_codec(codec: Codec) -> str:
    """Return the tag of `codec`. ConfigError if it is not a codec."""
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
    """Return `make(target)`. ConfigError for a type that msgspec cannot decode to."""
    try:
        return make(target)
    except Exception as error:  # msgspec raises TypeError, and NameError for unresolved annotations
        raise ConfigError(f"cannot decode to {shown(target)}: {str(error)[:200]}") from error


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Encode a message's headers as a MessagePack map; ``b""`` if there are none.

    ConfigError for more than 64 headers, a key that is not 1 to 128 printable ASCII characters, more than 8,192 bytes
    in all, or anything but str to str.
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
    """ConfigError unless `key` and `value` may be a header. Values are user data, so no error text shows them."""
    if not isinstance(key, str) or not isinstance(value, str):
        raise ConfigError(f"headers must be str to str, not {_type_name(key)} to {_type_name(value)}")
    if not 1 <= len(key) <= MAX_HEADER_KEY:
        raise ConfigError(f"a header key must have 1 to {MAX_HEADER_KEY} characters, not {len(key)}")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"a header key must be printable ASCII: {key!a} is not")


def _pack_headers(headers: dict[str, str]) -> bytes:
    """Encode checked headers. ConfigError if they are too large, or not valid Unicode."""
    try:
        body = msgspec.msgpack.encode(headers, enc_hook=_plain)
    except UnicodeEncodeError:
        raise ConfigError("a header value must be valid Unicode: one holds a lone surrogate") from None
    if len(body) > MAX_HEADER_BYTES:
        raise ConfigError(f"headers may take at most {MAX_HEADER_BYTES} bytes, these take {len(body)}")
    return body


_HEADERS: Final = msgspec.msgpack.Decoder(dict[str, str])


def decode_headers(body: bytes) -> dict[str, str]:
    """Decode a message's headers; empty for ``b""``. CodecError if `body` is not a MessagePack map of str to str.

    Only the writer checks the limits.
    """
    if not body:
        return {}
    return _guarded("decode", "headers (a MessagePack map)", _HEADERS.decode, body)


class _Uncalled(TypeError):
    """The value is a function, or a coroutine of one: somebody has forgotten `task.call(...)`."""


def _plain(value: Any) -> str:
    """Return as plain text what is of a subclass of `str`, such as the id that a write returned: msgspec refuses it."""
    if isinstance(value, str):
        return str(value)
    if callable(value) or isinstance(value, Awaitable):
        raise _Uncalled
    raise TypeError(f"objects of type {_type_name(value)} cannot be encoded")


ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
"""Encodes what no client's codec is asked for."""


def refusal(
    place: str,
    value: Any,
    error: Exception,
    encode: Callable[[Any], object] = ENCODER.encode,
    names: Collection[str] = (),
) -> str:
    """Return where in *value*, which lies at *place*, is what *encode* refused with *error*, its type, and advice."""
    path, part = refused_part(value, encode, names)
    return f"{place}{path}: {kind_of(part)}: {_advice('encode', error)}"


def _guarded(verb: str, what: str, call: Callable[[Any], T], argument: object) -> T:
    """Return `call(argument)`. Whatever it raises becomes a CodecError that shows nothing of the payload."""
    try:
        return call(argument)
    except CodecError:
        raise
    except Exception as error:  # noqa: BLE001 - codecs may raise anything, and a bad payload must not stop a worker
        found = CodecError(f"cannot {verb} {what}: {_advice(verb, error)}")
        raise (_of_read(found) if verb == "decode" else found) from None


def _of_read(error: CodecError) -> CodecError:
    error.is_of_read = True
    return error


def _advice(verb: str, error: Exception) -> str:
    """Return what is wrong and what to do. It uses the type of *error* only, whose text may quote the payload."""
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
        case _Uncalled():
            return "it has a function, a task or a coroutine: of a task, write what task.call(...) returns"
        case TypeError():
            return "it holds a type without an encoding: convert it to dict, list, str, bytes or numbers"
        case _:
            return f"{_type_name(error)} was raised: fix the value or the codec"


def _path(error: Exception) -> str:
    """Return where msgspec found the error, such as ``, at `$.items[...].price` ``. It has no part of the payload."""
    _, found, path = str(error).rpartition(" - at `")
    return f", at `{path}" if found else ""


def _unknown(tag: object) -> str:
    """Return advice for a tag that no codec has. The tag came from Redis, so it is shown only if it is one letter."""
    is_letter = isinstance(tag, str) and len(tag) == 1 and tag.isascii() and tag.isalpha()
    shown_tag = repr(tag) if is_letter else "that is not a letter"
    return f"no codec has the tag {shown_tag}: give the client the codec that wrote it; Delivery.body has the bytes"


def _type_name(value: object) -> str:
    return type(value).__name__
