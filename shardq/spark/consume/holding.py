"""Leasing messages for a Spark job, and what becomes of them when it ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from shardq.client import Client
from shardq.errors import ShardqError
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.read.give_back import unread
from shardq.ops.read.read import MAX_COUNT, read
from shardq.ops.settle.settle import Settled, ack, extend, nack, reject
from shardq.spark.consume.failures import FailedBatch, Failures

log = logging.getLogger("shardq")
FIRST_READ: Final = 100
"""How many messages the first read asks for, while nobody knows how large they are."""


class Room(NamedTuple):
    """How much may be held at once: messages, and bytes of their payloads."""

    rows: int
    size: int


def lease(
    client: Client,
    state: QueueState,
    held: list[Received],
    room: Room,
    visibility: float,
    block: float = 0.0,
    *,
    is_bare: bool = False,
) -> None:
    """Read as workers do, so that the admission window holds, until *held* fills the *room* or the queue gives no more.

    Stop earlier when a third of *visibility* has gone, since nobody extends these leases yet. Wait up to *block*
    seconds for the first one. Messages that were read before an error are in *held*. If the read *is_bare*, their
    payloads stay in the queue. One message is held however large it is.
    """
    until, size, wanted = state.clock.monotonic() + block + visibility / 3, 0, min(FIRST_READ, room.rows)
    while wanted and state.clock.monotonic() < until:
        found = client.run(read(state, wanted, 0.0 if held else block, visibility, is_bare=is_bare))
        held += found
        size += sum(size_of(each, is_bare=is_bare) for each in found)
        if len(found) < wanted:
            break
        wanted = min(MAX_COUNT, room.rows - len(held), max(0, room.size - size) * len(held) // max(1, size))
    beyond: list[Received] = []
    while size > room.size and len(held) > 1:
        beyond.append(held.pop())
        size -= size_of(beyond[-1], is_bare=is_bare)
    let_go(client, state, beyond[::-1])


def size_of(received: Received, *, is_bare: bool) -> int:
    """How many bytes the payload of a delivery has. A message of another program is never bare."""
    if received.fields is not None:
        return sum(map(len, received.fields.values()))
    return int(received.body) if is_bare else len(received.body)


def ack_all(client: Client, state: QueueState, held: Sequence[Received]) -> None:
    """Ack what the job did. A lease that ended before is no failure of the job, but its message comes again."""
    results = client.run(ack(state, held)) if held else []
    if lost := results.count(Settled.LOST):
        name = state.keys.name
        log.warning("%d of %d messages of queue %r were settled before, or come again", lost, len(held), name)


def fail(client: Client, state: QueueState, held: Sequence[Received], batch: FailedBatch, cause: str) -> None:
    """Give back what is still held of a *batch* that failed, uncounted and with a delay. Its cause is rejected."""
    failed = [(each, Failures.of(each.last_error).after(batch)) for each in held]
    back = [row for row in failed if not row[1].is_cause]
    guilty = [row for row in failed if row[1].is_cause]
    delays, errors = [known.delay for _, known in back], [known.text(cause) for _, known in back]
    client.run(nack(state, [each for each, _ in back], delays, errors, counted=False))
    client.run(reject(state, [each for each, _ in guilty], [known.reason(cause) for _, known in guilty]))


def let_go(client: Client, state: QueueState, held: Sequence[Received]) -> None:
    """Give back what nothing was done with, as if it had not been delivered. Some of it may be settled."""
    with leases_end(state):
        client.run(unread(state, held))


@contextmanager
def leases_end(state: QueueState) -> Iterator[None]:
    """Giving back may fail: if Redis does not answer, the leases end by themselves."""
    try:
        yield
    except ShardqError as failure:
        log.warning("messages of queue %r come again when their leases end: %s", state.keys.name, failure)


def return_unsettled(client: Client, state: QueueState, held: Sequence[Received]) -> None:
    """Give back what a job that settles by row left unsettled."""
    client.run(nack(state, held, error="a Spark job left the message unsettled"))


def still_held(client: Client, state: QueueState, held: Sequence[Received], visibility: float) -> list[Received]:
    """Return those of *held* whose leases have not ended, and extend these."""
    results = client.run(extend(state, held, visibility))
    return [each for each, how in zip(held, results, strict=True) if how is Settled.OK]
