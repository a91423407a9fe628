"""Which queues are read: those that `subscribe` names, or those whose names match `subscribePattern`."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shardq.clock import SystemClock
from shardq.errors import ConfigError, QueueMissing
from shardq.ops.queue.listing import matching_queues
from shardq.spark.connection import client_of, seen_queue
from shardq.spark.options import Reading

REFRESH = 60.0
"""Seconds after which a stream looks for new queues. That walks over all keys of Redis."""


@dataclass(slots=True)
class Subscription:
    """The queues that the options name."""

    options: Reading
    _found: tuple[str, ...] = ()
    _looked: float = 0.0

    def queues(self) -> tuple[str, ...]:
        """The names of the queues. With a pattern they may become more."""
        if self.options.queues:
            return self.options.queues
        if not self._found or time.monotonic() - self._looked > REFRESH:
            self._found, self._looked = self._matching(), time.monotonic()
        return self._found

    def check(self) -> None:
        """QueueMissing if a queue does not exist, ConfigError if none matches the pattern."""
        for name in self.queues():
            seen_queue(self.options, name)
        if not self.queues():
            raise ConfigError(
                f"no queue has a name that option subscribePattern matches: {self.options.subscribe_pattern}"
            )

    def _matching(self) -> tuple[str, ...]:
        """The queues that match. Those without a journal are left out where journals are read."""
        found = client_of(self.options).run(matching_queues(self.options.subscribe_pattern, SystemClock()))
        return tuple(name for name in found if self.options.table != "journal" or self._has_journal(name))

    def _has_journal(self, name: str) -> bool:
        """Whether a queue keeps a journal; one that was deleted meanwhile does not."""
        try:
            return bool(seen_queue(self.options, name).config.journal)
        except QueueMissing:
            return False
