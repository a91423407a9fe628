"""The numbers of queues as samples of instruments, for Prometheus's text and for OpenTelemetry.

Unknown numbers are left out: no number is 0, or an old one, since Redis did not answer. `shardq_up` says that it did
not, and `shardq_poll_age_seconds` since when.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Final

from shardq import __version__
from shardq.errors import QueueMissing, ShardqError
from shardq.exporter.errors import is_refused
from shardq.exporter.poller import MAX_QUEUES, Past, Poller
from shardq.exporter.seldom import Seldom
from shardq.exporter.tenants import Tenants
from shardq.model.stats import QueueStats
from shardq.telemetry import instruments as of
from shardq.telemetry.instruments import (
    BUILD,
    MEMORY_RATIO,
    OUT_OF_MEMORY,
    PARTITION,
    POLL_AGE,
    QUEUE,
    TENANT,
    UP,
    VERSION,
    Instrument,
)
from shardq.telemetry.sample import Sample

OF_SERVER: Final = (UP, POLL_AGE, MEMORY_RATIO, OUT_OF_MEMORY)
OF_TENANTS: Final = (of.TENANT_BACKLOG, of.TENANT_IN_FLIGHT, of.TENANT_PICKUP)

_OF_PARTITIONS: Final[tuple[tuple[Instrument, Callable[[QueueStats], float]], ...]] = (
    (of.PARTITION_BACKLOG, lambda stats: stats.backlog),
    (of.PARTITION_IN_FLIGHT, lambda stats: stats.in_flight),
    (of.PARTITION_DELIVERED, lambda stats: stats.delivered),
)
OF_PARTITIONS: Final = tuple(instrument for instrument, _ in _OF_PARTITIONS)
_OF_STATS: Final[tuple[tuple[Instrument, Callable[[QueueStats], float]], ...]] = (
    (of.BACKLOG, lambda stats: stats.backlog),
    (of.RUNNABLE, lambda stats: stats.runnable),
    (of.HELD_BACK, lambda stats: stats.held_back),
    (of.LIMITED, lambda stats: stats.limited),
    (of.IN_FLIGHT, lambda stats: stats.in_flight),
    (of.DELAYED, lambda stats: stats.delayed),
    (of.DUE_SOON, lambda stats: stats.due_soon),
    (of.DEAD, lambda stats: stats.dead),
    (of.TENANTS_WAITING, lambda stats: stats.tenants_waiting),
    (of.OLDEST_AGE, lambda stats: stats.oldest_age or 0.0),
    (of.PAUSED, lambda stats: int(stats.paused_until is not None)),
    (of.WRITTEN, lambda stats: stats.written),
    (of.DELIVERED, lambda stats: stats.delivered),
    (of.REDELIVERED_COUNT, lambda stats: stats.redelivered),
    (of.ACKED, lambda stats: stats.acked),
    (of.EXPIRED, lambda stats: stats.expired),
    (of.CANCELLED, lambda stats: stats.cancelled),
    (of.PURGED, lambda stats: stats.purged),
    (of.DEAD_LETTERED_COUNT, lambda stats: stats.dead_lettered),
    (of.VANISHED, lambda stats: stats.vanished),
)
_OF_PAST: Final = (of.DRAIN_TIME, of.WORKERS, of.QUEUE_SLOTS)
OF_QUEUES: Final = (*(instrument for instrument, _ in _OF_STATS), of.PAUSE_LEFT, *_OF_PAST)
log = logging.getLogger("shardq.exporter")
MAX_QUEUES_AT_ONCE: Final = 8
"""Queues whose numbers are asked for at the same time."""
PATIENCE: Final = 8.0
"""Seconds after which queues without an answer by then count as unknown."""


class QueueSamples:
    """The samples of *queues* (None: of all there are), with a few labels of *tenants* in each if that is above 0.

    >>> from shardq.exporter.text import text_of
    >>> from shardq.testing import fake_client
    >>> client = fake_client()
    >>> _ = client.queue("jobs", streams=4).write("payload", shard_key="acme")
    >>> text = text_of(QueueSamples(Poller(client), ["jobs"]).samples())
    >>> [line for line in text.splitlines() if "runnable" in line]
    ['# HELP shardq_queue_runnable Messages that a read could deliver now', '# TYPE shardq_queue_runnable gauge',
     'shardq_queue_runnable{queue="jobs"} 1']
    """

    def __init__(
        self, poller: Poller, queues: Sequence[str] | None = None, *, tenants: int = 0, hash_tenants: bool = False
    ) -> None:
        self._poller, self._queues, self._most, self._is_hashed = poller, queues, tenants, hash_tenants
        self._lock = threading.Lock()
        self._tenants: dict[str, Tenants] = {}
        self._names: Sequence[str] | None = queues
        self._is_cut = False
        self._said: set[str] = set()
        self._seldom = Seldom(poller.clock)
        self._pool: ThreadPoolExecutor | None = None

    def samples(self) -> list[Sample]:
        """Return all samples, for each queue and for Redis. BackendError if it never told which queues there are."""
        names = self.names()
        with self._lock:
            self._tenants = {name: each for name, each in self._tenants.items() if name in names}
            self._said.intersection_update(names)
        found: list[Sample] = []
        for part in self._each(names):
            found += part
        # Of Redis itself, too: there may be no queue yet.
        return [build(), Sample(UP, (), int(self._poller.is_ready())), *found, *self.of_server()]

    def names(self) -> Sequence[str]:
        """Return the names of the queues: if Redis does not tell them now, those that it told last."""
        if self._queues is not None:
            return self._queues
        try:
            found = self._poller.queues()
        except ShardqError:
            if self._names is None:
                raise
            return self._names
        if len(found) > MAX_QUEUES and not self._is_cut:
            self._is_cut = True
            log.warning("there are %d queues, and only the first %d are exported", len(found), MAX_QUEUES)
        self._names = found[:MAX_QUEUES]
        return self._names

    def close(self) -> None:
        """End the threads that ask."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._pool = None

    def of_queue(self, name: str) -> list[Sample]:
        """Return the samples of one queue: only that it is not up if its numbers are not told.

        Of all queues, one that this user of Redis may not read is left out; one that was named is not up.
        """
        try:
            return self._told(name)
        except Exception:
            # One of an error that nobody expects hides no other.
            if self._seldom.is_due():
                log.exception("the numbers of queue %r cannot be read", name)
            return [Sample(UP, ((QUEUE, name),), 0)]

    def _told(self, name: str) -> list[Sample]:
        labels = ((QUEUE, name),)
        try:
            stats = self._poller.stats(name)
        except ShardqError as error:
            self._say(name, error)
            # One that is not made yet, or deleted, or of somebody else.
            if isinstance(error, QueueMissing) or (self._queues is None and is_refused(error)):
                return []
            age = self._poller.age(name)
            return [Sample(UP, labels, 0), *([] if age is None else [Sample(POLL_AGE, labels, age)])]
        self._said.discard(name)
        found = [Sample(UP, labels, 1), Sample(POLL_AGE, labels, self._poller.age(name) or 0.0)]
        told = [(instrument, number(stats)) for instrument, number in _OF_STATS]
        # Any other number was written by another program.
        found += [Sample(instrument, labels, value) for instrument, value in told if 0 <= value < math.inf]
        if stats.paused_until is not None and math.isfinite(stats.paused_until):
            found.append(Sample(of.PAUSE_LEFT, labels, max(0.0, stats.paused_until - stats.time)))
        found += _of_partitions(name, [*self._poller.partitions(name).values()])
        past = self._poller.past(name)
        if past is not None:
            found += _of_past(name, past)
        if self._most:
            found += self._of_tenants(name, stats, past)
        return found

    def _say(self, name: str, error: ShardqError) -> None:
        """Log once why the numbers of a queue are not told, if that is not due to Redis, which the poller tells."""
        if name in self._said or len(self._said) >= MAX_QUEUES:
            return
        if is_refused(error):
            self._said.add(name)
            how = "left out" if self._queues is None else "not up"
            log.warning("queue %r is %s: %s", name, how, error)
        elif self._queues is not None and isinstance(error, QueueMissing):
            self._said.add(name)
            log.warning("queue %r is left out: there is no queue of this name", name)

    def of_server(self) -> list[Sample]:
        """Return what Redis tells of its memory."""
        nodes = self._poller.nodes()
        memories = [node.memory for node in nodes if node.memory is not None]
        limited = [memory.share for memory in memories if memory.limit]
        ratio = [Sample(MEMORY_RATIO, (), max(limited))] if limited else []
        refused = [Sample(OUT_OF_MEMORY, (), self._poller.refused(nodes))] if memories else []
        return ratio + refused

    def _each(self, names: Sequence[str]) -> Iterator[list[Sample]]:
        """Yield the samples of each queue, several asked for at a time."""
        if len(names) < 2:
            yield from map(self.of_queue, names)
            return
        with self._lock:
            self._pool = self._pool or ThreadPoolExecutor(MAX_QUEUES_AT_ONCE, thread_name_prefix="shardq-poll")
            asked = [self._pool.submit(self.of_queue, name) for name in names]
        wait_for(asked, PATIENCE)
        for name, future in zip(names, asked, strict=True):
            future.cancel()
            yield future.result() if future.done() and not future.cancelled() else [Sample(UP, ((QUEUE, name),), 0)]

    def _of_tenants(self, name: str, stats: QueueStats, past: Past | None) -> Iterator[Sample]:
        with self._lock:
            tenants = self._tenants.get(name)
            if tenants is None:
                tenants = self._tenants[name] = self._poller.tenants(name, self._most, is_hashed=self._is_hashed)
        for row in tenants.rows(stats, past.workers if past else ()):
            labels = ((QUEUE, name), (TENANT, row.name))
            yield Sample(of.TENANT_BACKLOG, labels, row.backlog)
            yield Sample(of.TENANT_IN_FLIGHT, labels, row.in_flight)
            if row.pickup_p99 is not None:
                yield Sample(of.TENANT_PICKUP, labels, row.pickup_p99)


def build() -> Sample:
    """Return the sample that says which version this is."""
    return Sample(BUILD, ((VERSION, __version__),), 1)


def _of_partitions(name: str, parts: Sequence[QueueStats]) -> Iterator[Sample]:
    """Yield what each partition has, where a queue has more than one: few, and with names of their own in sums."""
    for number, stats in enumerate(parts if len(parts) > 1 else ()):
        labels = ((QUEUE, name), (PARTITION, str(number)))
        for instrument, value in _OF_PARTITIONS:
            yield Sample(instrument, labels, value(stats))


def _of_past(name: str, past: Past) -> list[Sample]:
    labels, outlook = ((QUEUE, name),), past.outlook
    # A reader that does not tell of itself is at least one.
    found = [Sample(of.WORKERS, labels, max(outlook.workers, int(outlook.is_read)))]
    found.append(Sample(of.QUEUE_SLOTS, labels, outlook.slots))
    if outlook.drain_seconds is not None:
        found.append(Sample(of.DRAIN_TIME, labels, outlook.drain_seconds))
    elif outlook.drains in ("grows", "stands"):
        found.append(Sample(of.DRAIN_TIME, labels, math.inf))
    return found
