"""Check and encode rows of a DataFrame, a column at a time; rows that are no valid messages are returned apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.codec import encode_headers
from shardq.errors import CodecError, ConfigError
from shardq.model.call import IS_NAME
from shardq.ops.write.outgoing import EXISTING, MAX_DEDUP_KEY, MAX_DELAY, Outgoing
from shardq.sharding import MAX_SHARD_KEY
from shardq.spark.maps import listed
from shardq.spark.ops.rows import Rows

TAGS = {"json": "j", "msgpack": "m"}
NAN_IN_JSON: Final = CodecError("payload has NaN or Infinity, which JSON has not: make it null, or take codec=msgpack")
NO_TASK: Final = CodecError("task is null, or no name of a task")
UNKNOWN_BYTES: Final = "\N{REPLACEMENT CHARACTER}".encode()
NOT_UTF8: Final = (
    "it has bytes that are not UTF-8, or U+FFFD for such: name the encoding of the file, such as encoding=ISO-8859-1"
)


@dataclass(frozen=True)
class Bad:
    """A row that is no valid message: its number in the batch, and the reason."""

    row: int
    reason: str


@dataclass(frozen=True)
class Encoding:
    """How payloads are encoded: the codec, and the largest size in bytes. `keyed`: each row needs a dedup key.

    `on_conflict` says what is done about a unique key that another message has.
    """

    codec: str
    max_payload: int
    keyed: bool = False
    on_conflict: str = EXISTING

    def tag(self, kind: pa.DataType) -> str:
        """The tag under which payloads of *kind* are stored."""
        return TAGS.get(self.codec, self.codec) or ("b" if _is_binary(kind) else "m")

    def bodies(self, column: pa.Array, tasks: pa.Array | None = None) -> list[Any]:
        """The stored form of each payload. Binary is stored as it is, and so is text if the codec is json.

        With names of *tasks* a payload has the arguments of one, and is stored as a call of it.
        """
        kind = column.type
        if _is_binary(kind) or (_is_text(kind) and self.codec == "json"):
            return as_list(column.cast(pa.binary()) if _is_text(kind) else column)
        if self.codec not in ("", "json", "msgpack"):
            raise ConfigError(f"codec {self.codec} needs the payload as binary, encoded by you, not as {kind}")
        encode = msgspec.json.encode if self.codec == "json" else msgspec.msgpack.encode
        values = as_list(column) if _is_text(kind) else listed(column)
        if self.codec == "json" and has_nan(column):
            values = [NAN_IN_JSON if value_has_nan(value) else value for value in values]
        if tasks is not None:
            values = [*map(_call, values, tasks.to_pylist())]
        return [None if value is None else _encoded(encode, value) for value in values]


def encoded(batch: pa.RecordBatch, encoding: Encoding) -> tuple[Rows, list[Bad]]:
    """The good rows of *batch*, and the bad ones. CodecError or ConfigError if a whole column is unfit."""
    columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
    bad: dict[int, str] = {}
    keys = columns["shard_key"].cast(pa.binary()) if _is_text(columns["shard_key"].type) else columns["shard_key"]
    bodies = encoding.bodies(columns["payload"], columns.get("task"))
    tag = encoding.tag(columns["payload"].type)
    _check_length(bad, "shard_key", keys, MAX_SHARD_KEY)
    _check_bodies(bad, columns["payload"], bodies, encoding.max_payload)
    if tag == "j" and _is_text(columns["payload"].type):
        _check_json(bad, bodies)
    if "source" in columns and pc.any(pc.struct_field(columns["source"], "is_checked")).as_py():
        _check_utf8(bad, keys, bodies)
    headers = _headers(bad, columns["headers"]) if "headers" in columns else []
    options = _options(bad, columns, batch.num_rows, encoding.on_conflict)
    if encoding.keyed:
        for at in pc.indices_nonzero(columns["dedup_key"].is_null()).to_pylist():
            bad.setdefault(at, "dedup_key is null, with idempotence=key")
    rows = Rows(as_list(keys), tag, bodies, headers, options)
    if not bad:
        return rows, []
    good = [at for at in range(batch.num_rows) if at not in bad]
    names = [name for name in ("shard_keys", "bodies", "headers", "options") if getattr(rows, name)]
    picked: dict[str, Any] = {name: [getattr(rows, name)[at] for at in good] for name in names}
    return replace(rows, **picked), [Bad(at, bad[at]) for at in sorted(bad)]


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def as_list(column: pa.Array) -> list[Any]:
    """The column as Python values; takes a fifth of the time of `to_pylist`."""
    listed: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return listed


def _call(arguments: Any, task: str | None) -> Any:
    """A call of *task* as shardq.tasks stores it."""
    if task is None or not IS_NAME.fullmatch(task):
        return NO_TASK
    return arguments if arguments is None or isinstance(arguments, CodecError) else [task, arguments]


def has_nan(column: pa.Array) -> bool:
    """Whether a float in *column*, however deep, is NaN or infinite; it looks at whole columns, so it takes no time."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is False
    if pa.types.is_map(kind):
        return has_nan(column.keys) or has_nan(column.items)
    if pa.types.is_struct(kind):
        return any(map(has_nan, column.flatten()))
    return pa.types.is_list(kind) and has_nan(column.flatten())


