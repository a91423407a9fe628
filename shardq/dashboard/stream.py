"""One stream of events, as long as somebody reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shardq.clock import Clock

PATIENCE: Final = 30.0
"""Seconds within which a browser has to take an event."""
CHECK: Final = 15.0
"""Seconds after which it is asked whether somebody may still look."""


class Stream(Response):
    """Sends *events*, one at a time: the next is made when the last was taken. *leave* gives its place back.

    It ends when there are no more, nobody reads, or who reads *may_look* no more.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        leave: Callable[[], None],
        events: AsyncGenerator[bytes, None],
        may_look: Callable[[], bool],
        clock: Clock,
    ) -> None:
        super().__init__()
        self._leave, self._events, self._may_look, self._clock = leave, events, may_look, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until one of that."""
        try:
            await _first(_gone(receive), self._send(send))
        finally:
            self._leave()

    async def _send(self, send: Send) -> None:
        headers = [each for each in self.raw_headers if each[0] != b"content-length"]
        headers.append((b"x-accel-buffering", b"no"))  # nginx passes on what it gets
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        checked_at = self._clock.monotonic()
        async with aclosing(self._events) as events:
            async for each in events:
                if self._clock.monotonic() - checked_at >= CHECK:
                    if not self._may_look():
                        break
                    checked_at = self._clock.monotonic()
                async with asyncio.timeout(PATIENCE):
                    await send({"type": "http.response.body", "body": each, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _first(*waits: Coroutine[Any, Any, None]) -> None:
    """Wait until one has ended, and end the others. Raise its error, but for one that waited too long."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for each in done:
        if not isinstance(each.exception(), TimeoutError):
            each.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
