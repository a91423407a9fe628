# Generated from async_delivery.py by tests/house/twins.py. Do not change it: change that, run `make twins`.
"""`Delivery`, for threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shardq.arguments import MAX_BLOCK, lease_time, seconds
from shardq.client.leases import LeasedDelivery
from shardq.client.results import NO_VALUE, checked_progress
from shardq.client.work import measured_one, measured_so_far
from shardq.errors import LeaseLost, MessageCancelled
from shardq.model.failed import Problem, failed_try
from shardq.ops.results.keep import NO_RESULT, keep, progress
from shardq.ops.settle.settle import LOST_RESULTS, Settled
from shardq.ops.settle.sharing import Settle

if TYPE_CHECKING:
    from shardq.client.queue import Queue


class Delivery(LeasedDelivery):
    """One message, leased to you until `deadline`. Settle it: ack, nack or reject.

    LeaseLost means that the message is not yours any more. MessageCancelled means that it was cancelled. Every call may
    raise what `Queue` says.

    >>> client = Client.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", max_deliveries=3, result_ttl=600)
    >>> message_id = queue.write({"to": "ada"}, shard_key="acme", headers={"lang": "en"})
    >>> delivery = queue.read()
    >>> delivery.payload, delivery.shard_key, delivery.headers, delivery.count
    ({'to': 'ada'}, 'acme', {'lang': 'en'}, 1)
    """

    __slots__ = ()

    _queue: Queue

    @property
    def queue(self) -> Queue:
        """The queue that it was read from."""
        return self._queue

    def ack(self, *, result: Any = NO_VALUE, cost: float | None = None, timeout: float | None = None) -> None:
        """Say that the work is done: the message is forgotten. Its *result* is kept for the queue's `result_ttl`.

        Without a *result* (None is one) nothing is kept. One that cannot be encoded, or is larger than
        `max_result_size`, is not kept either, which is logged. ConfigError if the queue keeps no results.

        *cost* is that of `cost`, for work whose cost is not its time.

        >>> delivery.ack(result={"sent": True})
        >>> queue.result(message_id)
        {'sent': True}
        """
        if cost is not None:
            self.cost = cost
        if result is not NO_VALUE:
            self._queue._keep([self], [result], timeout)
        elif self._told is not None:
            self._queue.client.run(keep(self._queue.state, [(self.received, NO_RESULT)], timeout))
        self._settle("ack", Settle(measured_one(self)), timeout)

    def progress(
        self, done: float, total: float | None = None, note: str = "", *, timeout: float | None = None
    ) -> bool:
        """Note how far the work is: *done* of *total*, with a *note* of at most 200 characters. `status` shows it.

        At most one note per second is sent, and beyond that the one that all is done (*done* is *total*); the others
        are ignored. Return whether it is noted: not if there is no room for it, in the queue or in a full Redis. It is
        for a day, or for the queue's `result_ttl` if that is longer. ConfigError for a bad number or note.

        >>> delivery.progress(3, 10, "third page")
        True
        >>> status = queue.status(message_id)
        >>> status.progress.done, status.progress.note
        (3.0, 'third page')
        """
        checked_progress(done, total, note)
        if not self._is_worth_telling(is_last=done == total):
            return False
        settled, noted = self._queue.client.run(progress(self._queue.state, self.received, done, total, note, timeout))
        if settled in LOST_RESULTS:
            self._lease.lose()
            settled.check()
        return noted

    def nack(self, *, delay: float = 0.0, error: Problem = "", timeout: float | None = None) -> bool:
        """Give the message back. It is delivered again after *delay* seconds, and *error* is kept as its `last_error`.

        The *error* is a text, or the exception itself: then its class is kept, too, which tells failures apart
        (`Queue.failures`). Without one the message is only given back: nothing has failed.

        Return whether it is: after the last delivery that the queue's `max_deliveries` allows, it becomes a dead letter
        instead.

        ConfigError for a bad *delay* or *error*; nothing was changed then.

        >>> delivery.nack(delay=30, error="no connection")
        True
        >>> status = queue.status(message_id)
        >>> status.state, status.last_error
        ('delayed', 'no connection')
        """
        seconds("delay", delay, 0, MAX_BLOCK)
        item = Settle(measured_one(self), delay, failed_try("error", error))
        return self._settle("nack", item, timeout) is not Settled.DEAD

    def reject(self, reason: Problem, *, timeout: float | None = None) -> None:
        """Move the message to the dead letters, with *reason*: a text, or an exception as in `nack`.

        ConfigError if it is neither.

        >>> delivery.reject("unknown format")
        >>> [each.reason for each in queue.dead()]
        ['unknown format']
        """
        item = Settle(measured_one(self), 0.0, failed_try("reason", reason))
        self._settle("reject", item, timeout)

    def extend(self, duration: float, *, timeout: float | None = None) -> None:
        """Let the lease end *duration* seconds from now.

        LeaseLost if it has ended already; ConfigError for a bad *duration*.

        >>> before = delivery.deadline
        >>> delivery.extend(120)
        >>> delivery.deadline > before
        True
        """
        lease_time("duration", duration)
        sent = self._clock.monotonic()
        try:
            self._queue._settle("extend", Settle(measured_so_far(self), duration), timeout)
        except LeaseLost:
            self._lease.lose()
            raise
        self._extended(sent, duration)

    def _settle(self, verb: str, item: Settle, timeout: float | None) -> Settled:
        try:
            settled = self._queue._settle(verb, item, timeout)
        except LeaseLost as error:
            self.cancelled = isinstance(error, MessageCancelled)
            self._note(lost=True)
            raise
        self._note(lost=False)
        self.dead = settled is Settled.DEAD
        return settled

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """A tracing span around the work on this delivery. It settles nothing. It raises nothing itself.

        >>> with delivery.processing():
        ...     print("mail to", delivery.payload["to"])
        mail to ada
        """
        with self._queue._telemetry.processing(self.received):
            yield
