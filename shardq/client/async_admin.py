"""The methods of a queue for operators and autoscalers, for asyncio (`make twins` makes the one for threads).

They are about its numbers, settings, shards and dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from shardq.arguments import flag
from shardq.codec import Codecs
from shardq.errors import ConfigError
from shardq.model import (
    ActionStatus,
    Controls,
    DeadLetter,
    JournalPage,
    Limits,
    Plan,
    Purged,
    QueueConfig,
    QueueStats,
    Tenant,
    Where,
)
from shardq.model.dead_letter import letters_of
from shardq.model.failure import Failure
from shardq.model.minute import Minute
from shardq.model.outlook import Outlook
from shardq.model.partitions import Partition
from shardq.model.verdict import Verdict
from shardq.model.worker_status import WorkerStatus
from shardq.ops import inspect, operate
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.who import Who
from shardq.ops.read.read import checked_count

if TYPE_CHECKING:
    from shardq.assignment import Assignment
    from shardq.client.async_action import AsyncAction
    from shardq.model.action import ActionKind
    from shardq.ops.inspect.tenants import Order
    from shardq.ops.operate.actions import Running

T = TypeVar("T")


class AsyncRunner(Protocol):
    """The part of a client that a queue uses."""

    async def run(self, op: Op[T]) -> T:
        """Run one operation, and return its result."""

    def state_of_part(self, head: QueueState, number: int, name: str) -> QueueState:
        """Return a state of a partition."""


class AsyncQueueAdmin:
    """The part of `AsyncQueue` that operators and autoscalers need. Every call may raise what `AsyncQueue` says."""

    state: QueueState
    """For the parts of shardq: the client's knowledge of the queue."""
    _client: AsyncRunner
    _codecs: Codecs

    async def len(self, *, timeout: float | None = None) -> int:
        """Return how many messages ask for work: backlog + in flight. O(1).

        QueueMissing if there is no such queue, so that a mistyped name is no empty queue. A client that has settings
        for the queue gets 0 then, since its first write creates it.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> await queue.len()
        1
        """
        return await self._client.run(inspect.stats.length(self.state, timeout))

    async def stats(self, *, timeout: float | None = None) -> QueueStats:
        """Return the queue's numbers at one instant.

        QueueMissing if there is no such queue; all are zero to a client that has settings for it, as of `len`.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> stats = await queue.stats()
        >>> stats.backlog, stats.in_flight, stats.acked
        (1, 0, 1)
        """
        return await self._client.run(inspect.stats.statistics(self.state, timeout))

    async def failures(self, *, timeout: float | None = None) -> list[Failure]:
        """Return what fails, in groups of one task, one class of error and one way to fail; at most 200.

        The worst come first: groups with most failed tries in the last 10 minutes; of equal ones, the group that failed
        last. QueueMissing if there is no such queue; [] to a client that has settings for it, as of `len`.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> delivery = await queue.read()
        >>> await delivery.nack(error=TimeoutError("no answer"))
        True
        >>> [(each.error_type, each.retried) for each in await queue.failures()]
        [('TimeoutError', 1)]
        """
        return await self._client.run(inspect.failures.failures(self.state, timeout))

    async def outlook(self, shard_key: str | bytes | None = None, *, timeout: float | None = None) -> Outlook:
        """Return what becomes of what waits: for what, when it is served, and what would help (docs/outlook.md).

        It takes few calls, however much waits: where there are many shard keys, it looks at some. One *shard_key* (of a
        queue with `parents`: a parent) that is asked for is among `tenants` in any case, and what would help it among
        `helps`. QueueMissing if there is no such queue; ConfigError for a bad shard key.

        >>> message_id = await queue.write("hello", shard_key="acme", delay=60)
        >>> outlook = await queue.outlook("acme")
        >>> outlook.waits, outlook.reasons["delay"], outlook.drains
        (1, 1, 'empty')
        """
        return await self._client.run(inspect.outlook.outlook(self.state, shard_key, timeout))

    async def verdict(self, *, timeout: float | None = None) -> Verdict:
        """Return how the queue is, in one sentence (docs/outlook.md).

        Rules are tried in order, and the first that holds speaks. QueueMissing if there is no such queue.

        >>> verdict = await queue.verdict()
        >>> verdict.severity, verdict.kind
        ('good', 'idle')
        """
        return await self._client.run(inspect.outlook.verdict(self.state, timeout))

    async def workers(self, *, timeout: float | None = None) -> list[WorkerStatus]:
        """Return the queue's workers as they last told of themselves, each about every 5 s: those that work first.

        A worker that was silent for 30 s is "gone", and after an hour it is forgotten. Programs that read without
        `Worker` or `AsyncWorker` are not among them, nor are workers of versions before this call. QueueMissing if
        there is no such queue.

        >>> [(each.host, each.state, each.busy) for each in await queue.workers()]
        []
        """
        return await self._client.run(inspect.beats.workers(self.state, timeout))

    async def history(self, minutes: int = 60, *, timeout: float | None = None) -> list[Minute]:
        """Return what the queue did in the last *minutes* (1 to 480), the oldest first.

        A minute in which no worker was heard is missing. QueueMissing if there is no such queue.

        >>> [(each.at, each.done, each.oldest_age) for each in await queue.history(10)]
        []
        """
        return await self._client.run(inspect.beats.history(self.state, minutes, timeout))

    @overload
    async def purge(self, *, by: str | None = None, note: str | None = None, timeout: float | None = None) -> int: ...
    @overload
    async def purge(
        self,
        *,
        shard_key: str | bytes,
        in_flight: bool = False,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> Purged: ...
    async def purge(
        self,
        *,
        shard_key: str | bytes | None = None,
        in_flight: bool = False,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> int | Purged:
        """Remove every message that waits or is delayed, and return how many. Messages in flight and dead letters stay.

        With a *shard_key* (or parent: with all its children) remove what that one has, dead letters and dedup keys
        included, and return a `Purged`; all that others have stays as it is. It is about messages that there are when
        it begins. Those in flight stay, too, unless *in_flight* says to cancel them: then they are not delivered again.
        Results of messages that are done cannot be found by their shard key: they end by `result_ttl`.

        The journal says who asked for it: *by*, by default this client, and why: *note*. PartlyDone when the call
        failed halfway; QueueMissing if there is no such queue.

        >>> ids = await queue.write_many([("a", "acme"), ("b", "umbrella"), ("c", "umbrella")])
        >>> purged = await queue.purge(shard_key="umbrella", note="contract ended")
        >>> purged.waiting, purged.left_in_flight
        (2, 0)
        >>> await queue.purge()
        1
        """
        who = Who(by, note)
        if shard_key is not None:
            return await self._client.run(operate.purging.purge_of(self.state, shard_key, in_flight, timeout, who))
        if flag("in_flight", in_flight):
            raise ConfigError("in_flight needs a shard_key: messages in flight of the whole queue stay")
        return await self._client.run(operate.queues.purge(self.state, timeout, who))

    async def delete(self, *, expected: int | None = 0, timeout: float | None = None) -> int:
        """Delete the queue, its settings and what it holds. Return how many messages that was.

        QueueNotEmpty if it holds another number of messages than *expected* (waiting, delayed, in flight, and dead
        letters); None expects any. Bindings to the queue stay, until `unbind_gone` of a client removes them. A client
        that has settings for the queue creates it again when it next uses it, so stop its writers first. Unless none
        are *expected*, OutcomeUnknown says, too, that the queue is gone after a try that got no answer: then nobody
        knows how many it held.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> await queue.delete()
        Traceback (most recent call last):
            ...
        shardq.errors.QueueNotEmpty: ...
        >>> await queue.delete(expected=1)
        1
        """
        return await self._client.run(operate.queues.delete(self.state, expected, timeout))

    async def resize(
        self, streams: int | None = None, *, partitions: int | None = None, timeout: float | None = None
    ) -> tuple[int, int]:
        """Change the number of *streams* (1 to 4,096) or of *partitions* (1 to 64) while the queue is used.

        Return how many are read, and how many are written to. When there are fewer, those above the new number are read
        until they are empty.

        A change of partitions takes 5.5 seconds more than its calls: until then all clients know of it
        (docs/partitions.md). If it ends by an error, call it again: it continues. Partitions above the new number are
        removed an hour after the last write, or after the `dedup_window` if that is longer. ConfigError if another
        client changes the partitions meanwhile.

        >>> await queue.resize(streams=128)
        (128, 128)
        """
        if (streams is None) == (partitions is None):
            raise ConfigError("resize changes the number of streams or of partitions: name one of both")
        if streams is not None:
            return await self._client.run(operate.queues.resize(self.state, streams, timeout))
        from shardq.partitions.resize import resize  # few queues have any

        return await self._client.run(resize(self.state, self._client.state_of_part, partitions or 0, timeout))

    async def partitions(self, *, timeout: float | None = None) -> list[Partition]:
        """Return the partitions of the queue, in the order of their numbers: where each is, and its numbers.

        A queue that is not spread has one. QueueMissing if there is no such queue.

        >>> [(each.number, each.is_written) for each in await queue.partitions()]
        [(0, True)]
        """
        from shardq.partitions.listed import listed  # few queues have any

        return await self._client.run(listed(self.state, self._client.state_of_part, timeout))

    async def assign(
        self, names: Iterable[str | bytes], *, max_overlap: int | None = None, timeout: float | None = None
    ) -> Assignment:
        """Store a shard for each of *names* (shard keys). Any two stored shards share at most *max_overlap* streams.

        A shard key that has a stored shard keeps it; all others stay with the shard that hashing deals them.
        *max_overlap* is by default what it was before, at first 1. Either all names get a shard or none does, and all
        clients follow. Return the assignment after that. ConfigError when there is no room for these shards.

        >>> assignment = await queue.assign(["acme", "umbrella"])
        >>> len({*assignment["acme"]} & {*assignment["umbrella"]}) <= 1
        True
        """
        return await self._client.run(operate.assign.assign(self.state, names, max_overlap, timeout))

    async def unassign(self, names: Iterable[str | bytes] | None = None, *, timeout: float | None = None) -> Assignment:
        """Remove the stored shards of *names*, or all if None: hashing deals these shard keys their shards again.

        Their messages that wait stay where they are. Return the assignment after that. QueueMissing if there is no such
        queue.

        >>> assignment = await queue.assign(["acme", "umbrella"])
        >>> assignment = await queue.unassign(["acme"])
        >>> "acme" in assignment, "umbrella" in assignment
        (False, True)
        """
        return await self._client.run(operate.assign.unassign(self.state, names, timeout))

    async def assignment(self, *, timeout: float | None = None) -> Assignment:
        """Return which shard keys have a stored shard, and which streams are in it.

        QueueMissing if there is no such queue; ConfigError if another program has damaged the stored assignment.

        >>> len(await queue.assignment())
        0
        """
        return await self._client.run(operate.assign.assignment(self.state, timeout))

    async def declare(self, *, timeout: float | None = None) -> QueueConfig:
        """Create the queue if it does not exist, with this client's settings for it, and return the queue's settings.

        Writes and reads of a client with settings do so by themselves. Calls that change a queue, as `set_limits`, do
        not. ConfigError if *on_mismatch* of `AsyncClient.queue` is "raise" and the queue has other settings.

        >>> config = await queue.declare()
        >>> config.max_deliveries, config.result_ttl
        (3, 600.0)
        """
        return await self._client.run(operate.declare.declare(self.state, timeout))

    async def settings(self, *, timeout: float | None = None) -> QueueConfig:
        """Return the queue's settings as they are now. QueueMissing if there is no such queue.

        >>> config = await queue.settings()
        >>> config.max_deliveries, config.visibility_timeout
        (3, 30.0)
        """
        return await self._client.run(operate.queues.settings(self.state, timeout))

    async def configure(
        self, *, by: str | None = None, note: str | None = None, timeout: float | None = None, **settings: Any
    ) -> QueueConfig:
        """Change settings of the queue for all its clients (see `QueueConfig`). Return its settings after that.

        *by* and *note* say in the journal who asked for it and why, as of `pause`.

        QueueMissing if there is no such queue. ConfigError for an unknown or a bad setting; then nothing is changed.

        >>> config = await queue.configure(max_len=50_000, note="for the sale")
        >>> config.max_len
        50000
        """
        return await self._client.run(operate.queues.configure(self.state, settings, timeout, Who(by, note)))

    async def weights(self, *, timeout: float | None = None) -> dict[str | bytes, int]:
        """Return the shard keys (or parents) whose weight is not 1, with their weights.

        QueueMissing if there is no such queue.

        >>> await queue.set_weights({"acme": 3})
        {'acme': 3}
        >>> await queue.weights()
        {'acme': 3}
        """
        return await self._client.run(operate.weights.weights(self.state, timeout))

    async def set_weights(
        self,
        changes: Mapping[str | bytes, int],
        *,
        seconds: float | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> dict[str | bytes, int]:
        """Give shard keys (or parents) a weight in the admission window. Return all weights after that.

        While others wait, a shard key of weight 3 gets three times the share of one of weight 1; with `max_in_flight`
        it may have three times as many in flight. A weight is a whole number from 1, which every shard key has by
        default, to 100. At most 1,000 shard keys can be given one at once. Weights count from the next read on, for all
        clients. After *seconds* (at most 366 days) they are 1 again, whatever they were before; without, they stay.
        *by* and *note* are kept with them and in the journal, as of `pause`. QueueMissing if there is no such queue;
        PartlyDone if a call failed after some had theirs.

        >>> await queue.set_weights({"acme": 3, "umbrella": 2}, seconds=3600)
        {'acme': 3, 'umbrella': 2}
        >>> await queue.set_weights({"umbrella": 1})
        {'acme': 3}
        """
        return await self._client.run(operate.weights.set_weights(self.state, changes, timeout, seconds, Who(by, note)))

    async def limits(self, *, timeout: float | None = None) -> dict[str | bytes, Limits | str]:
        """Return the shard keys (or parents) that have limits of their own, and these, or the name of their plan.

        QueueMissing if there is no such queue.

        >>> await queue.set_limits({"acme": Limits(rate=10)})
        >>> await queue.limits()
        {'acme': Limits(max_in_flight=None, rate=10.0, burst=None)}
        """
        found = await self._client.run(operate.controls.own_controls(self.state, timeout))
        return {key: each.limits for key, each in found.limits.items()}

    async def controls(self, shard_key: str | bytes | None = None, *, timeout: float | None = None) -> Controls:
        """Return all pauses, limits and weights that somebody gave, each with its end, who gave it, since when and why.

        Plans are there, too, since limits may name one. Where nobody gave any, that is two short calls. Of one
        *shard_key* it takes two calls, however many others have some; the pause of the whole queue is there as well.
        QueueMissing if there is no such queue; ConfigError for a bad shard key.

        >>> await queue.pause("acme", by="ada", note="their database is down")
        >>> controls = await queue.controls("acme")
        >>> controls.paused["acme"].by, controls.paused["acme"].note
        ('ada', 'their database is down')
        """
        return await self._client.run(operate.controls.controls(self.state, shard_key, timeout))

    async def set_limits(
        self,
        changes: Mapping[str | bytes, Limits | str],
        *,
        seconds: float | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give shard keys (or parents) limits of their own, or put them on a plan.

        `{"acct-7": Limits(max_in_flight=3, rate=10), "acct-8": "gold"}`: a text names a plan (see `set_plan`), and
        `Limits()` is what the queue's settings say again. At most 10,000 shard keys can be given others at once. They
        count from the next call on, for all clients; messages that waited for a lower limit come at once. Messages
        beyond wait in the overflow of their shard key, where they delay nobody.

        After *seconds* (at most 366 days) by the server's clock the limits end by themselves: the shard key has no
        limits of its own then, and what it had before does not come back. Messages that waited come at once. Without
        *seconds* they stay. *by* and *note* are kept with them and in the journal, as of `pause`. ConfigError if the
        queue is not fair (`window`), for a child where it has parents, and for a plan that there is not; QueueMissing
        if there is no such queue.

        >>> await queue.set_plan("gold", max_in_flight=20)
        >>> await queue.set_limits({"acme": Limits(max_in_flight=3, rate=10), "umbrella": "gold"})
        >>> await queue.set_limits({"acme": Limits()}, note="back to what the queue's settings say")
        >>> await queue.limits()
        {'umbrella': 'gold'}
        """
        await self._client.run(operate.limits.set_limits(self.state, changes, timeout, seconds, Who(by, note)))

    async def plans(self, *, timeout: float | None = None) -> dict[str, Plan]:
        """Return the plans by name, each with how many `tenants` are on it. QueueMissing if there is no such queue.

        >>> await queue.set_plan("gold", rate=50, weight=2)
        >>> await queue.set_limits({"acme": "gold"})
        >>> plans = await queue.plans()
        >>> plans["gold"].rate, plans["gold"].tenants
        (50.0, 1)
        """
        return await self._client.run(operate.plans.plans(self.state, timeout))

    async def set_plan(
        self,
        name: str,
        *,
        max_in_flight: int | None = None,
        rate: float | None = None,
        burst: int | None = None,
        weight: int = 1,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Make or change a plan: limits and a weight for all shard keys (or parents) that `set_limits` puts on it.

        The numbers are as in `Limits` and `set_weights`; a weight of its own that is not 1 stands before the plan's.
        A change counts from the next call on for all of its tenants, however many they are. There may be 64 plans. *by*
        and *note* say in the journal who asked for it and why, as of `pause`.
        ConfigError for a bad name (1 to 64 letters, digits and ``. _ -``) or number, and if the queue is not fair
        (`window`); QueueMissing if there is no such queue.

        >>> await queue.set_plan("gold", max_in_flight=20, rate=50, burst=100)
        """
        plan = Plan(max_in_flight=max_in_flight, rate=rate, burst=burst, weight=weight)
        await self._client.run(operate.plans.set_plan(self.state, name, plan, timeout, Who(by, note)))

    async def delete_plan(
        self, name: str, *, by: str | None = None, note: str | None = None, timeout: float | None = None
    ) -> None:
        """Delete a plan. ConfigError if there is none, or tenants are on it; QueueMissing if there is no such queue.

        *by* and *note* say in the journal who asked for it and why, as of `pause`.

        >>> await queue.set_plan("gold", rate=50)
        >>> await queue.delete_plan("gold")
        """
        await self._client.run(operate.plans.delete_plan(self.state, name, timeout, Who(by, note)))

    async def paused(self, *, timeout: float | None = None) -> dict[str | bytes | None, float]:
        """Return which shard keys are paused, and None if the whole queue is, each with the end.

        An end is the server's time in seconds since 1970, or `math.inf`. QueueMissing if there is no such queue.

        >>> await queue.pause("acme")
        >>> await queue.paused()
        {'acme': inf}
        """
        found = await self._client.run(operate.controls.own_controls(self.state, timeout))
        return {key: each.until for key, each in found.paused.items()}

    async def pause(
        self,
        shard_key: str | bytes | None = None,
        *,
        seconds: float | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Deliver nothing of a shard key (of a parent: of all its children), or of the whole queue if None.

        It ends after *seconds* (at most 366 days) by the server's clock, or with `resume`. Writes continue, and so does
        what is in flight. Readers pass over what is paused and do not ask again and again.

        *by* (1 to 100 characters, by default this client's name) says who asks for it, and *note* (at most 200) why.
        `controls` and the journal show them. ConfigError for one that is longer or has control characters, and for a
        shard key as in `set_limits`; QueueMissing if there is no such queue.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> await queue.pause("acme", seconds=600, by="ada", note="their database is down")
        >>> await queue.read_many(1)
        []
        """
        await self._client.run(operate.limits.pause(self.state, shard_key, seconds, timeout, Who(by, note)))

    async def resume(
        self,
        shard_key: str | bytes | None = None,
        *,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """End the pause of a shard key, or that of the whole queue if None. Blocked readers are woken.

        A shard key that was paused by itself stays so when that of the queue ends. *by* and *note* are as of `pause`.
        QueueMissing if there is no such queue.

        >>> await queue.pause()
        >>> await queue.resume(note="the deploy is over")
        >>> await queue.paused()
        {}
        """
        await self._client.run(operate.limits.resume(self.state, shard_key, timeout, Who(by, note)))

    async def tenants(
        self, order: Order = "backlog", *, limit: int = 20, start: int = 0, timeout: float | None = None
    ) -> list[Tenant]:
        """Return who has most in the queue: shard keys, or parents with their children (`Tenant` says what).

        *order* is "backlog", "oldest" (the longest wait), "in_flight", "held_back", "time" (most work received
        beyond the others'), or the most use of a bound: "dedup" (dedup and unique keys), "dead", "results" (in
        bytes). Those from rank *start* on, at most *limit* (1 to 1,000). It reads the accounts of all tenants, a
        thousand in a call, so the numbers are not of one instant; for "oldest" only if more than 1,000 wait outside of
        the streams. ConfigError for a queue without a window, which knows its shard keys only by what they use of
        bounds; QueueMissing if there is no such queue.

        >>> ids = await queue.write_many([("a", "acme"), ("b", "umbrella"), ("c", "umbrella")])
        >>> [(each.shard_key, each.backlog) for each in await queue.tenants(limit=10)]
        [('umbrella', 2), ('acme', 1)]
        """
        return await self._client.run(inspect.tenants.tenants(self.state, order, limit, start, timeout))

    async def tenant(self, shard_key: str | bytes, *, neighbours: bool = False, timeout: float | None = None) -> Tenant:
        """Return what one shard key or parent has in the queue, in three calls to Redis.

        With *neighbours* it has those that share most streams with it. All is zero for one that has nothing.
        ConfigError and QueueMissing as of `tenants`.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> tenant = await queue.tenant("acme", neighbours=True)
        >>> tenant.backlog, tenant.weight, tenant.neighbours
        (1, 1, ())
        """
        return await self._client.run(inspect.tenants.tenant(self.state, shard_key, timeout, neighbours=neighbours))

    async def dead(self, count: int = 100, *, after: str = "-", timeout: float | None = None) -> list[DeadLetter]:
        """Return up to *count* dead letters (1 to 1,000), oldest first, that stand after the entry id *after*.

        QueueMissing if there is no such queue; [] to a client that has settings for it, as of `len`.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> delivery = await queue.read()
        >>> await delivery.reject("unknown format")
        >>> [(each.payload, each.reason) for each in await queue.dead()]
        [('hello', 'unknown format')]
        """
        letters = await self._client.run(
            inspect.dead_letters.dead_letters(self.state, checked_count(count), after, timeout)
        )
        return [letter.read_with(self._codecs) for letter in letters]

    @overload
    async def delete_dead(
        self,
        letters: Where,
        *,
        rate: float | None = None,
        limit: int | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> AsyncAction: ...
    @overload
    async def delete_dead(
        self,
        letters: Sequence[DeadLetter] | None = None,
        *,
        ids: Iterable[str] | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> int: ...
    async def delete_dead(
        self,
        letters: Sequence[DeadLetter] | Where | None = None,
        *,
        ids: Iterable[str] | None = None,
        rate: float | None = None,
        limit: int | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> int | AsyncAction:
        """Delete these dead letters for good, *letters* or those with these message *ids*. Return how many there were.

        Those that others have moved or deleted are passed over. *by* and *note* say in the journal who asked for it
        and why, as of `pause`. PartlyDone when the call failed halfway. ConfigError if nothing is named, or letters and
        ids at once; QueueMissing if there is no such queue.

        By a `Where` begin an action that deletes those that it selects, as `redrive` does; only that can have a *rate*
        and a *limit*.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> delivery = await queue.read()
        >>> await delivery.reject("unknown format")
        >>> await queue.delete_dead(ids=[message_id])
        1
        """
        if isinstance(letters, Where):
            if ids is not None:
                raise ConfigError("a Where says which dead letters: leave out ids")
            return await self._begin("delete_dead", letters, rate, limit, by, note, timeout)
        if rate is not None or limit is not None:
            raise ConfigError("letters and ids are all deleted: rate and limit are for a Where")
        deletion = operate.dead_letters.deletion(self.state, letters, ids, timeout, Who(by, note))
        return await self._client.run(deletion)

    async def journal(self, count: int = 1000, *, after: int = 0, timeout: float | None = None) -> JournalPage:
        """Return up to *count* events (1 to 10,000) of the queue's journal after position *after* (docs/journal.md).

        Continue after the page's `position`. The page says how many events were lost: the setting `journal` bounds how
        many are kept. QueueMissing if there is no such queue.

        >>> config = await queue.configure(journal=1_000)
        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> page = await queue.journal(100)
        >>> [(each.kind, each.shard_key) for each in page.events]
        [('configured', None), ('written', 'acme')]
        """
        return await self._client.run(inspect.journal.journal(self.state, count, after, timeout))

    @overload
    async def redrive(
        self,
        letters: Where,
        *,
        rate: float | None = None,
        limit: int | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> AsyncAction: ...
    @overload
    async def redrive(
        self,
        letters: Sequence[DeadLetter],
        *,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> int: ...
    async def redrive(
        self,
        letters: Sequence[DeadLetter] | Where,
        *,
        rate: float | None = None,
        limit: int | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> int | AsyncAction:
        """Move dead letters back into the queue, with their ids and headers. Return how many were moved.

        Those that others have moved or deleted are passed over. No more are moved than `max_len` has room for, by the
        rule of writes: QueueFull if that is none, and PartlyDone if it is some of them. The text says how many were
        left. *by* and *note* say in the journal who asked for it (by default this client) and why.

        By a `Where` begin an action on those that it selects, the oldest first, and return it: it runs while
        somebody waits for it (docs/actions.md). *rate* is how many a second, evenly (None: as fast as it can), *limit*
        how many at most. It is about the letters that there are when it begins, each once. One action runs at a time on
        a queue: ConfigError if another does.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> delivery = await queue.read()
        >>> await delivery.reject("unknown format")
        >>> await queue.redrive(await queue.dead())
        1
        >>> action = await queue.redrive(Where(error="TimeoutError"), rate=100, note="fixed by 1.4")
        >>> status = await action.wait()
        >>> status.state
        'done'
        """
        if isinstance(letters, Where):
            return await self._begin("redrive", letters, rate, limit, by, note, timeout)
        if rate is not None or limit is not None:
            raise ConfigError("letters that are named are all moved: rate and limit are for a Where")
        return await self._client.run(operate.queues.redrive(self.state, letters_of(letters), timeout, Who(by, note)))

    async def retry_now(
        self,
        where: Where,
        *,
        rate: float | None = None,
        limit: int | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> AsyncAction:
        """Begin an action that makes messages deliverable at once that are delayed after a try that failed.

        Arguments as of `redrive`, and each of these messages once; deliveries so far stay counted. ConfigError if
        another action is under way; QueueMissing if there is no such queue.

        >>> message_id = await queue.write("hello", shard_key="acme")
        >>> delivery = await queue.read()
        >>> await delivery.nack(delay=3600, error="no connection")
        True
        >>> action = await queue.retry_now(Where(tenant="acme"))
        >>> status = await action.wait()
        >>> status.done
        1
        """
        return await self._begin("retry_now", where, rate, limit, by, note, timeout)

    async def actions(self, *, timeout: float | None = None) -> list[ActionStatus]:
        """Return the actions of the queue, the newest first: what is under way, and what was on the last day.

        At most 20. One that is "abandoned" has no process any more, and can be taken over. QueueMissing if there is no
        such queue.

        >>> action = await queue.redrive(Where(task="mail.send"))
        >>> [(each.kind, each.state, each.done) for each in await queue.actions()]
        [('redrive', 'running', 0)]
        """
        return await self._client.run(operate.actions.actions(self.state, timeout))

    async def stop_action(
        self, action_id: str, *, by: str | None = None, note: str | None = None, timeout: float | None = None
    ) -> ActionStatus:
        """Stop an action in any process: it ends with its next piece. ConfigError if there is none of this id.

        *by* and *note* say in the journal who asked for it (by default this client) and why.

        >>> action = await queue.redrive(Where(task="mail.send"))
        >>> status = await queue.stop_action(action.id, note="wrong task")
        >>> status.state
        'stopping'
        """
        return await self._client.run(operate.actions.stop(self.state, action_id, timeout, Who(by, note)))

    async def take_over(self, action_id: str, *, timeout: float | None = None) -> AsyncAction:
        """Return an action to continue in this process: one that is abandoned, failed or stopped. Wait for it.

        The process that had it does nothing more of it. ConfigError if somebody works on it, it is done, or another
        one is under way.

        >>> action = await queue.redrive(Where(task="mail.send"))
        >>> await queue.take_over(action.id)
        Traceback (most recent call last):
            ...
        shardq.errors.ConfigError: somebody works on action ...: it can be taken over when it is silent for 30 s
        """
        running = await self._client.run(operate.actions.take_over(self.state, action_id, timeout))
        return _action(self._client, running)

    async def _begin(
        self,
        kind: ActionKind,
        where: Where,
        rate: float | None,
        limit: int | None,
        by: str | None,
        note: str | None,
        timeout: float | None,
    ) -> AsyncAction:
        op = operate.actions.begin(self.state, kind, where, rate, limit, Who(by, note), timeout)
        return _action(self._client, await self._client.run(op))


def _action(runner: AsyncRunner, running: Running) -> AsyncAction:
    from shardq.client.async_action import AsyncAction  # few programs have any

    return AsyncAction(runner, running)
