"""`AsyncQueue`, for asyncio (`make twins` makes the one for threads)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from shardq.arguments import text
from shardq.client.acking import note_answers, to_ack
from shardq.client.async_admin import AsyncQueueAdmin
from shardq.client.async_delivery import AsyncDelivery
from shardq.client.async_job import AsyncJob
from shardq.client.async_schedules import AsyncSchedules
from shardq.client.leases import delivered, note_results
from shardq.client.results import results_of
from shardq.client.work import measured
from shardq.errors import ConfigError, Empty
from shardq.model import Message, MessageStatus, PeekedPage, PeekState, Received, Where, Written
from shardq.model.call import Call, Callee, returns_of
from shardq.model.delivery import received_of
from shardq.model.failed import Problem
from shardq.model.message import OnConflict, WriteOptions, messages_of
from shardq.ops import inspect
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.who import Who
from shardq.ops.read.give_back import give_back_all
from shardq.ops.read.look import fast_read
from shardq.ops.read.read import checked_count, checked_wanted, read
from shardq.ops.read.waiting import Outstanding
from shardq.ops.results.keep import keep
from shardq.ops.results.wait import result
from shardq.ops.settle import cancel, settle
from shardq.ops.settle.cancel import Cancelled
from shardq.ops.settle.settle import checked_each
from shardq.ops.settle.sharing import OK, Settle, noted, settles_of
from shardq.ops.write.outgoing import compose, compose_all
from shardq.ops.write.write import write_many
from shardq.telemetry.gate import watched

if TYPE_CHECKING:
    from shardq.client.async_action import AsyncAction
    from shardq.client.async_client import AsyncClient

T = TypeVar("T")


class AsyncQueue(AsyncQueueAdmin):
    """One queue, used by the tasks of one event loop. All times are seconds.

    Every call may raise BackendTimeout (nothing happened), OutcomeUnknown (no answer came, so it may have happened) or
    another BackendError. Each takes a *timeout* for the whole call, the client's by default.

    >>> client = AsyncClient.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", max_deliveries=3, result_ttl=600)
    >>> message_id = await queue.write({"to": "ada"}, shard_key="acme")
    >>> delivery = await queue.read(block=5)
    >>> delivery.payload
    {'to': 'ada'}
    >>> await delivery.ack()
    """

    def __init__(self, client: AsyncClient, state: QueueState) -> None:
        self._client: AsyncClient = client
        self.state = state
        self._codecs = client.codecs
        self._telemetry = client.telemetry_of(state)

    def __repr__(self) -> str:
        """The queue's name."""
        return f"AsyncQueue({self.name!r})"

    def _spread(self) -> None:
        """Become a queue with partitions: it was made as one, or found to be one."""
        from shardq.client.async_partitions import AsyncPartitionedQueue  # few programs have any

        self.__class__ = AsyncPartitionedQueue

    @property
    def client(self) -> AsyncClient:
        """The client that made this queue."""
        return self._client

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.state.keys.name

    @property
    def schedules(self) -> AsyncSchedules:
        """The schedules that users stored in the queue."""
        return AsyncSchedules(self)

    @overload
    async def write(
        self, payload: Call[T], *, shard_key: str | bytes, **options: Unpack[WriteOptions]
    ) -> AsyncJob[T]: ...
    @overload
    async def write(self, payload: Any, *, shard_key: str | bytes, **options: Unpack[WriteOptions]) -> Written: ...
    async def write(
        self,
        payload: Any,
        *,
        shard_key: str | bytes,
        delay: float | None = None,
        deadline: float | None = None,
        dedup_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        unique_key: str | None = None,
        on_conflict: OnConflict = "existing",
        timeout: float | None = None,
    ) -> Written:
        """Store one message and return its id. It is stored once, however often the connection breaks.

        The id of a call of a task is an `AsyncJob`, which knows the type of its result.

        *payload* is encoded by the client's codec. *shard_key*, usually the tenant's name, chooses the streams that the
        message may go to. A read delivers the message from *delay* seconds on and no more after *deadline* seconds,
        both from now. Within the queue's `dedup_window` a second write with the same *dedup_key* stores nothing and
        returns the first one's id. *headers* are delivered with the message. The id's `is_new` says whether the message
        was stored by this write, or was there already. By default both kinds of keys belong to their shard key: see the
        queue's `key_scope`.

        While a message with the same *unique_key* waits, is delayed or in flight, *on_conflict* decides: "existing"
        stores nothing and returns that one's id; "raise" raises UniqueConflict; "replace" gives that one this payload,
        shard key, deadline and headers, and with a *delay* it is due then instead (docs/unique.md).

        ConfigError (bad argument), CodecError (the payload cannot be encoded) and QueueFull (a bound of the queue is
        reached): nothing was written. OutcomeUnknown and DurabilityUnknown: the message may have been written.

        >>> message_id = await queue.write({"to": "ada"}, shard_key="acme", dedup_key="order-7")
        >>> again = await queue.write({"to": "ada"}, shard_key="acme", dedup_key="order-7")
        >>> again == message_id, again.is_new
        (True, False)
        """
        told = self._telemetry.begin_write() if watched() else None
        try:
            context = told.context if told is not None else None
            message = compose(
                self.state,
                self._codecs,
                payload,
                shard_key,
                delay,
                deadline,
                dedup_key,
                headers,
                unique_key,
                on_conflict,
                context,
            )
            message_id = await self._client.store(self.state, message, timeout)
        except BaseException as error:
            if told is not None:
                told.end(error)
            raise
        if told is not None:
            told.end(message_id)
        return AsyncJob.of(self, message_id, payload.returns) if isinstance(payload, Call) else message_id

    def job(self, task: Callee[T], message_id: str) -> AsyncJob[T]:
        """Return the job that a call of *task* became: its id is *message_id*, and nothing is asked of Redis.

        ConfigError if the id is no text.

        >>> from shardq.tasks import Tasks
        >>> @Tasks("jobs").task
        ... def total(numbers: list[int]) -> int:
        ...     return sum(numbers)
        >>> job = queue.job(total, "1732150000000-42-7")
        >>> job.id
        '1732150000000-42-7'
        """
        return AsyncJob.of(self, text("message_id", message_id), returns_of(task))

    async def write_many(
        self, messages: Iterable[Message | tuple[Any, str | bytes]], *, timeout: float | None = None
    ) -> list[Written]:
        """Store many messages in few round trips and return their ids in order.

        Each of *messages* is a `Message` or a pair (payload, shard key). All are checked before the first is sent. When
        a part of them failed, PartlyWritten has an id or an error for each. Those with a dedup key or unique key in
        common are as if they were written one after the other.

        >>> ids = await queue.write_many([("now", "acme"), Message("in a minute", "umbrella", delay=60)])
        >>> len(ids)
        2
        """
        with self._telemetry.writing(len(batch := messages_of(messages))) as told:
            composed = compose_all(self.state, self._codecs, batch, told.context)
            ids = await self._client.run(write_many(self.state, composed, timeout)) if composed else []
            told.wrote(ids)
            return ids

    async def read(
        self,
        *,
        block: float = 0.0,
        visibility_timeout: float | None = None,
        prefer_stream: int | None = None,
        ack: AsyncDelivery | Sequence[AsyncDelivery] | None = None,
        timeout: float | None = None,
    ) -> AsyncDelivery:
        """Return the next message, leased for *visibility_timeout* seconds (the queue's setting by default).

        While there is none, the call waits up to *block* seconds, then raises Empty. The stream *prefer_stream* is read
        first, but at most one turn ahead of its share.

        *ack* is a delivery, or several, of this queue and client. They are settled as done ahead of the read, in the
        same round trip, and do not wait for a message. One whose lease was lost, or whose message was cancelled, gets
        `lost`, and a line in the log; the read continues. A delivery that has its answer is not acked again, so after
        Empty or an error you may give the same delivery to the next read. An error means that the read has kept no
        message: what it was granted is given back.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> delivery = await queue.read(block=5)
        >>> delivery.payload, delivery.count
        ('hello', 1)
        >>> await queue.read(ack=delivery)
        Traceback (most recent call last):
            ...
        shardq.errors.Empty: queue 'jobs' had nothing to deliver for 0 s
        """
        found = await self._read(1, block, visibility_timeout, prefer_stream, timeout, ack, batch=False)
        if not found:
            raise self._empty(block)
        return found[0]

    def _empty(self, block: float) -> Empty:
        return Empty(f"queue {self.name!r} had nothing to deliver for {block:g} s")

    async def read_many(
        self,
        count: int,
        *,
        block: float = 0.0,
        visibility_timeout: float | None = None,
        prefer_stream: int | None = None,
        ack: AsyncDelivery | Sequence[AsyncDelivery] | None = None,
        timeout: float | None = None,
    ) -> list[AsyncDelivery]:
        """Return up to *count* messages (1 to 1,000), taken from the streams in turn.

        While there is none, the call waits up to *block* seconds for the first one. It returns [] when none came, where
        `read` raises Empty. *visibility_timeout*, *prefer_stream* and *ack* are those of `read`. ConfigError for a bad
        argument.

        >>> ids = await queue.write_many([("a", "acme"), ("b", "umbrella")])
        >>> sorted(each.payload for each in await queue.read_many(10, block=5))
        ['a', 'b']
        """
        return await self._read(
            checked_count(count), block, visibility_timeout, prefer_stream, timeout, ack, batch=True
        )

    async def _read(
        self,
        count: int,
        block: float,
        visibility: float | None,
        prefer: int | None,
        timeout: float | None,
        ack: AsyncDelivery | Sequence[AsyncDelivery] | None,
        *,
        batch: bool,
    ) -> list[AsyncDelivery]:
        if type(block) is not float or block != 0 or visibility is not None or prefer is not None:
            checked_wanted(block, visibility, prefer)
        settled, acks = to_ack(self, ack)
        outstanding = Outstanding()
        asked = (self.state, count, block, visibility, prefer, timeout, outstanding, acks)
        began = self._telemetry.begin() if watched() else None
        try:
            if (look := fast_read(*asked)) is not None:
                rows = await self._client.look(look)
                if rows is not None:
                    if acks is not None:
                        settled[0]._note(lost=False)
                    if began is not None:
                        self._telemetry.looked(rows, acks.last if acks else (), began, batch=batch)
                    return delivered(AsyncDelivery, rows, self)
            try:
                rows = await self._client.run(read(*asked, look if look and look.made else None))
            finally:
                note_answers(settled, acks, self._telemetry, began)
        except asyncio.CancelledError:
            # Give back the messages of earlier calls of this read, and the leases of the call whose reply is now lost.
            if outstanding.holder or outstanding.rows:
                self._client._run_in_background(give_back_all(self.state, outstanding, self.state.until()))
            raise
        except Exception as error:
            self._telemetry.read_failed(began, error)
            raise
        if began is not None:
            self._telemetry.read(rows, began, batch=batch)
        found = delivered(AsyncDelivery, rows, self)
        return found or await self._go_on(outstanding.left, count, visibility, prefer, timeout, ack, batch=batch)

    async def _go_on(self, left: float | None, count: int, *asked: Any, batch: bool) -> list[AsyncDelivery]:
        """Wait at all partitions for the seconds that are *left*, if the queue was given some during a read."""
        if left is None:
            return []
        self._spread()
        return await self._read(count, left, *asked, batch=batch)

    async def ack_many(
        self,
        deliveries: Sequence[AsyncDelivery],
        *,
        results: Sequence[Any] | None = None,
        timeout: float | None = None,
    ) -> list[AsyncDelivery]:
        """Settle many deliveries as done, in few round trips. Return those whose lease was lost, each once.

        *results*, as many, are kept as those of `AsyncDelivery.ack` are. A delivery that stands in the list twice
        counts once, as it stands first; so it does for `nack_many` and `reject_many`. ConfigError for deliveries of
        another queue, or other numbers of results.

        >>> ids = await queue.write_many([("a", "acme"), ("b", "umbrella")])
        >>> deliveries = await queue.read_many(10)
        >>> await queue.ack_many(deliveries, results=["done"] * len(deliveries))
        []
        """
        received = received_of(self.name, deliveries)
        if results is not None:
            await self._keep(deliveries, results, timeout)
        found: settle.Results = {}
        op = settle.ack(self.state, measured(deliveries), timeout, found)
        return await self._settle_many("ack", deliveries, received, op, found)

    async def nack_many(
        self,
        deliveries: Sequence[AsyncDelivery],
        *,
        delay: float | Sequence[float] = 0.0,
        error: Problem | Sequence[Problem] = "",
        counted: bool = True,
        timeout: float | None = None,
    ) -> list[AsyncDelivery]:
        """Give many deliveries back, as `AsyncDelivery.nack` does. Return those whose lease was lost.

        *delay* (seconds) and *error* are one value for all, or a list or tuple with one value for each. Unless they are
        *counted*, these deliveries were none, and do not bring a message closer to its `max_deliveries`; then each
        needs an *error*, which says why. The call takes few round trips. ConfigError for deliveries of another queue,
        or a bad argument.

        >>> ids = await queue.write_many([("a", "acme"), ("b", "umbrella")])
        >>> await queue.nack_many(await queue.read_many(10), delay=30, error="no connection")
        []
        >>> stats = await queue.stats()
        >>> stats.delayed
        2
        """
        received = received_of(self.name, deliveries)
        checked_each("delay", delay, len(deliveries))
        checked_each("error", error, len(deliveries))
        found: settle.Results = {}
        op = settle.nack(self.state, measured(deliveries), delay, error, timeout, found, counted=counted)
        return await self._settle_many("nack", deliveries, received, op, found)

    async def reject_many(
        self, deliveries: Sequence[AsyncDelivery], reason: Problem | Sequence[Problem], *, timeout: float | None = None
    ) -> list[AsyncDelivery]:
        """Move many deliveries to the dead letters in few round trips. Return those whose lease was lost.

        *reason* is one for all, or a list or tuple with one for each. ConfigError for deliveries of another queue, or a
        bad argument.

        >>> ids = await queue.write_many([("a", "acme"), ("b", "umbrella")])
        >>> await queue.reject_many(await queue.read_many(10), "unknown format")
        []
        >>> sorted(each.payload for each in await queue.dead())
        ['a', 'b']
        """
        received = received_of(self.name, deliveries)
        checked_each("reason", reason, len(deliveries))
        found: settle.Results = {}
        op = settle.reject(self.state, measured(deliveries), reason, timeout, found)
        return await self._settle_many("reject", deliveries, received, op, found)

    @overload
    async def cancel(
        self, message_id: str, *, by: str | None = None, note: str | None = None, timeout: float | None = None
    ) -> Cancelled: ...
    @overload
    async def cancel(
        self,
        message_id: Where,
        *,
        rate: float | None = None,
        limit: int | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> AsyncAction: ...
    async def cancel(
        self,
        message_id: str | Where,
        *,
        rate: float | None = None,
        limit: int | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> Cancelled | AsyncAction:
        """Remove a message that waits or is delayed: "removed". For one that is being worked on it returns "in flight".

        For a dead letter it returns "dead", and the letter stays until it is redriven or deleted. The holder of a
        message in flight learns of the cancel: its next extend or ack raises MessageCancelled. *by* and *note* say in
        the journal who asked for it and why, as of `pause`. MessageNotFound if the message neither waits, nor is
        delayed, in flight or dead.

        By a `Where` begin an action on all that wait, are delayed or in flight and that it selects; arguments as of
        `redrive`.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> await queue.cancel(message_id)
        'removed'
        >>> action = await queue.cancel(Where(tenant="acme", older_than=3600), note="asked for by the customer")
        >>> status = await action.wait()
        >>> status.state, status.done
        ('done', 0)
        """
        if isinstance(message_id, Where):
            return await self._begin("cancel", message_id, rate, limit, by, note, timeout)
        if rate is not None or limit is not None:
            raise ConfigError("rate and limit are for a Where, not for a message that is named")
        return await self._client.run(cancel.cancel(self.state, message_id, timeout, Who(by, note)))

    async def result(self, message_id: str, *, timeout: float | None = None) -> Any:
        """Return the result of a message, as soon as it is done, but wait at most *timeout* seconds (docs/results.md).

        *timeout* is by default the client's; with 0 the call only looks. All waits of a client on this queue share one
        connection, and continue while Redis does not answer. ResultPending if the message is not done by then, or
        BackendTimeout if Redis gives no answer then. NoResult if it has no result and will have none; MessageDead if it
        became a dead letter. CodecError if this client cannot decode the result; ConfigError if the queue keeps no
        results, and QueueMissing if there is no such queue.

        >>> message_id = await queue.write("6 * 7", shard_key="acme")
        >>> delivery = await queue.read()
        >>> await delivery.ack(result=42)
        >>> await queue.result(message_id, timeout=5)
        42
        """
        found = await self._client.run(result(self.state, message_id, timeout))
        return self._codecs.decode(found.tag, found.body)

    async def status(self, message_id: str, *, timeout: float | None = None) -> MessageStatus:
        """Tell where a message is: waiting (about how many before it), held back, delayed, in flight, done or unknown.

        *message_id* is what `write` returned. The call changes nothing and costs about the same whatever the queue
        holds; `MessageStatus` says what is known in each state. A message that was settled is unknown, unless its
        result is kept. QueueMissing if there is no such queue, ConfigError if the id is none.

        >>> message_id = await queue.write("hello", shard_key="acme", delay=60)
        >>> status = await queue.status(message_id)
        >>> status.state, status.shard_key, status.until > status.time
        ('delayed', 'acme', True)
        """
        return await self._client.run(inspect.status.status(self.state, message_id, timeout))

    async def peek(
        self,
        count: int = 10,
        *,
        shard_key: str | bytes | None = None,
        stream: int | None = None,
        state: PeekState = "waiting",
        payloads: bool = False,
        after: str | None = None,
        timeout: float | None = None,
    ) -> PeekedPage:
        """Look at up to *count* messages (1 to 1,000) in the order in which they would be delivered. It only reads.

        The messages are those of one *state*, of the tenant *shard_key*, or of one *stream*; all by default. They come
        without payloads unless *payloads* is true. Continue with *after*, the `cursor` of a page, until that is None.

        - "waiting": messages in the streams, then those held back. For one stream this is the order of reads of one
          message, if nothing else happens. Several streams each give one message in turn, from the shared read offset
          on; messages that are let in or come due meanwhile take turns, too, and a batch takes several of a stream
          together. For a tenant the streams are those of its shard: messages that it wrote before it had that shard are
          found by stream. With *stream* no held back messages are listed.
        - "held_back": of one shard key after the other, each in the order of writing.
        - "delayed": by due time. "in_flight": by the end of the lease. "dead": the oldest dead letter first.

        In these other states *stream* means where the message was stored. Messages that came due, or whose lease ended,
        are listed there until a read takes them back, with the state "waiting". Entries of a legacy stream that were
        never read are not listed. Each call to Redis looks at about 100 messages, so a page is not of one instant, and
        a message that moves meanwhile may be missed or come twice. QueueMissing if there is no such queue; ConfigError
        for a bad argument.

        >>> ids = await queue.write_many([("a", "acme"), ("b", "umbrella")])
        >>> page = await queue.peek(shard_key="acme", payloads=True)
        >>> [(each.state, each.payload) for each in page.messages]
        [('waiting', 'a')]
        """
        found = await self._client.run(
            inspect.peek.peek(
                self.state, count, shard_key, stream, state, payloads=payloads, after=after, timeout=timeout
            )
        )
        for each in found.messages:
            each.read_with(self._codecs)
        return found

    async def _settle_many(
        self,
        verb: str,
        deliveries: Sequence[AsyncDelivery],
        received: Sequence[Received],
        op: Op[list[settle.Settled]],
        found: settle.Results,
    ) -> list[AsyncDelivery]:
        """Run *op*, and note how each delivery ended; if it fails, how those did that had their answer by then."""
        try:
            with self._telemetry.settling(verb, received):
                results = await self._client.run(op)
                if verb != "ack":
                    self._telemetry.note_dead(list(found.values()).count(settle.Settled.DEAD))
        except BaseException:
            known = [each for each in deliveries if each.received.token in found]
            note_results(known, [found[each.received.token] for each in known])
            raise
        return note_results(deliveries, results)

    async def _keep(self, deliveries: Sequence[AsyncDelivery], results: Sequence[Any], timeout: float | None) -> None:
        if deliveries:
            await self._client.run(keep(self.state, results_of(self, deliveries, results), timeout))

    async def _settle(self, verb: str, item: Settle, timeout: float | None) -> settle.Settled:
        state = self.state
        coalescer = settles_of(state, verb)
        until = state.clock.monotonic() + state.timeout if timeout is None else state.until(timeout)
        if not watched():
            settled = await self._client.share(coalescer, item, until)
            return settled if settled is OK and not state.unsure else noted(state, item, settled)
        with self._telemetry.settling(verb, [item.delivery]):
            settled = noted(state, item, await self._client.share(coalescer, item, until))
            self._telemetry.note_dead(int(settled is settle.Settled.DEAD))
            return settled
