"""Purge one tenant: what waits, is delayed or dead of it, and its keys, in pieces that keep nobody waiting.

It is about the messages that there are when it begins, so it ends however much is written meanwhile. Messages outside
of the streams go first, since what is written then goes into the streams again. One pass over all parts removes the
messages that were there; in the meantime holders may have given messages back, so passes continue until nothing is
left, or one finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shardq.arguments import flag
from shardq.model.purged import Purged
from shardq.ops.queue.numbered import numbered, spelled
from shardq.ops.queue.opening import missing, require_queue
from shardq.ops.queue.outcome import part_of
from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.ops.queue.who import NOBODY, Who
from shardq.protocol.replies import pairs
from shardq.sharding import key_bytes

MAX_REMOVED_A_CALL: Final = 500
"""Messages that one call removes: it takes the server less than 3 ms."""

_READY: Final = ord("1")
_LEASES: Final = ("flight", "cancel")
"""The parts that look at leases."""


class _PurgeTold(msgspec.Struct):
    """The number of messages that calls removed so far.

    `in_flight` and what is `left` are as the last one told, None if it did not.
    """

    waiting: int = 0
    delayed: int = 0
    dead: int = 0
    cancelled: int = 0
    in_flight: int = 0
    left: int | None = None

    @property
    def removed(self) -> int:
        """How many messages."""
        return self.waiting + self.delayed + self.dead + self.cancelled


class _Purge(msgspec.Struct):
    """One purge of a shard key: messages up to the number `last`. Each call has `timeout` seconds."""

    state: QueueState
    key: bytes
    last: str
    timeout: float | None
    said: str
    told: _PurgeTold


def purge_of(
    state: QueueState, shard_key: str | bytes, in_flight: bool, timeout: float | None, who: Who = NOBODY
) -> Op[Purged]:
    """Remove what a shard key has, with parents a parent and its children. PartlyDone if it fails in the middle."""
    key = key_bytes(shard_key)
    flag("in_flight", in_flight)
    until = state.until(timeout)
    yield from require_queue(state, until)
    facts = pairs((yield from retry_until(always(Call.on(state.keys, "facts")), until, state.clock)))
    if "n" not in facts:
        raise missing(state)
    purge = _Purge(state, key, facts["n"], timeout, who.said_by(state), _PurgeTold())
    told = purge.told
    while True:
        before = told.removed
        yield from _pass(purge, in_flight)
        if told.left == 0 and not in_flight:
            break
        if told.removed == before:
            yield from _part(purge, "flight")
            break
    counted = told.in_flight
    yield from _part(purge, "keys")
    return Purged(told.waiting, told.delayed, told.dead, counted, told.cancelled)


def _pass(purge: _Purge, in_flight: bool) -> Op[None]:
    """Look at all parts once."""
    yield from _part(purge, "waiting")
    yield from _part(purge, "delayed")
    # All of them: a resize, or another assignment, may have dealt it others before.
    for stream in (yield from _streams(purge)):
        yield from _part(purge, "stream", (stream,))
    yield from _part(purge, "dead")
    if in_flight:
        yield from _part(purge, "cancel")


def _streams(purge: _Purge) -> Op[Sequence[str]]:
    """Return the streams that have something undelivered, those of the shard key first."""
    state = purge.state
    digits = (yield from ask(state, "HGET", state.keys.meta, "ready", until=state.until(purge.timeout))) or b""
    shard = {*state.view.shard(purge.key)}
    ready = [number for number, digit in enumerate(digits) if digit == _READY]
    ready.sort(key=lambda number: number not in shard)
    return state.declared([str(number) for number in ready])


def _part(purge: _Purge, part: str, streams: tuple[str, ...] = ()) -> Op[None]:
    """Remove one part, piece by piece."""
    state, told, position, lacked = purge.state, purge.told, b"", streams
    flying = 0
    while True:
        until = state.until(purge.timeout)

        def make(
            sequence: ProducerSequence,
            until: float = until,
            position: bytes = position,
            streams: tuple[str, ...] = lacked,
        ) -> Call:
            number = spelled(state, sequence, until)
            args: tuple[Argument, ...] = (purge.said, number, purge.key, purge.last, part, MAX_REMOVED_A_CALL, position)
            return Call.on(state.keys, "purge_of", args, rest=streams)

        reply, _ = yield from part_of(told.removed, numbered(state, make, until))
        if reply[0] == b"NOQUEUE":
            raise missing(state)
        goes_on = position != b""
        *counts, left, lacking, more, position = reply[1].split(b"|", 8)
        waiting, delayed, dead, cancelled, seen_flying = map(int, counts)
        # Those that look at leases tell what they saw of a piece of them; the others what the account says.
        flying = flying + seen_flying if goes_on and part in _LEASES else seen_flying
        told.waiting, told.delayed = told.waiting + waiting, told.delayed + delayed
        told.dead, told.cancelled = told.dead + dead, told.cancelled + cancelled
        told.in_flight = flying
        told.left = int(left) if left else None
        if lacking and part != "stream":
            # The same piece once more, with the streams in which its messages lie.
            lacked = tuple(dict.fromkeys((*lacked, *state.declared(lacking.decode().split(",")))))
            position = b""
        elif more != b"1":
            return
