"""Calls of read that several callers share: those who wait while a read is under way share the next one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.read.command import ALL_DECLARED, ReadCall, ReadReply, read_call, read_reply
from shardq.ops.read.give_back import give_back_all
from shardq.ops.read.look import look
from shardq.ops.read.waiting import MAX_PER_CALL, Outstanding, ReadRequest, give_out
from shardq.ops.sharing.coalescing import Coalescer
from shardq.ops.sharing.verb import Verb

Result: TypeAlias = ReadReply | Exception


class Want(msgspec.Struct):
    """A caller's request. It may wait for *block* seconds afterwards. *outstanding* says what it was granted."""

    request: ReadRequest
    block: float
    outstanding: Outstanding


class TriedRead(msgspec.Struct):
    """The first call on behalf of *wants*; *outstanding* is its read. Nobody got the rows that are *left*."""

    read: ReadCall
    wants: Sequence[Want]
    outstanding: Outstanding
    left: list[Received] = msgspec.field(default_factory=list)

    @property
    def call(self) -> Call:
        """The call of the script."""
        return self.read.call

    sendable = call


class Reads(Verb[Want, ReadReply]):
    """The first try of readers of one queue. Each result has the rows of one caller."""

    def __init__(self, state: QueueState) -> None:
        self._state = state

    def bounds(self) -> tuple[int, int]:
        """Return how many callers one call may have, and how many messages it may request."""
        return MAX_PER_CALL, MAX_PER_CALL

    def weight(self, want: Want) -> int:
        """Return how many messages are wanted."""
        return want.request.count

    def kind(self, want: Want) -> tuple[float, int | None, bool]:
        """Return what one read has in common: how long the leases last, the preferred stream, whether it is bare."""
        return want.request.visibility, want.request.prefer, want.request.is_bare

    def attempt(self, wants: Sequence[Want], until: float) -> TriedRead:
        """Return the call for *wants*."""
        # A lone caller gives back by itself the rows that it was granted. With several the call does so for all
        # (`unclaimed`).
        outstanding = wants[0].outstanding if len(wants) == 1 else Outstanding()
        request, block = _together(wants)
        read = read_call(self._state, request, block, outstanding, declare=ALL_DECLARED)
        read.call.until = until
        return TriedRead(read, wants, outstanding)

    def results(self, tried: TriedRead, reply: Any) -> Sequence[Result] | None:
        """Return what was found; None if the read must be made again, or the queue be looked up."""
        if reply[0] != b"OK" or reply[2].decode() != self._state.epoch:
            return None
        found = read_reply(self._state, tried.read, reply)
        tried.outstanding.holder = ""
        return [found] * len(tried.wants)

    def drop(self, tried: TriedRead) -> None:
        """Do nothing: the caller knows what is outstanding."""

    def op(self, wants: Sequence[Want], until: float, tried: TriedRead | None) -> Op[Sequence[Result]]:
        """Read for *wants*, from the outcome of *tried* on."""
        tried = tried or self.attempt(wants, until)
        request, block = _together(wants)
        found = yield from look(self._state, request, block, until, tried.outstanding, first=tried.read)
        return [found] * len(wants)

    def give_out(self, tried: TriedRead, results: Sequence[Result], present: Sequence[bool]) -> Sequence[Result]:
        """Give the rows to those who are *present*, in their order. The rest is left.

        A caller without a row looks again if there were any: only a read that found none says that the queue is empty.
        """
        found = results[0]
        if isinstance(found, Exception):
            return results
        given: list[Result] = [
            ReadReply([], found.wait_ms, found.more or bool(found.rows), found.moved, found.jumped) for _ in tried.wants
        ]

        def take(at: int, rows: list[Received]) -> bool:
            if present[at]:
                # Before it learns of them: a caller that is cancelled from here on gives these back.
                tried.wants[at].outstanding.rows = rows
                given[at] = ReadReply(rows, found.wait_ms, found.more, found.moved)
            return present[at]

        takers = [(want.request.count, partial(take, at)) for at, want in enumerate(tried.wants)]
        tried.left = give_out(found.rows, takers)
        return given

    def unclaimed(self, tried: TriedRead) -> Op[None] | None:
        """Return what gives back the rows that nobody got, and what a lost reply had leased."""
        lost = replace(tried.outstanding, rows=tried.left)
        if not lost.rows and not lost.holder:
            return None
        return give_back_all(self._state, lost, self._state.until())


def _together(wants: Sequence[Want]) -> tuple[ReadRequest, float]:
    first = wants[0].request
    if len(wants) == 1:
        return first, wants[0].block
    count = sum([want.request.count for want in wants])
    return ReadRequest(count, first.visibility, first.prefer, first.is_bare), max([want.block for want in wants])


def reads_of(state: QueueState) -> Coalescer[Want, ReadReply]:
    """Return where the readers of this queue meet."""
    coalescer: Coalescer[Want, ReadReply] | None = state.coalescers.get("read")
    return coalescer or state.coalescers.setdefault("read", Coalescer(Reads(state)))
