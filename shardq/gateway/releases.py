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
from shardq.gateway.memory import MemoryBudget
from shardq.gateway.queues import Queues
from shardq.gateway.turns import TurnPlaces, cost_of
from shardq.ops.write.release import release
from shardq.partitions import sums
from shardq.partitions.over import over

log = logging.getLogger("shardq.gateway")
MAX_WAITING = 50_000
"""Released ids of a token that wait. Beyond, its oldest are left to the end of their memory in Redis."""
MAX_QUEUES = 64
"""Queues in which a token's ids are looked for: those that it wrote to last."""
BYTES_OF_ID = 130
"""About as many bytes a released id takes while it waits."""
PAUSE = 1.0
IDS_AT_ONCE = 1000
IDS_FOR_ONE = 10
"""To forget this many ids in Redis is as much work as storing a small message."""


def dedup_key(name: str, message_id: bytes) -> str:
    """Return the dedup key of a message: at most 229 bytes, with the token's name and the id."""
    return f"{name}:{message_id.hex()}"


class Releases:
    """The ids that wait to be forgotten, for all connections of a gateway, for each token by itself.

    A key has the token's name, so nobody can release what another one has stored. Nothing is kept for a token that has
    written nothing yet. Waiting ids count in the token's share of *memory*.
    """

    def __init__(
        self,
        client: AsyncClient,
        queues: Queues,
        places: TurnPlaces,
        memory: MemoryBudget,
        counters: Counters,
        after: float,
        remember: float,
    ) -> None:
        self._client, self._states, self._places, self._memory = client, queues, places, memory
        self._counters, self._after, self._remember = counters, after, remember
        self._waiting: dict[str, deque[tuple[float, bytes]]] = {}
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
        if len(queues) > MAX_QUEUES:
            queues.popitem(last=False)

    def released(self, name: str, message_ids: Iterable[bytes]) -> None:
        """Note that a client will never send these again."""
        if name not in self._queues:
            return
        due = self._client.clock.monotonic() + self._after
        waiting = self._waiting.setdefault(name, deque(maxlen=MAX_WAITING))
        before = len(waiting)
        waiting.extend((due, message_id) for message_id in message_ids)
        self._memory.share(name).take(BYTES_OF_ID * (len(waiting) - before))

    async def run(self) -> None:
        """Let Redis forget what is due, for ever."""
        while True:
            await asyncio.sleep(PAUSE)
            await self.forget_due()

    async def forget_due(self) -> None:
        """Let Redis forget what is due now. A key for which that fails is forgotten at the end of its window."""
        await asyncio.gather(*(self._forget_due_of(name) for name in list(self._waiting)))

    async def _forget_due_of(self, name: str) -> None:
        while keys := self._take_due(name):
            for queue in list(self._queues[name]):
                await self._forget(name, queue, keys)

    def _take_due(self, name: str) -> list[str]:
        """Return the keys of up to AT_ONCE ids of a token that are due.

        An id with a copy that is held waits once more.
        """
        now, waiting, due = self._client.clock.monotonic(), self._waiting[name], list[str]()
        before = len(waiting)
        for _ in range(min(len(waiting), IDS_AT_ONCE)):
            if waiting[0][0] > now:
                break
            _, message_id = waiting.popleft()
            key = dedup_key(name, message_id)
            if key in self._held:
                waiting.append((now + self._after, message_id))
            else:
                due.append(key)
        self._memory.share(name).give(BYTES_OF_ID * (before - len(waiting)))
        return due

    async def _forget(self, name: str, queue: str, keys: list[str]) -> None:
        state = self._states.state(queue, self._remember)
        try:
            async with self._places.place(name, cost_of(len(keys) / IDS_FOR_ONE, 0)):
                op = over(state, lambda each: release(each, keys), sums.total, looks=True)
                self._counters.released += await self._client.run(op)
        except BackendError as error:
            log.warning("released ids in queue %r are remembered until their end: %s", queue, error)
