"""Whether Redis answers: asked once a second while somebody looks, so that all hear soon when it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from shardq.client import AsyncClient
from shardq.errors import ShardqError
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Ask

BEAT: Final = 1.0
"""Seconds between two questions."""
PATIENCE: Final = 2.0
"""Seconds within which Redis has to answer."""

log = logging.getLogger("shardq.dashboard")


class RedisPulse:
    """Since when Redis does not answer: `away_since`, in seconds of the epoch; None while it does."""

    def __init__(self, client: AsyncClient, changed: Callable[[], None]) -> None:
        self._client, self._changed = client, changed
        self.away_since: float | None = None

    async def run(self) -> None:
        """Ask until cancelled; call *changed* when Redis goes away, and when it comes back."""
        while True:
            await self._ask()
            await asyncio.sleep(BEAT)

    def _miss(self, begun: float, why: str) -> None:
        if self.away_since is None:
            log.warning("Redis does not answer the page: %s", why)
            self.away_since = begun
            self._changed()

    async def _ask(self) -> None:
        clock = self._client.clock
        begun = clock.wall()
        try:
            async with asyncio.timeout(PATIENCE):
                until = clock.monotonic() + PATIENCE
                await self._client.run(retry_until(always(Ask(("PING",), "shardq")), until, clock))
        except TimeoutError as error:  # of the client, too
            self._miss(begun, str(error) or "not in time")
            return
        except ShardqError as error:  # what is refused is an answer, too
            log.debug("Redis refuses to be asked whether it is there: %s", error)
        except Exception as error:  # noqa: BLE001 (a defect does not end this: nobody would be told any more)
            self._miss(begun, f"{type(error).__name__} {error}")
            return
        if self.away_since is not None:
            log.info("Redis answers the page again, after %.0f s", clock.wall() - self.away_since)
            self.away_since = None
            self._changed()
