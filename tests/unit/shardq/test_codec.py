"""Codecs: round trips, poison that cannot hurt, errors that advise and never quote the payload."""

from __future__ import annotations

import math
import os
import pickle
import random
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.codec import (
    MAX_HEADER_BYTES,
    BytesCodec,
    Codec,
    Codecs,
    JsonCodec,
    MsgpackCodec,
    decode_headers,
    encode_headers,
)
from shardq.errors import CodecError, ConfigError
from shardq.tasks import Tasks

CANARY = "s3cr3t-canary"
MARK = "SHARDQ_TEST_BOMB"
text = st.text(st.characters(codec="utf-8"), max_size=20)
plain = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), text, st.binary(max_size=20)
)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=20
)
json_plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text)
json_values = st.recursive(
    json_plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=20
)
ascii_keys = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)


class Order(msgspec.Struct):
    number: int
    items: list[str] = []


class Shouting:
    """A codec of the user's own."""

    tag = "S"

    def encode(self, value: Any) -> bytes:
        return str(value).upper().encode()

    def decode(self, body: bytes) -> Any:
        return body.decode()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def refused(call: Callable[[], object]) -> str:
    """The message of the CodecError that `call` raises, which shows no payload, nor a cause that may quote it."""
    with pytest.raises(CodecError) as caught:
        call()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert CANARY not in str(caught.value)
    return str(caught.value)


# --- round trips


@pytest.mark.runs_in("test-all")
@given(values)
def test_messagepack_round_trip(value: Any) -> None:
    """Whatever MessagePack can hold comes back equal; bytes go as they are, all else under tag m."""
    tag, body = Codecs().encode(value)

    assert ("b" if isinstance(value, bytes) else "m") == tag
    assert value == Codecs().decode(tag, body)


@given(json_values)
def test_json_round_trip(value: Any) -> None:
    """Whatever JSON can hold comes back equal under tag j, integers beyond 64 bits too."""
    tag, body = Codecs(JsonCodec()).encode(value)

    assert tag == "j"
    assert value == Codecs().decode(tag, body)


@given(st.binary(max_size=2000))
def test_bytes_pass_untouched(value: bytes) -> None:
    """Bytes-like payloads are stored as they are, under tag b, by both built-in writers."""
    for codecs in (Codecs(), Codecs(JsonCodec()), Codecs(BytesCodec())):
        for like in (value, bytearray(value), memoryview(value)):
            assert ("b", value) == codecs.encode(like)
            assert value == codecs.decode("b", value)


def test_datetimes_and_nested_bytes_survive_messagepack() -> None:
    """MessagePack keeps datetimes with a zone and bytes inside a payload; tuples and sets become lists."""
    codecs = Codecs()
    when = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

    assert {"when": when, "raw": b"\0\xff", "t": [1]} == codecs.decode(
        *codecs.encode({"when": when, "raw": b"\0\xff", "t": (1,)})
    )


def test_special_floats() -> None:
    """MessagePack keeps NaN and infinities, JSON turns them into null."""
    special = [math.nan, math.inf, -math.inf]
    nan, *infinities = Codecs().decode(*Codecs().encode(special))

    assert math.isnan(nan)
    assert special[1:] == infinities
    assert Codecs().decode(*Codecs(JsonCodec()).encode(special)) == [None] * 3


@pytest.mark.parametrize("make", [MsgpackCodec, JsonCodec])
def test_typed_decoding(make: Any) -> None:
    """With type=, a body is decoded to that type, or refused with the path of what does not fit."""
    codecs = Codecs(make(type=Order))
    order = Order(7, ["tea"])

    assert order == codecs.decode(*codecs.encode(order))
    tag, body = codecs.encode({"number": CANARY})
    assert "not of the type asked for, at `$.number`" in refused(lambda: codecs.decode(tag, body))


