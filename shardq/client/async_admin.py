"""What operators and autoscalers ask of a queue, for asyncio: the twin of `shardq.client.admin`, which documents it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from shardq.codec import Codecs
from shardq.model import DeadLetter, JournalPage, QueueConfig, QueueStats
from shardq.model.dead_letter import letters_of
from shardq.ops import admin, assigning, weighing
from shardq.ops.read import checked_count
from shardq.ops.state import QueueState
from shardq.ops.steps import Op
from shardq.planner import Assignment

T = TypeVar("T")


class AsyncRunner(Protocol):
    """A client, as far as a queue needs it."""

    async def run(self, op: Op[T]) -> T:
        """Run one operation."""


class AsyncQueueAdmin:
    """The part of `AsyncQueue` that only operators need."""

    state: QueueState
    _client: AsyncRunner
    _codecs: Codecs

    async def len(self, *, timeout: float | None = None) -> int:
        """As `Queue.len`."""
        return await self._client.run(admin.length(self.state, timeout))

    async def stats(self, *, timeout: float | None = None) -> QueueStats:
        """As `Queue.stats`."""
        return await self._client.run(admin.statistics(self.state, timeout))

    async def purge(self, *, timeout: float | None = None) -> int:
        """As `Queue.purge`."""
        return await self._client.run(admin.purge(self.state, timeout))

    async def resize(self, streams: int, *, timeout: float | None = None) -> tuple[int, int]:
        """As `Queue.resize`."""
        return await self._client.run(admin.resize(self.state, streams, timeout))

    async def assign(
        self, names: Iterable[str | bytes], *, max_overlap: int | None = None, timeout: float | None = None
    ) -> Assignment:
        """As `Queue.assign`."""
        return await self._client.run(assigning.assign(self.state, names, max_overlap, timeout))

    async def unassign(self, names: Iterable[str | bytes] | None = None, *, timeout: float | None = None) -> Assignment:
        """As `Queue.unassign`."""
        return await self._client.run(assigning.unassign(self.state, names, timeout))

    async def assignment(self, *, timeout: float | None = None) -> Assignment:
        """As `Queue.assignment`."""
        return await self._client.run(assigning.assignment(self.state, timeout))

    async def settings(self, *, timeout: float | None = None) -> QueueConfig:
        """As `Queue.settings`."""
        return await self._client.run(admin.configure(self.state, {}, timeout))

    async def configure(self, *, timeout: float | None = None, **settings: Any) -> QueueConfig:
        """As `Queue.configure`."""
        return await self._client.run(admin.configure(self.state, settings, timeout))

    async def weights(self, *, timeout: float | None = None) -> dict[str | bytes, int]:
        """As `Queue.weights`."""
        return await self._client.run(weighing.weights(self.state, timeout))

    async def set_weights(
        self, changes: Mapping[str | bytes, int], *, timeout: float | None = None
    ) -> dict[str | bytes, int]:
        """As `Queue.set_weights`."""
        return await self._client.run(weighing.set_weights(self.state, changes, timeout))

    async def dead(self, count: int = 100, *, after: str = "-", timeout: float | None = None) -> list[DeadLetter]:
        """As `Queue.dead`."""
        letters = await self._client.run(admin.dead_letters(self.state, checked_count(count), after, timeout))
        return [letter.read_with(self._codecs) for letter in letters]

    async def journal(self, count: int = 1000, *, after: int = 0, timeout: float | None = None) -> JournalPage:
        """As `Queue.journal`."""
        return await self._client.run(admin.journal(self.state, count, after, timeout))

    async def redrive(self, letters: Sequence[DeadLetter], *, timeout: float | None = None) -> int:
        """As `Queue.redrive`."""
        return await self._client.run(admin.redrive(self.state, letters_of(letters), timeout))
