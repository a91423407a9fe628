"""The waits and the results of a writer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from shardq.client.base import BaseClient
from shardq.model import Written


class AsyncWriteFuture(asyncio.Future[Written]):
    """The future of one message: its id, or the error with which its write ended."""

    asked = False
    error: Exception | None = None

    def result(self) -> Written:
        """Return the message's id, or raise its error."""
        self.asked = True
        return super().result()

    def exception(self) -> BaseException | None:
        """Return the message's error; None if it was written."""
        self.asked = True
        return super().exception()

    def __await__(self) -> Generator[Any, None, Written]:
        """Wait for the message's id."""
        self.asked = True
        return super().__await__()

    def set_result(self, result: Written) -> None:
        """End with the message's id, unless it was cancelled."""
        if not self.done():
            super().set_result(result)

    def fail(self, error: Exception, note: Callable[[AsyncWriteFuture], object]) -> None:
        """End with *error*, and call `note` with this; unless it was cancelled."""
        if self.cancelled():
            return
        self.set_exception(error)
        asyncio.Future.exception(self)  # nobody needs asyncio's own log line of errors that nobody asked for
        self.error = error
        note(self)


class AsyncTurn:
    """One task waits for this until `come` is called on its loop."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def come(self) -> None:
        """End the wait, if it has not ended yet."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Wait until it has come."""
        await self._future

    async def wait_until(self, until: float, client: BaseClient) -> None:
        """Wait until it has come, or the clock of *client* says *until*."""
        alarm = client.timer.call_at(until, self.come)
        try:
            await self._future
        finally:
            alarm.cancel()