def test_typed_reader_of_another_tag() -> None:
    """A codec given beside the writer replaces the built-in reader of its tag."""
    codecs = Codecs(MsgpackCodec(), JsonCodec(type=Order))

    assert Order(1) == codecs.decode("j", b'{"number": 1}')
    assert codecs.encode({})[0] == "m"


def test_types_that_cannot_be_decoded_to_are_refused() -> None:
    """A type= that msgspec does not understand is a ConfigError at once, not at the first message."""
    with pytest.raises(ConfigError, match="cannot decode to"):
        MsgpackCodec(type=dict[str, int] | list[int] | set[str])


# --- a codec of the user's own


def test_own_codec() -> None:
    """An own codec writes under its tag and reads it; other tags are still read."""
    codecs = Codecs(Shouting())

    assert codecs.encode("hi") == ("S", b"HI")
    assert codecs.decode("S", b"HI") == "HI"
    assert codecs.decode("m", b"\x91\x01") == [1]


def test_own_writer_sees_bytes_too() -> None:
    """Bytes do not pass by a writer of the user's own, which may encrypt."""
    assert Codecs(Shouting()).encode(b"a") == ("S", b"B'A'")


def test_own_reader_only() -> None:
    """A codec given after the writer is only read with."""
    codecs = Codecs(None, Shouting())

    assert codecs.encode("hi")[0] == "m"
    assert codecs.decode("S", b"HI") == "HI"


@pytest.mark.parametrize(
    "tag", ["s", "m", "", "SS", "1", "É", "*", None, b"S", 10**5000], ids=lambda tag: f"{type(tag)}"
)
def test_bad_tags_are_refused(tag: Any) -> None:
    """An own tag is one letter from A to Z; lower case is shardq's."""
    codec = Shouting()
    codec.tag = tag
    with pytest.raises(ConfigError, match="one letter from A to Z"):
        Codecs(codec)


def test_clashes_and_missing_methods_are_refused() -> None:
    """Two codecs with one tag, or an object without encode or decode, are a ConfigError."""
    with pytest.raises(ConfigError, match="two codecs have the tag 'S'"):
        Codecs(Shouting(), Shouting())
    with pytest.raises(ConfigError, match=r"must have encode\(\): object has none"):
        Codecs(object())  # type: ignore[arg-type]


def test_failures_of_an_own_codec() -> None:
    """Whatever an own codec raises or returns becomes a CodecError without the payload."""

    class Broken(Shouting):
        def encode(self, value: Any) -> bytes:
            if value == "wrong type":
                return "text"  # type: ignore[return-value]
            raise RuntimeError(value)

        def decode(self, body: bytes) -> Any:
            raise KeyError(body)

    codecs = Codecs(Broken())

    assert "RuntimeError was raised" in refused(lambda: codecs.encode(CANARY))
    assert "must encode to bytes, not str" in refused(lambda: codecs.encode("wrong type"))
    assert "KeyError" in refused(lambda: codecs.decode("S", CANARY.encode()))


def test_own_codec_errors_pass() -> None:
    """A CodecError that an own codec raises reaches the caller as it is."""

    class Strict(Shouting):
        def encode(self, value: Any) -> bytes:
            raise CodecError("the key has expired: renew it")

    assert refused(lambda: Codecs(Strict()).encode(1)) == "the key has expired: renew it"


# --- what cannot be encoded


@pytest.mark.parametrize("codec", [MsgpackCodec(), JsonCodec()], ids=["m", "j"])
@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ({CANARY: object()}, "holds a type without an encoding"),
        ([CANARY, 1j], "holds a type without an encoding"),
        (CANARY + "\ud800", "lone surrogate"),
        ({CANARY + "\udfff": 1}, "lone surrogate"),
        (nested(200_000), "nested too deeply"),
    ],
    ids=["object", "complex", "surrogate", "surrogate-key", "deep"],
)
def test_what_cannot_be_encoded(codec: Codec, value: Any, advice: str) -> None:
    """Unsupported types, lone surrogates and deep nesting are refused when writing, with advice."""
    assert advice in refused(lambda: Codecs(codec).encode(value))


