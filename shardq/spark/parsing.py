"""Record batches with their payloads decoded, and what becomes of the rows whose payloads are malformed.

A payload is malformed if it does not fit the type that `.schema(...)` gives it (shardq.spark.shape).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

from shardq.codec import Codecs
from shardq.errors import CodecError
from shardq.spark.columns import as_list
from shardq.spark.options import Parsing
from shardq.spark.shape import RowShape

NEEDED_COLUMNS = {"FAILFAST": ("queue", "message_id"), "REJECT": ("lease",)}
"""The other columns that must be known of a malformed row."""


class Malformed(NamedTuple):
    """A row whose payload is malformed: its number in the batch, and the reason."""

    row: int
    reason: str


Reject = Callable[[pa.RecordBatch, list[Malformed]], None]


class Parser:
    """Decodes the payloads of batches with the columns of `raw`, so that they have those of *schema*."""

    def __init__(self, schema: pa.Schema, options: Parsing) -> None:
        self._schema, self._mode, self._corrupt = schema, options.parse_as, options.corrupt
        payload = schema.field("payload")
        self._shape = RowShape(payload.type, nullable=payload.nullable)
        columns = {each.name: each for each in schema if each.name != self._corrupt}
        columns["payload"] = pa.field("payload", pa.binary())
        for name in ("codec", *NEEDED_COLUMNS.get(self._mode, ())):
            columns.setdefault(name, pa.field(name, pa.string()))
        self.raw = pa.schema(columns.values())

    def batches(self, raw: Iterator[pa.RecordBatch], reject: Reject | None = None) -> Iterator[pa.RecordBatch]:
        """Decode these batches. *reject* is called with each that has rows to be rejected, and with these."""
        for each in raw:
            found, rejected = self.parse(each)
            if rejected and reject is not None:
                reject(each, rejected)
            if found.num_rows:
                yield found

    def parse(self, raw: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Malformed]]:
        """Return the rows of a batch with the payloads decoded, and which rows are to be rejected.

        CodecError for the first malformed one if the mode is FAILFAST.
        """
        tags, bodies = as_list(raw.column("codec")), as_list(raw.column("payload"))
        payloads, reasons = self._shape.column(tags, bodies)
        if reasons and self._mode == "FAILFAST":
            self._fail(raw, *next(iter(reasons.items())))
        own = {"payload": payloads}
        if self._corrupt in self._schema.names:
            own[self._corrupt] = self._records(tags, bodies, reasons)
        columns = [own[each.name] if each.name in own else raw.column(each.name) for each in self._schema]
        found = pa.record_batch(columns, schema=self._schema)
        if reasons and self._mode != "PERMISSIVE":
            found = found.filter(pa.array([at not in reasons for at in range(len(tags))]))
        return found, [Malformed(*each) for each in reasons.items()] if self._mode == "REJECT" else []

    def _fail(self, raw: pa.RecordBatch, row: int, reason: str) -> None:
        queue, message_id = raw.column("queue")[row].as_py(), raw.column("message_id")[row].as_py()
        raise CodecError(
            f"message {message_id} of queue {queue!r} is malformed: {reason}; read the payload as binary to see "
            "it, or take another parseMode than FAILFAST"
        )

    def _records(self, tags: list[str], bodies: list[bytes], reasons: Mapping[int, str]) -> pa.Array:
        """The column of corrupt records: the malformed payloads as text, or as they are."""
        kind = self._schema.field(self._corrupt).type
        record = _text if kind == pa.string() else lambda _, body: body
        return pa.array([record(tags[at], body) if at in reasons else None for at, body in enumerate(bodies)], kind)


def parser_of(schema: pa.Schema, options: Parsing) -> Parser | None:
    """The parser for *schema*; None if no payloads are to be decoded."""
    decodes = "payload" in schema.names and schema.field("payload").type != pa.binary()
    return Parser(schema, options) if decodes else None


def parsed(
    schema: pa.Schema,
    options: Parsing,
    read: Callable[[pa.Schema], Iterator[pa.RecordBatch]],
    reject: Reject | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches that *read* makes for a schema, with payloads decoded if *schema* asks for it."""
    parser = parser_of(schema, options)
    return read(schema) if parser is None else parser.batches(read(parser.raw), reject)


def _text(tag: str, body: bytes) -> str:
    """A payload as text: MessagePack as JSON; bytes that are not UTF-8 as escapes."""
    if tag == "m":
        try:
            body = msgspec.json.encode(Codecs().decode(tag, body))
        except Exception:  # noqa: BLE001 - it is damaged, or has what JSON cannot have
            return body.decode(errors="backslashreplace")
    return body.decode(errors="backslashreplace")
