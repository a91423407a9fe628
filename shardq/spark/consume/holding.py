"""Leasing messages for a Spark job, and what becomes of them when it ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shardq.client import Client
from shardq.errors import ShardqError
from shardq.model import Received
from shardq.ops.read import MAX_COUNT, read
from shardq.ops.settle import Settled, ack, extend, nack
from shardq.ops.state import QueueState

log = logging.getLogger("shardq")
MOST = 100_000
"""A job holds at most so many messages at once."""


def lease(
    client: Client, state: QueueState, held: list[Received], most: int, visibility: float, block: float = 0.0
) -> None:
    """Read as workers do, so that the admission window holds, until *held* has *most* or the queue gives none.

    Stop earlier when a third of *visibility* has gone, since nobody extends these leases yet. Wait up to *block*
    seconds for the first one. What was read before an error is in *held*.
    """
    until = state.clock.monotonic() + block + visibility / 3
    while len(held) < most and state.clock.monotonic() < until:
        found = client.run(read(state, min(MAX_COUNT, most - len(held)), 0.0 if held else block, visibility))
        if not found:
            return
        held += found


def ack_all(client: Client, state: QueueState, held: Sequence[Received]) -> None:
    """Ack what the job did. A lease that ended before is no failure of the job, but its message comes again."""
    results = client.run(ack(state, held)) if held else []
    if lost := results.count(Settled.LOST):
        name = state.keys.name
        log.warning("%d of %d messages of queue %r were settled before, or come again", lost, len(held), name)


def give_back(client: Client, state: QueueState, held: Sequence[Received], error: str) -> None:
    """Give back what is still held, after an error. If Redis does not answer, the leases end by themselves."""
    try:
        client.run(nack(state, held, error=error))
    except ShardqError as failure:
        log.warning("messages of queue %r come again when their leases end: %s", state.keys.name, failure)


def return_unsettled(client: Client, state: QueueState, held: Sequence[Received]) -> None:
    """Give back what a job that settles by row left unsettled."""
    client.run(nack(state, held, error="a Spark job left the message unsettled"))


def still_held(client: Client, state: QueueState, held: Sequence[Received], visibility: float) -> list[Received]:
    """Return those of *held* whose leases have not ended, and extend these."""
    results = client.run(extend(state, held, visibility))
    return [each for each, how in zip(held, results, strict=True) if how is Settled.OK]