async def coroutine_function() -> None:
    """Do nothing."""


@pytest.mark.parametrize("codec", [MsgpackCodec(), JsonCodec()], ids=["m", "j"])
@pytest.mark.parametrize(
    "value",
    [refused, Tasks("jobs").task(coroutine_function), lambda: 1, Codec],
    ids=["function", "task", "lambda", "class"],
)
def test_who_forgets_call_is_told_of_it(codec: Codec, value: Any) -> None:
    assert "write what task.call(...) returns" in refused(lambda: Codecs(codec).encode(value))


def test_who_calls_a_coroutine_function_instead_is_told_of_it() -> None:
    coroutine = coroutine_function()
    assert "write what task.call(...) returns" in refused(lambda: Codecs().encode(coroutine))
    coroutine.close()


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, [10**30], 10**5000], ids=["max", "min", "list", "huge"])
def test_integers_beyond_64_bits(value: Any) -> None:
    """MessagePack holds 64 bits; a larger integer is refused with what to do instead."""
    assert "an integer does not fit 64 bits: write it as text" in refused(lambda: Codecs().encode(value))


def test_cycles() -> None:
    """A payload that holds itself is refused as too deep."""
    loop: list[Any] = []
    loop.append(loop)

    assert "nested too deeply" in refused(lambda: Codecs().encode(loop))


def test_json_integer_too_long_for_python() -> None:
    """An integer of more than 4,300 digits is refused by JSON too."""
    refused(lambda: Codecs(JsonCodec()).encode(10**5000))


def test_released_memoryview() -> None:
    """A memoryview that was released is a CodecError, not a ValueError from inside."""
    view = memoryview(b"a")
    view.release()

    assert "raw bytes" in refused(lambda: Codecs().encode(view))


def test_raw_codec_takes_only_bytes() -> None:
    """With BytesCodec as the writer anything but bytes is refused."""
    assert "cannot encode a dict as raw bytes" in refused(lambda: Codecs(BytesCodec()).encode({CANARY: 1}))


# --- poison


class Bomb:
    """Its pickle leaves a mark in the environment when anything unpickles it."""

    def __reduce__(self) -> Any:
        return exec, (f"import os; os.environ[{MARK!r}] = '1'",)


POISON = {
    "empty": b"",
    "nul": b"\0",
    "all-bytes": bytes(range(256)),
    "invalid-utf8": b"\xa3\xff\xfe\xfd",
    "resp": b"\r\n+OK\r\n",
    "json-deep": b"[" * 200_000,
    "json-deep-objects": b'{"a":' * 200_000,
    "json-5000-digits": b"9" * 5_000,
    "json-nan": b"NaN",
    "json-infinite": b"1e999",
    "json-surrogate": rb'"\ud800"',
    "json-bom": b"\xef\xbb\xbf1",
    "json-trailing": b"1 1",
    "json-invalid-utf8": b'"\xff"',
    "msgpack-deep": b"\x91" * 200_000,
    "msgpack-deep-keys": b"\x81" * 200_000,
    "msgpack-huge-array": b"\xdd\xff\xff\xff\xff",
    "msgpack-huge-map": b"\xdf\xff\xff\xff\xff",
    "msgpack-huge-bytes": b"\xc6\xff\xff\xff\xff",
    "msgpack-nested-huge": b"\xdd\xff\xff\xff\xff" * 500,
    "msgpack-reserved": b"\xc1",
    "msgpack-truncated": b"\x92\x01",
    "msgpack-trailing": b"\x01\x01",
    "msgpack-map-as-key": b"\x81\x80\x01",
    "msgpack-bad-time": b"\xc7\x0c\xff" + b"\xff" * 12,
    "pickle": pickle.dumps(Bomb(), protocol=4),
    "html": b"<script>alert(1)</script>",
    "ansi": b"\x1b[2J\x1b]0;x\x07",
    "csv": b"=cmd|' /C calc'!A0",
}


