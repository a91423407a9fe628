"""The messages of leases, as record batches. Each task fetches its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

from shardq.client import Client
from shardq.errors import QueueMissing
from shardq.ops.queue.state import QueueState
from shardq.ops.settle.settle import reject
from shardq.spark.connection import client_of, queue_of
from shardq.spark.consume.lease import ReaderLease, lease_of
from shardq.spark.entries import Entries, batch_of, gathered, placed
from shardq.spark.ops import scan
from shardq.spark.ops.scan import Fetched
from shardq.spark.options import Parsing
from shardq.spark.parsing import Malformed, parsed


def read_leased(
    options: Parsing, schema: pa.Schema, queue: str, leases: Sequence[ReaderLease]
) -> Iterator[pa.RecordBatch]:
    """The messages of *leases*, which are sorted by place. One that is gone was settled, so it is left out.

    All are gone if their queue was deleted. Those whose payloads are malformed are rejected if `parseMode` says so.
    CodecError if it is FAILFAST.
    """
    try:
        client, state = client_of(options), queue_of(options, queue)
    except QueueMissing:
        return
    read = partial(_read, client, state, leases)
    yield from parsed(schema, options, read, partial(_reject, client, state))


def _read(
    client: Client, state: QueueState, leases: Sequence[ReaderLease], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    at = 0
    while at < len(leases):
        found = client.run(scan.fetch(state, [each.handle for each in leases[at : at + scan.SCANNED]]))
        there = [(lease, message) for lease, message in zip(leases[at:], found, strict=False) if message is not None]
        batches = (batch_of(entries, schema) for entries in gathered(_by_place(state.keys.name, there)))
        yield from placed(batches, state.number)
        at += len(found)


def _reject(client: Client, state: QueueState, batch: pa.RecordBatch, malformed: Sequence[Malformed]) -> None:
    """Make dead letters of rows that are malformed. A lease is settled once, so other tries find them settled.

    The micro-batch's end acks by the same leases, so it acks none of these.
    """
    leases = batch.column("lease")
    held = [lease_of(leases[each.row].as_py()).received for each in malformed]
    client.run(reject(state, held, [each.reason for each in malformed]))


def _by_place(queue: str, rows: Sequence[tuple[ReaderLease, Fetched]]) -> Iterator[Entries]:
    """The messages by where they were written, as their ids say it."""
    for place, group in groupby(sorted(rows, key=_origin), key=_origin):
        some = [*group]
        yield Entries(
            queue,
            place,
            [lease.handle[1].encode() for lease, _ in some],
            [message.fields for _, message in some],
            "in_flight",
            counts=[int(lease.token.split(b":", 3)[2]) for lease, _ in some],
            errors=[lease.last_error for lease, _ in some],
            leases=[lease.text for lease, _ in some],
        )


def _origin(row: tuple[ReaderLease, Fetched]) -> str:
    return row[1].origin
