"""What a streaming query holds of one queue: the leases of a micro-batch, and their record in Redis."""

from __future__ import annotations

from shardq.client import Client
from shardq.model import Received
from shardq.ops import holds
from shardq.ops.state import QueueState
from shardq.spark.consume.holding import ack_all, lease, return_unsettled, still_held
from shardq.spark.consume.keeper import Keeper
from shardq.spark.consume.lease import Lease, packed, unpacked


class Hold:
    """Takes and settles the leases of one micro-batch after the other.

    Those of micro-batch `batch` it extends until they are settled.
    `name` tells the holds of queries apart. *visibility* is in seconds; 0 takes the queue's.
    """

    def __init__(self, client: Client, state: QueueState, name: str, visibility: float = 0.0) -> None:
        self._client, self._state, self.name = client, state, name
        self._visibility = visibility or state.config.visibility_timeout
        self._held: list[Received] = []
        self._keeper: Keeper | None = None
        self.batch = 0

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._state.keys.name

    @property
    def leases(self) -> list[Lease]:
        """The leases of the micro-batch, those whose messages lie together one after the other."""
        found = [Lease.of(self.queue, each) for each in self._held]
        return sorted(found, key=lambda each: each.handle)

    def lease(self, batch: int, most: int, block: float) -> int:
        """Take messages for a new micro-batch, and write the leases down before anybody works on it. Return how many.

        If this was done before, by a query that died before Spark knew of it, take up what it held.
        """
        if self.take_up(batch) and self._held:
            return len(self._held)
        held: list[Received] = []
        lease(self._client, self._state, held, most, self._visibility, block)
        if held:
            record = packed([Lease.of(self.queue, each) for each in held])
            self._client.run(holds.remember(self._state, self.name, batch, record))
        self._keep(batch, held)
        return len(held)

    def take_up(self, batch: int) -> bool:
        """Go on with a micro-batch that a query began before. Return whether Redis knows of it.

        Leases that have ended meanwhile are left out: their messages come again, here or elsewhere.
        """
        held = self._recalled(batch)
        if held is None:
            return False
        self._keep(batch, still_held(self._client, self._state, held, self._visibility))
        return True

    def settle(self, batch: int, ack_on: str) -> None:
        """Ack the messages of a micro-batch that is done; where the job acks, give back those that it left."""
        if self.batch == batch:
            self.stop()
        held = self._held if self.batch == batch else self._recalled(batch)
        if held is None:
            return
        (ack_all if ack_on == "commit" else return_unsettled)(self._client, self._state, held)
        self._client.run(holds.forget(self._state, self.name, batch))

    def stop(self) -> None:
        """Extend nothing any more."""
        if self._keeper is not None:
            self._keeper.stop()
            self._keeper = None

    def _keep(self, batch: int, held: list[Received]) -> None:
        self.stop()
        self.batch, self._held = batch, held
        self._keeper = Keeper(self._client, self._state, held, self._visibility)
        self._keeper.start()

    def _recalled(self, batch: int) -> list[Received] | None:
        record = self._client.run(holds.recall(self._state, self.name, batch))
        return None if record is None else [each.received for each in unpacked(record)]
