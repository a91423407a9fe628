# Generated from async_partitions.py by tests/house/twins.py. Do not change it: change that, run `make twins`.
"""`PartitionedQueue`, for threads.

Here is what needs an `await`: writes and reads. All else is in `parted`, once for both clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from shardq.client.action import Action
from shardq.client.delivery import Delivery
from shardq.client.job import Job
from shardq.client.leases import delivered
from shardq.client.parted import (
    Acking,
    PartedAction,
    PartedDelivery,
    PartedJob,
    PartedPart,
    PartedQueue,
    PartedSchedules,
    spread,
)
from shardq.client.queue import Queue
from shardq.client.schedules import Schedules
from shardq.client.sync_stands import Stands
from shardq.errors import QueueMissing
from shardq.model import Message, Written
from shardq.model.message import messages_of
from shardq.ops.read.read import checked_wanted
from shardq.ops.write.outgoing import compose_all
from shardq.partitions import upkeep
from shardq.partitions.losses import find_again
from shardq.partitions.parts import Parts
from shardq.partitions.reads import Rows, WantedRead, first_look, read_turns
from shardq.partitions.tidy import is_due, tidy
from shardq.partitions.writes import write_dealt
from shardq.telemetry.gate import watched

T = TypeVar("T")


class PartDelivery(PartedDelivery, Delivery):
    """A delivery of one partition of a queue."""

    __slots__ = ()


class PartJob(PartedJob, Job[T]):
    """A job in one of the partitions of a queue."""


class PartAction(PartedAction, Action):
    """An action on all partitions of a queue."""


class Partition(PartedPart, Queue):
    """One partition of a queue, which its deliveries are settled by."""


@spread
class PartSchedules(PartedSchedules, Schedules):
    """The schedules that users stored in a queue with partitions."""


@spread
class PartitionedQueue(PartedQueue, Queue):
    """A queue that is spread over the nodes of a cluster, used as any other one.

    A shard key has its home in one of the partitions. There it is served as in a queue of one part. Ids of messages end
    in the number of the partition.
    """

    _kind_of_action = PartAction
    _kind_of_job = PartJob
    _kind_of_part = Partition

    @property
    def schedules(self) -> Schedules:
        """The schedules that users stored in the queue, each in the home of its shard key."""
        return PartSchedules(self)

    def _parts(self, timeout: float | None) -> Parts:
        """Return what is known of the partitions. The first call looks them up, or makes them."""
        known: Parts | None = self.state.parts
        if known is None or self._is_to_agree:
            known = self._client.run(self._opened(timeout, create=True))
        known.fresh_for()
        return known

    def write(self, payload: Any, **options: Any) -> Any:
        """Store one message in the home of its shard key: see `Queue.write`."""
        if self.state.parts is None:
            self._check_message(payload, options)
        self._parts(options.get("timeout"))
        written = super().write(payload, **options)
        return PartJob.of(self, written, written._returns) if isinstance(written, Job) else written

    def write_many(
        self, messages: Iterable[Message | tuple[Any, str | bytes]], *, timeout: float | None = None
    ) -> list[Written]:
        """Store many messages in the homes of their shard keys, at once: see `Queue.write_many`."""
        with self._telemetry.writing(len(batch := messages_of(messages))) as told:
            composed = compose_all(self.state, self._codecs, batch, told.context)
            ids = self._client.run(write_dealt(self._parts(timeout), composed, timeout)) if composed else []
            told.wrote(ids)
            return ids

    def _read(
        self,
        count: int,
        block: float,
        visibility: float | None,
        prefer: int | None,
        timeout: float | None,
        ack: Delivery | Sequence[Delivery] | None,
        *,
        batch: bool,
    ) -> list[Delivery]:
        checked_wanted(block, visibility, prefer)
        acking = self._to_ack(ack)
        parts = self._parts(timeout)
        now = self.state.clock.monotonic()
        if now >= parts.common.upkeep_at and upkeep.is_due(parts, now):
            self._client._run_in_background(upkeep.keep_up(parts))
        if parts.map.read > parts.map.written and is_due(parts):
            self._client._run_in_background(tidy(parts))
        acking.began = began = self._telemetry.begin() if watched() else None
        until, stands = now + block, self._stands(parts)
        call_until = max(until, self.state.until(timeout))
        wanted = WantedRead(count, visibility, call_until, block > 0, stands.aside, stands.offer, acking.parts)
        try:
            parts, rows = self._search(parts, wanted, acking, until, timeout, batch=batch)
        except Exception as error:
            self._telemetry.read_failed(began, error)
            raise
        if rows is None:
            return []
        if began is not None and not acking.has_told:
            self._telemetry.read([row for some in rows.values() for row in some], began, batch=batch)
        return [
            each for number, some in rows.items() for each in delivered(PartDelivery, some, self._part(parts, number))
        ]

    def _search(
        self, parts: Parts, wanted: WantedRead, acking: Acking, until: float, timeout: float | None, *, batch: bool
    ) -> tuple[Parts, Rows | None]:
        """Return what is there, or comes by local time *until*, and the partitions that it is of.

        None if the wait was ended from elsewhere.
        """
        while True:
            parts = self.state.parts or parts
            rows = self._look(parts, wanted, acking, timeout, batch=batch)
            if rows is None:
                continue
            wanted.acks = {}
            if rows or self.state.clock.monotonic() >= until:
                return parts, rows
            waited = self._stands(parts).wait(wanted.count, wanted.visibility, until)
            if waited or waited is None or self.state.clock.monotonic() >= until:
                return self.state.parts or parts, waited

    def _look(
        self, parts: Parts, wanted: WantedRead, acking: Acking, timeout: float | None, *, batch: bool
    ) -> Rows | None:
        """Return what is there. None if a partition was not, and now is, or the map has changed: then look again."""
        try:
            if (first := first_look(parts, wanted, timeout)) is not None:
                found = self._stands(parts).look(wanted, *first)
                if found is not None:
                    acking.looked(self._telemetry, found, batch=batch)
                if found:
                    return {first[0]: found}
            return self._read_now(parts, wanted)
        except QueueMissing:
            # The caller of an ack must hear of it.
            if acking.is_open or self.state.clock.monotonic() >= wanted.until:
                raise
            self._client.run(find_again(parts, wanted.until))
            wanted.begin()
            return None
        finally:
            acking.note(self._telemetry)

    def _read_now(self, parts: Parts, wanted: WantedRead) -> Rows:
        rows: Rows = self._client.run(read_turns(parts, wanted))
        return rows

    def _stands(self, parts: Parts) -> Stands:
        with parts.lock:
            parts = self.state.parts or parts  # another map may have come
            if parts.common.stands is None:
                parts.common.stands = Stands(self._client, parts)
            found: Stands = parts.common.stands
            return found
