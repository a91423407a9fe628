"""See a queue as it is now, without the right to change anything."""

from __future__ import annotations

from typing import NamedTuple

from shardq.model import QueueConfig
from shardq.ops.queue.opening import missing
from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.queue.view import QueueView
from shardq.protocol.replies import next_stream, pairs, stored_assignment


class Sight(NamedTuple):
    """A queue at one moment: its settings, and the number of the stream at which the next read begins.

    `time` is the server's, in seconds; by the same clock the last message was written at `written_at`.
    """

    time: float
    view: QueueView
    offset: int
    written_at: float


def sight(state: QueueState, until: float) -> Op[Sight]:
    """Look at the queue. QueueMissing if it does not exist.

    Other operations look it up by the verb `open`, which needs the right to create it. This client remembers only the
    name of the legacy stream from it.
    """
    # The node that has the queue: on a cluster each has a clock of its own.
    seconds, micros = yield from ask(state, "TIME", key=state.keys.meta, until=until)
    return Sight(int(seconds) + int(micros) / 1_000_000, *(yield from seen(state, until)))


def seen(state: QueueState, until: float) -> Op[tuple[QueueView, int, float]]:
    """Look at the queue as `sight` does, but not at the clock. Return the rest of what that says."""
    facts = Call.on(state.keys, "facts")
    meta = pairs((yield from retry_until(always(facts), until, state.clock)))
    # Each queue has `n` from the beginning; without it nothing is reported of the queue.
    if "n" not in meta:
        raise missing(state)
    streams, wanted, assigned = int(meta["streams"]), int(meta["wanted"]), state.view.assigned
    if meta.get("assigned", "") != assigned.since:
        call = Call.on(state.keys, "assignment")
        assigned = stored_assignment((yield from retry_until(always(call), until, state.clock)))
    config = QueueConfig.from_settings(meta, wanted)
    if config.legacy_stream:
        state.names["l"] = config.legacy_stream
    generation = int(meta.get("generation", 0))
    view = QueueView(meta["epoch"], streams, wanted, config, assigned, id=meta["id"], generation=generation)
    return view, next_stream(meta.get("offset", "0")), int(meta["last_at"]) / 1000