def value_has_nan(value: Any) -> bool:
    """The same of one value."""
    if isinstance(value, dict):
        return any(map(value_has_nan, chain(value, value.values())))
    if isinstance(value, list):
        return any(map(value_has_nan, value))
    return isinstance(value, float) and not isfinite(value)


def _encoded(encode: Callable[[Any], bytes], value: Any) -> bytes | CodecError:
    if isinstance(value, CodecError):
        return value
    try:
        return encode(value)
    except Exception as error:  # noqa: BLE001 - an encoder fails in many ways, and its text may quote the payload
        return CodecError(f"payload cannot be encoded ({type(error).__name__})")


def _check_length(bad: dict[int, str], name: str, column: pa.Array, most: int) -> None:
    """Mark rows as bad in which the value is null, empty or longer than *most* bytes."""
    lengths = pc.binary_length(column)
    bounds = pc.min_max(lengths)
    if not column.null_count and len(column) and bounds["min"].as_py() >= 1 and bounds["max"].as_py() <= most:
        return
    for at, length in enumerate(lengths.to_pylist()):
        if length is None:
            bad.setdefault(at, f"{name} is null")
        elif not 1 <= length <= most:
            bad.setdefault(at, f"{name} has {length:,} bytes: it must have 1 to {most:,}")


def _check_bodies(bad: dict[int, str], column: pa.Array, bodies: list[Any], most: int) -> None:
    if not column.null_count and _is_binary(column.type):
        longest = pc.max(pc.binary_length(column)).as_py()
        if longest is None or longest <= most:
            return
    for at, body in enumerate(bodies):
        if body is None:
            bad.setdefault(at, "payload is null")
        elif isinstance(body, CodecError):
            bad.setdefault(at, str(body))
        elif len(body) > most:
            bad.setdefault(at, f"payload has {len(body):,} bytes, more than maxPayload = {most:,}")


def _check_json(bad: dict[int, str], bodies: list[Any]) -> None:
    decode = msgspec.json.Decoder(msgspec.Raw).decode
    for at, body in enumerate(bodies):
        try:
            decode(body if at not in bad else b"0")
        except msgspec.DecodeError:
            bad.setdefault(at, "payload is not JSON")


def _check_utf8(bad: dict[int, str], keys: pa.Array, bodies: list[Any]) -> None:
    """Mark rows of text in which Spark has put U+FFFD for bytes that are not UTF-8, as those of Latin-1."""
    for at, (key, body) in enumerate(zip(as_list(keys), bodies, strict=True)):
        if UNKNOWN_BYTES in (key or b"") or (isinstance(body, bytes) and UNKNOWN_BYTES in body):
            bad.setdefault(at, NOT_UTF8)


def _headers(bad: dict[int, str], column: pa.Array) -> list[bytes]:
    packed = []
    for at, pairs in enumerate(column.to_pylist()):
        try:
            packed.append(encode_headers(dict(pairs)) if pairs else b"")
        except ConfigError as error:
            bad.setdefault(at, str(error))
            packed.append(b"")
    return packed


def _options(bad: dict[int, str], columns: dict[str, pa.Array], count: int, on_conflict: str) -> list[str]:
    """Delay, deadline and keys of each row as the verb `write` takes them."""
    if not columns.keys() & {"delay", "deadline", "dedup_key", "unique_key"}:
        return []
    delays = _times(bad, columns, "delay", 0, count)
    ends = _times(bad, columns, "deadline", 1, count)
    keys, uniques = (_keys(bad, columns, name, count) for name in ("dedup_key", "unique_key"))
    options = []
    for at, (delay, end, key, unique) in enumerate(zip(delays, ends, keys, uniques, strict=True)):
        if end and end <= delay:
            bad.setdefault(at, "deadline is not after delay: it would never be delivered")
        options.append(Outgoing("", "", b"", b"", delay, end, key, unique, on_conflict).options)
    return options


def _keys(bad: dict[int, str], columns: dict[str, pa.Array], name: str, count: int) -> list[str]:
    """A column of keys; empty where it is null."""
    keys = as_list(columns[name]) if name in columns else [None] * count
    for at, key in enumerate(keys):
        if key is not None and not 1 <= len(key.encode()) <= MAX_DEDUP_KEY:
            bad.setdefault(at, f"{name} must have 1 to {MAX_DEDUP_KEY} bytes")
    return [key or "" for key in keys]


def _times(bad: dict[int, str], columns: dict[str, pa.Array], name: str, low: int, count: int) -> list[int]:
    """A column of seconds as ms; 0 where it is null."""
    if name not in columns:
        return [0] * count
    found = []
    for at, value in enumerate(columns[name].to_pylist()):
        fits = value is not None and low / 1000 <= value <= MAX_DELAY  # NaN does not
        if not fits and value is not None:
            bad.setdefault(at, f"{name} must be from {low / 1000:g} to {MAX_DELAY:,} seconds")
        found.append(max(low, round(value * 1000)) if fits else 0)
    return found
