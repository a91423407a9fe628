"""The outcome of a message that was sent: `Sent` is its id, and can be asked."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from shardq.arguments import MAX_BLOCK, seconds
from shardq.clock import Clock
from shardq.edge.refusals import FORGOTTEN, Losses
from shardq.edge.spool import Spool
from shardq.errors import BackendTimeout, MessageRefused

LOOK_INTERVAL: Final = 0.02
"""Seconds between two looks at the spool while somebody waits."""
STORED: Final = "stored"


class _Sent(str):
    """The id of a message that is in the spool, and its number there. It holds nothing else of the message."""

    __slots__ = ("_clock", "_seq", "_spool")
    _clock: Clock
    _seq: int
    _spool: Spool

    def __new__(cls, message_id: str, seq: int, spool: Spool, clock: Clock) -> _Sent:
        made = super().__new__(cls, message_id)
        made._seq, made._spool, made._clock = seq, spool, clock
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @property
    def id(self) -> str:
        """The message's id as a plain str."""
        return str.__str__(self)

    def _look(self, until: float) -> str | None:
        """Its outcome; None if it waits still. BackendTimeout if it does after *until*."""
        fate = self._spool.fate(self._seq)
        if fate.refused is not None:
            reason, text = fate.refused.reason, fate.refused.text
            raise MessageRefused(f"message {self} was not stored: {reason}: {text}", {reason: 1}, [self.id], text)
        if fate.is_forgotten:
            text = "it was sent so long ago that a refusal of it would not be kept any more"
            raise MessageRefused(
                f"nobody knows whether message {self} was stored: {text}", {FORGOTTEN: 1}, [self.id], text
            )
        if not fate.is_waiting:
            return STORED
        if self._clock.monotonic() >= until:
            why = f": it is held ({fate.held})" if fate.held else ""
            raise BackendTimeout(f"message {self} still waits in the spool, and stays there{why}")
        return None


class Sent(_Sent):
    """The id of a message that `Edge.send` has put into the spool. It is a str, and knows what became of the message.

    Any process that has the spool open may deliver it.

    >>> from shardq.edge import Edge
    >>> edge = Edge("localhost:7443", spool="edge.spool")
    >>> sent = edge.send({"to": "ada"}, shard_key="acme", queue="mails")
    >>> sent.outcome(timeout=0)
    Traceback (most recent call last):
        ...
    shardq.errors.BackendTimeout: message ... still waits in the spool, and stays there
    """

    __slots__ = ()

    def outcome(self, timeout: float = 30.0) -> str:
        """Wait until the message is stored, and return "stored".

        MessageRefused if it was refused or dropped, BackendTimeout if it still waits after *timeout* seconds.
        """
        until = self._clock.monotonic() + seconds("timeout", timeout, 0, MAX_BLOCK)
        while (found := self._look(until)) is None:
            time.sleep(LOOK_INTERVAL)
        return found


class AsyncSent(_Sent):
    """The id of a message that `AsyncEdge.send` has put into the spool: the twin of `Sent`.

    >>> from shardq.edge import AsyncEdge
    >>> edge = AsyncEdge("localhost:7443", spool="edge.spool")
    >>> sent = await edge.send({"to": "ada"}, shard_key="acme", queue="mails")
    >>> await sent.outcome(timeout=0)
    Traceback (most recent call last):
        ...
    shardq.errors.BackendTimeout: message ... still waits in the spool, and stays there
    """

    __slots__ = ()

    async def outcome(self, timeout: float = 30.0) -> str:
        """Wait until the message is stored, and return "stored".

        MessageRefused if it was refused or dropped, BackendTimeout if it still waits after *timeout* seconds.
        """
        until = self._clock.monotonic() + seconds("timeout", timeout, 0, MAX_BLOCK)
        while (found := await asyncio.to_thread(self._look, until)) is None:  # noqa: ASYNC110 - another process may act
            await asyncio.sleep(LOOK_INTERVAL)
        return found


def refused_error(losses: Losses) -> MessageRefused:
    """The error that tells how many messages were not stored, and why."""
    told = ", ".join(f"{count:,} of {reason}" for reason, count in sorted(losses.reasons.items()))
    ids = f": {', '.join(losses.ids)}" if losses.ids else ""
    more = ", ..." if sum(losses.reasons.values()) > len(losses.ids) else ""
    text = f" ({losses.text})" if losses.text else ""
    return MessageRefused(
        f"messages were not stored: {told}{text}{ids}{more}; `shardq edge refused` shows them",
        losses.reasons, losses.ids, losses.text,
    )  # fmt: skip
