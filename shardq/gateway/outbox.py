"""The answers for one client: acks, refusals and news, collected while an earlier answer is sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from shardq.datasink import messages
from shardq.datasink.runs import runs_of
from shardq.gateway.memory import MemoryShare

MAX_IDS_IN_ANSWER = 1000
"""Ids in one answer: at 64 bytes, 64 KiB."""
ID, REFUSAL = 100, 600
"""Bytes that an answer takes in memory, about."""


class Outbox:
    """Collects answers, which one task (`run`) sends. Only `room` waits, for a client that reads slowly.

    *latest* makes a ServiceMessage with the present capacity, for answers that name dropped messages. Waiting answers
    count in the token's *share*. `emptied` is set while everything was sent. With `uses_runs`, acks name runs of ids.
    """

    def __init__(
        self, send: Callable[[bytes], Awaitable[None]], latest: Callable[[], Any], most: int, share: MemoryShare
    ) -> None:
        self._send, self._latest, self._most, self._share = send, latest, most, share
        self._counted = 0
        self._acks: deque[bytes] = deque()
        self._dropped: deque[bytes] = deque()
        self._refusals: deque[Any] = deque()
        self._info: Any = None
        self._closed = False
        self.uses_runs = False
        self._some, self._room, self.emptied = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._room.set()
        self.emptied.set()

    def ack(self, ids: list[bytes]) -> None:
        """Tell that Redis has stored these."""
        self._acks.extend(ids)
        self._changed()

    def refuse(self, message_id: bytes, reason: int, text: str) -> None:
        """Tell that this can never be stored."""
        self._refusals.append(messages.Refusal(message_id=message_id, reason=reason, text=text[:200]))
        self._changed()

    def drop(self, ids: list[bytes]) -> None:
        """Tell that these are to be sent again."""
        self._dropped.extend(ids)
        self._changed()

    def tell(self, info: Any) -> None:
        """Tell the present news of the gateway, a ServiceMessage. It replaces one that was not sent yet."""
        if self._info is not None:
            info.wanted_dictionaries.extend(
                each for each in self._info.wanted_dictionaries if each not in info.wanted_dictionaries
            )
        self._info = info
        self._changed()

    @property
    def has_room(self) -> bool:
        """Whether no more answers wait than an honest client could cause."""
        return self._room.is_set()

    async def room(self) -> None:
        """Wait while more answers wait than an honest client could cause."""
        await self._room.wait()

    def close(self) -> None:
        """Let `run` end after the answer under way: grpc does not end a call if a sending of it was cancelled."""
        self._closed = True
        self._some.set()
        self._count(0)

    async def run(self) -> None:
        """Send what there is, until `close`."""
        while not self._closed:
            await self._some.wait()
            self._some.clear()
            while not self._closed and (response := self._next()) is not None:
                await self._send(response.SerializeToString())
                self._changed(new=False)
            if not self._some.is_set():
                self.emptied.set()

    def _next(self) -> Any:
        response = messages.Response(version=messages.VERSION)
        if self._info is not None or self._dropped:
            info = self._info or self._latest()
            self._info = None
            info.dropped.extend(_taken(self._dropped))
            response.info.CopyFrom(info)
        elif self._acks and self.uses_runs:
            response.ack.runs.extend(runs_of(_taken(self._acks)))
        elif self._acks:
            response.ack.message_ids.extend(_taken(self._acks))
        elif self._refusals:
            response.refused.refusals.extend(_taken(self._refusals))
        else:
            return None
        return response

    def _changed(self, *, new: bool = True) -> None:
        ids, refusals = len(self._acks) + len(self._dropped), len(self._refusals)
        if not self._closed:
            self._count(ID * ids + REFUSAL * refusals)
        if ids + refusals > self._most:
            self._room.clear()
        else:
            self._room.set()
        if new:
            self._some.set()
            self.emptied.clear()

    def _count(self, size: int) -> None:
        change, self._counted = size - self._counted, size
        if change > 0:
            self._share.take(change)
        elif change < 0:
            self._share.give(-change)


def _taken(items: deque[Any]) -> list[Any]:
    return [items.popleft() for _ in range(min(len(items), MAX_IDS_IN_ANSWER))]
