"""Whether messages can be stored now: the answer of the health check.

Real writes show it; else a small one is tried.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shardq.client import AsyncClient
from shardq.errors import ShardqError
from shardq.gateway.notices import Notices
from shardq.ops.write.release import release

PAUSE: Final = 0.5
"""Seconds between two looks."""
PATIENCE: Final = 2.0
"""Seconds within which Redis has to answer."""
PROBE: Final = "gateway-probe"
"""The dedup key that is released, which nobody has; and the queue, if no token names one."""
MAX_QUEUES: Final = 10
"""Queues that are tried where Redis denies their keys: some token may name one that is not for this gateway."""
_KEY_DENIED: Final = re.compile("permissions to access .*key")


class Readiness:
    """Looks twice a second, and calls *tell* with the news. *stored* counts what was stored, *queues* are some to try.

    It tries to release a dedup key that does not exist: a write of the gateway's own kind, which changes
    nothing, and which Redis refuses whenever it would refuse to store: full, read-only, without rights, or away.
    """

    def __init__(
        self,
        client: AsyncClient,
        tell: Callable[[bool], Awaitable[None]],
        stored: Callable[[], int],
        queues: Callable[[], Sequence[str]],
        notices: Notices,
    ) -> None:
        self._client, self._tell, self._stored, self._queues, self._notices = client, tell, stored, queues, notices
        self.is_able = False
        self._before = 0
        self._is_troubled = False

    def troubled(self) -> None:
        """Note that something could not be stored for now."""
        self._is_troubled = True

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(PAUSE)
            await self.look()

    async def look(self) -> None:
        """Look once, and tell."""
        stored, was_troubled = self._stored(), self._is_troubled
        has_stored, self._before, self._is_troubled = stored > self._before, stored, False
        self.is_able = (has_stored and not was_troubled) or await self._try()
        await self._tell(self.is_able)

    async def _try(self) -> bool:
        queues = self._queues()[:MAX_QUEUES]
        problem: Exception | None = None
        for queue in queues or (PROBE,):
            problem = await self._problem_with(queue)
            if problem is None or not _KEY_DENIED.search(str(problem.__cause__)):
                break
        else:  # Redis answers; without the name of a queue no more can be tried
            problem = problem if queues else None
        if problem is not None:
            self._notices.say("not ready", "redis", f"nothing can be stored, so health is NOT_SERVING: {problem!r}")
        return problem is None

    async def _problem_with(self, queue: str) -> Exception | None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._client.run(release(self._client.state_of(queue, {}), [PROBE], PATIENCE))
        except (ShardqError, TimeoutError) as error:
            return error
        return None
