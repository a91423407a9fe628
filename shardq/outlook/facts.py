"""The facts for an outlook and a verdict: the answers of a few calls, of about one moment."""

from __future__ import annotations

import msgspec

from shardq.model.failure import Failure
from shardq.model.minute import Minute
from shardq.model.stats import QueueStats
from shardq.model.waiter import Waiters
from shardq.model.worker_status import WorkerStatus


class ServerMemory(msgspec.Struct, frozen=True):
    """A server's report of its memory: bytes `used`, of at most `limit` (0: no limit), writes that it `refused`.

    `refused` counts commands that failed since the memory was full, of all clients, since the server started.
    """

    used: int
    limit: int
    refused: int

    @property
    def share(self) -> float:
        """How full it is, of one; 0 without a limit."""
        return self.used / self.limit if self.limit else 0.0


class Facts(msgspec.Struct, frozen=True):
    """The known facts of a queue.

    `minutes` are the last ones, oldest first. Each of `workers` stands for `worker_factor` of them, where there are too
    many to look at all. `is_read` says whether somebody read in the last 30 s who does not tell of itself, such as a
    worker of an earlier version; `last_read` is when somebody is known to have read last. `memory` is None where the
    server does not tell. `asked` are shard keys that somebody asked about.
    """

    stats: QueueStats
    waiters: Waiters
    workers: tuple[WorkerStatus, ...] = ()
    worker_factor: float = 1.0
    minutes: tuple[Minute, ...] = ()
    is_read: bool = False
    last_read: float | None = None
    failures: tuple[Failure, ...] = ()
    memory: ServerMemory | None = None
    asked: tuple[str | bytes, ...] = ()

    @property
    def now(self) -> float:
        """The instant of the numbers, by the server's clock."""
        return self.stats.time

    @property
    def working(self) -> tuple[WorkerStatus, ...]:
        """The workers that live."""
        return tuple(each for each in self.workers if each.state == "working")

    @property
    def has_reader(self) -> bool:
        """Whether anybody reads the queue."""
        return self.is_read or bool(self.working)

    @property
    def paused_until(self) -> float | None:
        """Until when the queue is paused: None if it is not, infinite if without an end."""
        return self.stats.paused_until
