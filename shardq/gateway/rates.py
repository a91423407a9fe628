"""The rate of messages and bytes of a token: a reader for it waits until earlier reads are paid."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from shardq.clock import Clock
from shardq.gateway.bucket import TokenBucket
from shardq.gateway.settings import GatewaySettings
from shardq.gateway.tokens import Token

BURST: Final = 0.01
"""Seconds. Seconds that may be read on credit, so that one connection reads some messages at once, and not each one."""
CALLS: Final = 4
"""Calls in which nothing comes: this factor of those that a token may have open, and a sixteenth more each second."""
MESSAGES_OF_CALL: Final = 30
"""The messages that are as much work as a call with messages, with the connection that it may need."""
MAX_SECONDS: Final = 10.0
TURN_SECONDS: Final = 0.001
"""Seconds that a reader who continues has before the next one does, if it reads little."""


class Rates:
    """The rates of one token, its own or those of a token that names none. All its connections share them.

    Calls in which nothing comes have a budget of their own: one costs as much as some messages, also if it is reset.
    Their readers continue one after the other. All at once, they would keep the gateway from other tokens for a moment.
    """

    def __init__(self, token: Token, settings: GatewaySettings, clock: Clock) -> None:
        self.token = token
        messages = settings.messages_per_second if token.messages_per_second is None else token.messages_per_second
        size = settings.bytes_per_second if token.bytes_per_second is None else token.bytes_per_second
        self._messages = TokenBucket(messages, messages, clock) if messages else None
        self._bytes = TokenBucket(size, size, clock) if size else None
        calls = CALLS * settings.connections_per_token
        self._calls = TokenBucket(calls, calls / 16, clock)
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self, size: int) -> bool:
        """Count one request of *size* bytes. Return False if the reader must `wait` before the next."""
        self.charge(1)
        if self._bytes is not None:
            self._bytes.owe(size)
        return self._debt() <= BURST

    def begin_call(self) -> bool:
        """Count a call. Return False if too many were begun of late in which nothing came."""
        return self._calls.take()

    def use_call(self) -> None:
        """Something has come in a call: it counts as messages do from now on."""
        self._calls.take(-1)
        self.charge_work(MESSAGES_OF_CALL)

    def charge(self, messages: float) -> None:
        """Charge for *messages* more."""
        if self._messages is not None:
            self._messages.owe(messages)

    def charge_work(self, messages: float) -> None:
        """Charge work that cost as much as this many *messages*.

        It keeps the token waiting for `MAX_SECONDS` at most.
        """
        if self._messages is not None:
            self._messages.owe(messages, MAX_SECONDS)

    def charge_unread(self, size: int) -> None:
        """Count bytes that came and were no messages. They keep the token waiting for `MAX_SECONDS` at most."""
        if self._bytes is not None:
            self._bytes.owe(size, MAX_SECONDS)

    async def wait(self) -> None:
        """Wait until all is paid, and those who came before have continued."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(self._debt(), self._let_go)
        self._waiting.append(reader := loop.create_future())
        await reader

    def _let_go(self) -> None:
        wait = self._debt()
        while wait <= 0 and self._waiting:
            if not (reader := self._waiting.popleft()).done():
                reader.set_result(None)
                wait = TURN_SECONDS
        if self._waiting:
            asyncio.get_running_loop().call_later(wait, self._let_go)

    def _debt(self) -> float:
        return max((bucket.debt for bucket in (self._messages, self._bytes) if bucket is not None), default=0.0)

    @staticmethod
    def told(settings: GatewaySettings) -> str:
        """Return a line about what a token may send that names no rates."""
        messages, size = (
            f"{rate:,} {unit} a second" if rate else f"any number of {unit}"
            for rate, unit in ((settings.messages_per_second, "messages"), (settings.bytes_per_second, "bytes"))
        )
        return f"a token that names no rates may send {messages}, and {size}"
