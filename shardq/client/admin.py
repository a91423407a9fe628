"""What operators and autoscalers ask of a queue, for threads: numbers, settings, shards, dead letters."""

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


class Runner(Protocol):
    """A client, as far as a queue needs it."""

    def run(self, op: Op[T]) -> T:
        """Run one operation."""


class QueueAdmin:
    """The part of `Queue` that only operators need."""

    state: QueueState
    _client: Runner
    _codecs: Codecs

    def len(self, *, timeout: float | None = None) -> int:
        """Messages that ask for work: backlog + in flight, in O(1); 0 while the queue does not exist."""
        return self._client.run(admin.length(self.state, timeout))

    def stats(self, *, timeout: float | None = None) -> QueueStats:
        """The queue's numbers at one instant; all zero while the queue does not exist."""
        return self._client.run(admin.statistics(self.state, timeout))

    def purge(self, *, timeout: float | None = None) -> int:
        """Remove everything that is undelivered or delayed; how many. In flight and dead messages stay.

        Where an answer was lost on the way it removed more than the number says; `QueueStats.purged` has them all.
        """
        return self._client.run(admin.purge(self.state, timeout))

    def resize(self, streams: int, *, timeout: float | None = None) -> tuple[int, int]:
        """Change the number of streams, live: (streams read, streams written) now.

        Fewer are read only once the higher ones are empty; reads see to that.
        """
        return self._client.run(admin.resize(self.state, streams, timeout))

    def assign(
        self, names: Iterable[str | bytes], *, max_overlap: int | None = None, timeout: float | None = None
    ) -> Assignment:
        """Give each of *names* (shard keys) a shard of which any two share at most *max_overlap*.

        Who has a shard keeps it; all others are dealt theirs as ever. *max_overlap* is as before, 1 at first. All names
        get shards or none does, and all clients follow. The assignment after it; ConfigError when there is no room.
        """
        return self._client.run(assigning.assign(self.state, names, max_overlap, timeout))

    def unassign(self, names: Iterable[str | bytes] | None = None, *, timeout: float | None = None) -> Assignment:
        """Take the shards of *names* back, all shards if None: these shard keys are dealt theirs again.

        What they have waiting stays where it is. The assignment after it.
        """
        return self._client.run(assigning.unassign(self.state, names, timeout))

    def assignment(self, *, timeout: float | None = None) -> Assignment:
        """Which named shard keys have which streams, by `assign`; ConfigError when something else spoilt it."""
        return self._client.run(assigning.assignment(self.state, timeout))

    def settings(self, *, timeout: float | None = None) -> QueueConfig:
        """The queue's settings as they are now, for all its clients. QueueMissing if there is no such queue."""
        return self._client.run(admin.configure(self.state, {}, timeout))

    def configure(self, *, timeout: float | None = None, **settings: Any) -> QueueConfig:
        """Change settings of the queue, for all its clients; its settings after that (see `QueueConfig`).

        QueueMissing if there is no such queue.
        """
        return self._client.run(admin.configure(self.state, settings, timeout))

    def weights(self, *, timeout: float | None = None) -> dict[str | bytes, int]:
        """The shard keys (or parents) whose weight in the admission window is not 1; QueueMissing without a queue."""
        return self._client.run(weighing.weights(self.state, timeout))

    def set_weights(
        self, changes: Mapping[str | bytes, int], *, timeout: float | None = None
    ) -> dict[str | bytes, int]:
        """Give shard keys (or parents) a weight in the admission window; all weights after that.

        While others wait, one of weight 3 gets three times the share of one of weight 1, and with `max_in_flight` may
        have three times as many in flight. Weights are whole numbers from 1, which every shard key has, to 100, of at
        most 1,000 shard keys; they count from the next read on, for all clients. QueueMissing if there is no queue.
        """
        return self._client.run(weighing.set_weights(self.state, changes, timeout))

    def dead(self, count: int = 100, *, after: str = "-", timeout: float | None = None) -> list[DeadLetter]:
        """Up to *count* dead letters, oldest first, after the entry id *after*."""
        letters = self._client.run(admin.dead_letters(self.state, checked_count(count), after, timeout))
        return [letter.read_with(self._codecs) for letter in letters]

    def journal(self, count: int = 1000, *, after: int = 0, timeout: float | None = None) -> JournalPage:
        """Up to *count* events (10,000 at most) of what happened to messages, after position *after* (docs/journal.md).

        Go on after the page's `position`; it says how many events were lost, since the setting `journal` bounds them.
        """
        return self._client.run(admin.journal(self.state, count, after, timeout))

    def redrive(self, letters: Sequence[DeadLetter], *, timeout: float | None = None) -> int:
        """Move dead letters back into the queue, with their ids and headers; how many moved."""
        return self._client.run(admin.redrive(self.state, letters_of(letters), timeout))
