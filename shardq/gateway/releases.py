"""Let Redis forget ids that clients have released, once no copy of them can be on its way any more.

A message may be sent twice: over a connection that hangs, and over the next one. If Redis forgot its id while the other
copy still waits, that one would be stored as a second message. So an id is forgotten only some time after its release,
and only when no connection of this gateway holds a copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable

from shardq.client import AsyncClient
from shardq.errors import BackendError
from shardq.gateway.counters import Counters
from shardq.ops.write.release import release

log = logging.getLogger("shardq.gateway")
MOST_WAITING = 500_000
"""Released ids that wait. Beyond, the oldest are left to the end of their memory in Redis."""
MOST_QUEUES = 64
"""Queues in which a token's ids are looked for: those that it wrote to last."""
PAUSE = 1.0
AT_ONCE = 1000


def dedup_key(name: str, message_id: bytes) -> str:
    """Return the dedup key of a message: at most 229 bytes, of the token's name and the id."""
    return f"{name}:{message_id.hex()}"


class Releases:
    """The ids that wait to be forgotten, of all connections of a gateway."""

    def __init__(self, client: AsyncClient, counters: Counters, after: float, remember: float) -> None:
        self._client, self._counters, self._after, self._remember = client, counters, after, remember
        self._waiting: deque[tuple[float, str, bytes]] = deque()
        self._held: Counter[str] = Counter()
        self._queues: dict[str, OrderedDict[str, None]] = {}

    def hold(self, name: str, message_id: bytes) -> None:
        """Note that a connection holds a copy of this message."""
        self._held[dedup_key(name, message_id)] += 1

    def let_go(self, name: str, message_ids: Iterable[bytes]) -> None:
        """Note that a connection holds no copies any more: they were stored, refused or dropped."""
        for message_id in message_ids:
            key = dedup_key(name, message_id)
            if self._held[key] > 1:
                self._held[key] -= 1
            else:
                del self._held[key]

    def wrote(self, name: str, queue: str) -> None:
        """Note that the token *name* has ids in *queue*."""
        queues = self._queues.setdefault(name, OrderedDict())
        queues[queue] = None
        queues.move_to_end(queue)
        if len(queues) > MOST_QUEUES:
            queues.popitem(last=False)

    def released(self, name: str, message_ids: Iterable[bytes]) -> None:
        """Note that a client will never send these again."""
        due = self._client.clock.monotonic() + self._after
        self._waiting.extend((due, name, message_id) for message_id in message_ids)
        while len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()

    async def run(self) -> None:
        """Let Redis forget what is due, for ever."""
        while True:
            await asyncio.sleep(PAUSE)
            await self.forget_due()

    async def forget_due(self) -> None:
        """Let Redis forget what is due now. A key for which that fails is forgotten at the end of its window."""
        now, due = self._client.clock.monotonic(), dict[str, list[str]]()
        for _ in range(len(self._waiting)):
            if self._waiting[0][0] > now:
                break
            _, name, message_id = self._waiting.popleft()
            key = dedup_key(name, message_id)
            if key in self._held:
                self._waiting.append((now + self._after, name, message_id))
            else:
                due.setdefault(name, []).append(key)
        for name, keys in due.items():
            for queue in list(self._queues.get(name, ())):
                await self._forget(queue, keys)

    async def _forget(self, queue: str, keys: list[str]) -> None:
        state = self._client.state_of(queue, {}, remember=self._remember)
        try:
            for at in range(0, len(keys), AT_ONCE):
                self._counters.released += await self._client.run(release(state, keys[at : at + AT_ONCE]))
        except BackendError as error:
            log.warning("released ids in queue %r are remembered until their end: %s", queue, error)
