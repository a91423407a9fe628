"""Tell the user's `on_dead` of dead letters, apart from the settling: the messages that wait for that have leases, too.

Calls are made one after the other. At most UNTOLD wait; a caller that brings more waits for room.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from shardq.model import DeliveryView
from shardq.timing.aside import Aside
from shardq.worker import guard
from shardq.worker.contexts import Fresh
from shardq.worker.plan import OnDead
from shardq.worker.trouble import RETURN_TIMEOUT

log = logging.getLogger("shardq")
UNTOLD: Final = 1000
Dead: TypeAlias = Sequence[tuple[DeliveryView, str]]
"""Deliveries whose messages are dead letters now, each with the reason."""


class Teller:
    """Calls *on_dead* in a thread, which runs while there is something to tell."""

    def __init__(self, on_dead: OnDead | None, fresh: Fresh) -> None:
        self._on_dead, self._aside, self._fresh = on_dead, Aside(), fresh
        self._room = threading.Semaphore(UNTOLD)

    def tell(self, dead: Dead) -> None:
        """Have the function called for each of *dead*."""
        for delivery, reason in dead if self._on_dead else ():
            self._room.acquire()
            self._aside(lambda delivery=delivery, reason=reason: self._call(delivery, reason))  # type: ignore[misc]

    def _call(self, delivery: DeliveryView, reason: str) -> None:
        try:
            self._fresh().run(guard.tell, "on_dead", cast("OnDead", self._on_dead), delivery, reason)
        finally:
            self._room.release()

    def close(self) -> None:
        """Wait until all is told, for RETURN_TIMEOUT at most."""
        if not self._aside.wait(RETURN_TIMEOUT):
            _log_untold()


class AsyncTeller:
    """Calls *on_dead* in a task, and awaits what it returns if that can be awaited."""

    def __init__(self, on_dead: OnDead | None, fresh: Fresh) -> None:
        self._on_dead, self._fresh = on_dead, fresh
        self._room = asyncio.Semaphore(UNTOLD)
        self._untold: asyncio.Queue[tuple[DeliveryView, str] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def tell(self, dead: Dead) -> None:
        """Have the function called for each of *dead*."""
        for each in dead if self._on_dead else ():
            await self._room.acquire()
            self._untold.put_nowait(each)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while (item := await self._untold.get()) is not None:
            try:
                told = guard.tell_async("on_dead", cast("OnDead", self._on_dead), *item)
                await asyncio.create_task(told, context=self._fresh())
            finally:
                self._room.release()

    async def close(self) -> None:
        """Wait until all is told, for RETURN_TIMEOUT at most."""
        if self._task is None:
            return
        self._untold.put_nowait(None)
        await asyncio.wait([self._task], timeout=RETURN_TIMEOUT)
        if not self._task.done():
            _log_untold()
            self._task.cancel()


def _log_untold() -> None:
    log.warning("the worker ends before on_dead has been told of all dead letters")