@pytest.mark.parametrize("body", POISON.values(), ids=POISON)
@pytest.mark.parametrize("tag", ["b", "m", "j"])
def test_poison(tag: str, body: bytes) -> None:
    """No body hurts a reader: it decodes, or is a CodecError; raw bytes come back byte for byte."""
    try:
        value = Codecs().decode(tag, body)
    except CodecError:
        assert tag != "b"
    else:
        assert tag != "b" or body == value
    assert MARK not in os.environ


def test_the_bomb_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle among the poison would run code if anything unpickled it."""
    monkeypatch.setenv(MARK, "0")  # so that it is taken away afterwards
    pickle.loads(POISON["pickle"])  # noqa: S301 - to show what shardq must never do

    assert os.environ[MARK] == "1"


REFUSED_JSON = [name for name in POISON if name.startswith("json")]
REFUSED_MSGPACK = [name for name in POISON if name.startswith("msgpack")]


@pytest.mark.parametrize(
    ("tag", "name"), [*(("j", name) for name in REFUSED_JSON), *(("m", name) for name in REFUSED_MSGPACK)]
)
def test_malformed_bodies_are_refused(tag: str, name: str) -> None:
    """Malformed JSON and MessagePack is refused with a pointer to the raw bytes, or told to be nested too deeply."""
    message = refused(lambda: Codecs().decode(tag, POISON[name]))

    assert "Delivery.body" in message or "nested too deeply" in message


def test_errors_do_not_quote_the_body() -> None:
    """Refusing a body shows none of it, nor does the traceback."""
    packed = msgspec.msgpack.encode(CANARY)
    for body in (packed + b"\x01", CANARY.encode(), packed[:-1]):
        refused(partial(Codecs().decode, "m", body))
    for body in (b'"' + CANARY.encode(), CANARY.encode(), b'{"' + CANARY.encode() + b'": NaN}'):
        refused(partial(Codecs().decode, "j", body))


def test_typed_errors_do_not_quote_the_body() -> None:
    """msgspec quotes wrong enum values and unknown fields; shardq does not."""

    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        number: int = 0

    codecs = Codecs(JsonCodec(type=dict[str, Strict]))

    assert "not of the type asked for" in refused(
        lambda: codecs.decode("j", f'{{"{CANARY}": {{"{CANARY}": 1}}}}'.encode())
    )


def test_duplicate_keys_last_wins() -> None:
    """Of duplicate keys the last one counts, in both formats."""
    assert {"a": 2} == Codecs().decode("j", b'{"a":1,"a":2}') == Codecs().decode("m", b"\x82\xa1a\x01\xa1a\x02")


def test_unknown_extension_is_inert() -> None:
    """An unknown MessagePack extension is an Ext value: its bytes, nothing run."""
    assert msgspec.msgpack.Ext(5, b"a") == Codecs().decode("m", b"\xc7\x01\x05a")


@pytest.mark.parametrize(
    ("tag", "shown"),
    [
        ("Z", "tag 'Z'"),
        ("p", "tag 'p'"),
        ("", "not a letter"),
        ("mm", "not a letter"),
        ("\x1b", "not a letter"),
        (None, "not a"),
    ],
)
def test_unknown_tags_are_refused(tag: Any, shown: str) -> None:
    """An unknown tag is refused before the body is looked at; odd ones are not echoed."""
    message = refused(lambda: Codecs().decode(tag, b"\x01"))

    assert shown in message
    assert "give the client the codec" in message


@pytest.mark.runs_in("test-all")
def test_fuzz() -> None:
    """Random and mutated bodies decode or raise CodecError, never anything else; the seed is printed."""
    seed = int(os.environ.get("SHARDQ_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    rounds = int(os.environ.get("SHARDQ_FUZZ_ROUNDS") or 20_000)
    print(f"SHARDQ_FUZZ_SEED={seed}")
    source = random.Random(seed)
    codecs, typed = Codecs(), Codecs(MsgpackCodec(type=Order), JsonCodec(type=Order))
    bodies = [body for body in POISON.values() if len(body) < 1_000] + [
        codecs.encode({"number": 1, "items": ["a", b"b", 2.5]})[1]
    ]
    for _ in range(rounds):
        body = bytearray(source.choice(bodies) if source.random() < 0.7 else source.randbytes(source.randrange(40)))
        for _ in range(source.randrange(4)):
            at = source.randrange(len(body) + 1)
            body[at : at + source.randrange(3)] = source.randbytes(source.randrange(3))
        for decode in (codecs.decode, typed.decode):
            for tag in "bmj":
                _decode_or_refuse(decode, tag, bytes(body))
        _decode_or_refuse(lambda _, body: decode_headers(body), "", bytes(body))
    assert MARK not in os.environ


def _decode_or_refuse(decode: Callable[[str, bytes], Any], tag: str, body: bytes) -> None:
    try:
        decode(tag, body)
    except CodecError:
        pass
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__} from tag {tag!r}, body {body!r}") from error


# --- headers


@given(st.dictionaries(ascii_keys, text, max_size=20))
def test_headers_round_trip(headers: dict[str, str]) -> None:
    """Headers come back equal; none at all are no bytes."""
    body = encode_headers(headers)

    assert headers == decode_headers(body)
    assert (body == b"") == (not headers)


def test_any_mapping_is_headers() -> None:
    """Headers may be any mapping."""
    assert decode_headers(encode_headers(MappingProxyType({"a": "b"}))) == {"a": "b"}
    assert decode_headers(encode_headers(OrderedDict(a="b"))) == {"a": "b"}


def test_header_limits_are_inclusive() -> None:
    """64 headers, keys of 128 characters and 8,192 bytes in all are allowed, one more of each is not."""
    assert len(decode_headers(encode_headers({f"k{i}": "" for i in range(64)}))) == 64
    assert encode_headers({"k" * 128: ""})
    largest = {"k": "v" * (MAX_HEADER_BYTES - 6)}  # 1 for the map, 2 for the key, 3 for the value's length
    assert len(encode_headers(largest)) == MAX_HEADER_BYTES
    with pytest.raises(ConfigError, match="at most 8192 bytes, these take 8193"):
        encode_headers({"k": largest["k"] + "v"})
    with pytest.raises(ConfigError, match="at most 64 headers, not 65"):
        encode_headers({f"k{i}": "" for i in range(65)})
    with pytest.raises(ConfigError, match="1 to 128 characters, not 129"):
        encode_headers({"k" * 129: ""})


@pytest.mark.parametrize(
    ("headers", "advice"),
    [
        ({"": CANARY}, "1 to 128 characters, not 0"),
        ({"a\0": CANARY}, r"printable ASCII: 'a\\x00' is not"),
        ({"a\u202e": CANARY}, r"printable ASCII: 'a\\u202e' is not"),
        ({"a\n": CANARY}, "printable ASCII"),
        ({"a": b"b"}, "str to str, not str to bytes"),
        ({1: "b"}, "str to str, not int to str"),
        ({"a": None}, "str to str, not str to NoneType"),
        ({"a": CANARY + "\ud800"}, "lone surrogate"),
        ([("a", "b")], "a mapping of str to str, not list"),
        ("ab", "a mapping of str to str, not str"),
        (None, "a mapping of str to str, not NoneType"),
    ],
)
def test_bad_headers_are_refused(headers: Any, advice: str) -> None:
    """Bad headers are a ConfigError that says what is wrong and never shows a value."""
    with pytest.raises(ConfigError, match=advice) as caught:
        encode_headers(headers)

    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"\x01", b"\x80\x80", b"\x81\xa1a\x01", b"\x81\x01\xa1a", b"\x81\xa1a\xa1\xff", b"\xff", b"\x91" * 99_999]
)
def test_rubbish_headers_are_refused(body: bytes) -> None:
    """Header bytes that are not a MessagePack map of str to str are a CodecError."""
    assert "cannot decode headers" in refused(lambda: decode_headers(body))
