"""A streaming query's hold of one queue: the leases of a micro-batch, and their record in Redis."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from shardq.client import Client
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.spark.consume.batches import Batches
from shardq.spark.consume.failures import FailedBatch
from shardq.spark.consume.holding import (
    Room,
    ack_all,
    fail,
    lease,
    let_go,
    return_unsettled,
    size_of,
    still_held,
)
from shardq.spark.consume.keeper import HoldKeeper
from shardq.spark.consume.lease import ReaderLease, packed, unpacked
from shardq.spark.ops import holds


class End(Enum):
    """The end of a micro-batch: its messages are settled, or were given back; or all leases had ended."""

    DONE = "done"
    FAILED = "failed"
    NOTHING = "nothing"


class Hold:
    """Takes and settles the leases of one micro-batch after the other.

    Those of micro-batch `batch` it extends until they are settled. A record without leases is that of a micro-batch
    that was given back.
    `size` is how many bytes the payloads have that it took last, 0 if an earlier query took them.
    `name` tells the holds of queries apart. *visibility* is in seconds; 0 takes the queue's.
    """

    def __init__(self, client: Client, state: QueueState, name: str, visibility: float = 0.0) -> None:
        self._client, self._state, self.name = client, state, name
        self._visibility = visibility or state.config.visibility_timeout
        self._keeper: HoldKeeper | None = None
        self._failed = False
        self.held: list[Received] = []
        self.batch = self.size = 0

    @property
    def queue(self) -> str:
        """The queue's name; the tag of a partition."""
        return self._state.keys.tag

    @property
    def life(self) -> str:
        """The queue's id."""
        return self._state.view.id

    @property
    def leases(self) -> list[ReaderLease]:
        """The leases of the micro-batch, those whose messages lie together one after the other."""
        found = [ReaderLease.of(self.queue, each) for each in self.held]
        return sorted(found, key=lambda each: each.handle)

    def lease(self, batch: int, room: Room, block: float) -> int:
        """Take messages for a new micro-batch, and write the leases down before anybody works on it. Return how many.

        If this was done before, by a query that died before Spark knew of it, take up what it held.
        """
        self.size = 0
        if self.take_up(batch) and self.held:
            return len(self.held)
        held: list[Received] = []
        lease(self._client, self._state, held, room, self._visibility, block, is_bare=True)
        if held:
            self.size = sum(size_of(each, is_bare=True) for each in held)
            self._remember(batch, held)
        self._keep(batch, held)
        return len(held)

    def keep_only(self, tokens: Collection[str]) -> int:
        """Give back what has no lease token of these, before anybody works on it. Return how many are left."""
        others = [each for each in self.held if each.token not in tokens]
        if others:
            held = [each for each in self.held if each.token in tokens]
            self._keep(self.batch, held)
            let_go(self._client, self._state, others)
            self._remember(self.batch, held)
        return len(self.held)

    def take_up(self, batch: int) -> bool:
        """Continue a micro-batch that a query began before. Return whether Redis knows of it.

        Leases that have ended meanwhile are left out: their messages come again, here or elsewhere.
        """
        held = self._recalled(batch)
        if held is None:
            return False
        self._keep(batch, still_held(self._client, self._state, held, self._visibility))
        self._failed = not held
        return True

    def begin_again(self) -> int:
        """Write down that a query begins the micro-batch that was taken up. Return how many have, after the first."""
        before, _, times = (self._recall("begun") or b"").partition(b" ")
        again = int(times) + 1 if before == str(self.batch).encode() else 1
        self._client.run(holds.remember(self._state, self.name, "begun", f"{self.batch} {again}"))
        return again

    def fail(self, end: Mapping[str, Any], cause: str) -> None:
        """Give back the messages of the micro-batch that ends at the offset *end*, since its job has failed."""
        batch, rows = end["batch"], sum(end["rows"].values())
        held = self.held if self.batch == batch else self._recalled(batch)
        if not held:
            return
        self.stop()
        fail(self._client, self._state, held, FailedBatch(self.name, Batches.before(end).done, rows), cause)
        self._remember(batch, [])
        self.batch, self.held, self._failed = batch, [], True

    def settle(self, batch: int, ack_on: str) -> End:
        """Ack the messages of a micro-batch that is done; where the job acks, give back those that it left.

        How it ended is written down, for a query that is started again before it has begun another.
        """
        if self.batch == batch:
            self.stop()
        elif (recalled := self._recalled(batch)) is None:
            return self._ended(batch)
        else:
            self.batch, self.held, self._failed = batch, recalled, not recalled
        (ack_all if ack_on == "commit" else return_unsettled)(self._client, self._state, self.held)
        end = End.FAILED if self._failed else End.DONE if self.held else End.NOTHING
        self._client.run(holds.remember(self._state, self.name, "ended", f"{batch} {end.value}", batch))
        return end

    def stop(self) -> None:
        """Extend nothing any more."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def _keep(self, batch: int, held: list[Received]) -> None:
        self.stop()
        self.batch, self.held, self._failed = batch, held, False
        self._keeper = HoldKeeper(self._client, self._state, held, self._visibility)

    def _remember(self, batch: int, held: list[Received]) -> None:
        record = packed([ReaderLease.of(self.queue, each) for each in held])
        self._client.run(holds.remember(self._state, self.name, batch, record))

    def _ended(self, batch: int) -> End:
        before, _, how = (self._recall("ended") or b"").decode().partition(" ")
        return End(how) if before == str(batch) else End.NOTHING

    def _recall(self, field: int | str) -> bytes | None:
        return self._client.run(holds.recall(self._state, self.name, field))

    def _recalled(self, batch: int) -> list[Received] | None:
        record = self._recall(batch)
        return None if record is None else [each.received for each in unpacked(record)]
