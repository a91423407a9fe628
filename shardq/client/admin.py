# Generated from async_admin.py by tests/house/twins.py. Do not change it: change that, run `make twins`.
"""The methods of a queue for operators and autoscalers, for threads.

They are about its numbers, settings, shards and dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shardq.codec import Codecs
from shardq.model import DeadLetter, JournalPage, Limits, Plan, QueueConfig, QueueStats, Tenant
from shardq.model.dead_letter import letters_of
from shardq.ops import inspect, operate
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.read.read import checked_count

if TYPE_CHECKING:
    from shardq.ops.inspect.tenants import Order
    from shardq.planner import Assignment

T = TypeVar("T")


class Runner(Protocol):
    """The part of a client that a queue uses."""

    def run(self, op: Op[T]) -> T:
        """Run one operation, and return its result."""


class QueueAdmin:
    """The part of `Queue` that operators and autoscalers need. Every call may raise what `Queue` says."""

    state: QueueState
    _client: Runner
    _codecs: Codecs

    def len(self, *, timeout: float | None = None) -> int:
        """Return how many messages ask for work: backlog + in flight. O(1).

        QueueMissing if there is no such queue, so that a mistyped name is no empty queue. A client that has settings
        for the queue gets 0 then, since its first write creates it.
        """
        return self._client.run(inspect.stats.length(self.state, timeout))

    def stats(self, *, timeout: float | None = None) -> QueueStats:
        """Return the queue's numbers at one instant.

        QueueMissing if there is no such queue; all are zero to a client that has settings for it, as of `len`.
        """
        return self._client.run(inspect.stats.statistics(self.state, timeout))

    def purge(self, *, timeout: float | None = None) -> int:
        """Remove every message that waits or is delayed, and return how many. Messages in flight and dead letters stay.

        PartlyDone when the call failed halfway.
        """
        return self._client.run(operate.queues.purge(self.state, timeout))

    def delete(self, *, expected: int | None = 0, timeout: float | None = None) -> int:
        """Delete the queue, its settings and what it holds. Return how many messages that was.

        QueueNotEmpty if it holds another number of messages than *expected* (waiting, delayed, in flight, and dead
        letters); None expects any. Bindings to the queue stay, until `unbind_gone` of a client removes them. A client
        that has settings for the queue creates it again when it next uses it, so stop its writers first. Unless none
        are *expected*, OutcomeUnknown says, too, that the queue is gone after a try that got no answer: then nobody
        knows how many it held.
        """
        return self._client.run(operate.queues.delete(self.state, expected, timeout))

    def resize(self, streams: int, *, timeout: float | None = None) -> tuple[int, int]:
        """Change the number of streams (1 to 4,096) while the queue is used. Return (streams read, streams written to).

        When there are fewer, the streams above the new number are read until they are empty.
        """
        return self._client.run(operate.queues.resize(self.state, streams, timeout))

    def assign(
        self, names: Iterable[str | bytes], *, max_overlap: int | None = None, timeout: float | None = None
    ) -> Assignment:
        """Store a shard for each of *names* (shard keys). Any two stored shards share at most *max_overlap* streams.

        A shard key that has a stored shard keeps it; all others stay with the shard that hashing deals them.
        *max_overlap* is by default what it was before, at first 1. Either all names get a shard or none does, and all
        clients follow. Return the assignment after that. ConfigError when there is no room for so many shards.
        """
        return self._client.run(operate.assign.assign(self.state, names, max_overlap, timeout))

    def unassign(self, names: Iterable[str | bytes] | None = None, *, timeout: float | None = None) -> Assignment:
        """Remove the stored shards of *names*, or all if None: hashing deals these shard keys their shards again.

        Their messages that wait stay where they are. Return the assignment after that.
        """
        return self._client.run(operate.assign.unassign(self.state, names, timeout))

    def assignment(self, *, timeout: float | None = None) -> Assignment:
        """Return which shard keys have a stored shard, and which streams are in it.

        QueueMissing if there is no such queue; ConfigError if another program has damaged the stored assignment.
        """
        return self._client.run(operate.assign.assignment(self.state, timeout))

    def declare(self, *, timeout: float | None = None) -> QueueConfig:
        """Create the queue if it does not exist, with this client's settings for it, and return the queue's settings.

        Writes and reads of a client with settings do so by themselves. Calls that change a queue, as `set_limits`, do
        not.
        """
        return self._client.run(operate.declare.declare(self.state, timeout))

    def settings(self, *, timeout: float | None = None) -> QueueConfig:
        """Return the queue's settings as they are now. QueueMissing if there is no such queue."""
        return self._client.run(operate.queues.settings(self.state, timeout))

    def configure(self, *, timeout: float | None = None, **settings: Any) -> QueueConfig:
        """Change settings of the queue for all its clients (see `QueueConfig`). Return its settings after that.

        QueueMissing if there is no such queue. ConfigError for an unknown or a bad setting; then nothing is changed.
        """
        return self._client.run(operate.queues.configure(self.state, settings, timeout))

    def weights(self, *, timeout: float | None = None) -> dict[str | bytes, int]:
        """Return the shard keys (or parents) whose weight is not 1, with their weights.

        QueueMissing if there is no such queue.
        """
        return self._client.run(operate.weights.weights(self.state, timeout))

    def set_weights(
        self, changes: Mapping[str | bytes, int], *, timeout: float | None = None
    ) -> dict[str | bytes, int]:
        """Give shard keys (or parents) a weight in the admission window. Return all weights after that.

        While others wait, a shard key of weight 3 gets three times the share of one of weight 1; with `max_in_flight`
        it may have three times as many in flight. A weight is a whole number from 1, which every shard key has by
        default, to 100. At most 1,000 shard keys can be given one at once. Weights count from the next read on, for all
        clients. QueueMissing if there is no such queue; PartlyDone if a call failed after some had theirs.
        """
        return self._client.run(operate.weights.set_weights(self.state, changes, timeout))

    def limits(self, *, timeout: float | None = None) -> dict[str | bytes, Limits | str]:
        """Return the shard keys (or parents) that have limits of their own, and these, or the name of their plan.

        QueueMissing if there is no such queue.
        """
        found = self._client.run(operate.limits.controls(self.state, timeout))
        return dict(found.limits)

    def set_limits(self, changes: Mapping[str | bytes, Limits | str], *, timeout: float | None = None) -> None:
        """Give shard keys (or parents) limits of their own, or put them on a plan.

        `{"acct-7": Limits(max_in_flight=3, rate=10), "acct-8": "gold"}`: a text names a plan (see `set_plan`), and
        `Limits()` is what the queue's settings say again. At most 10,000 shard keys can be given others at once. They
        count from the next call on, for all clients; messages that waited for a lower limit come at once. Messages
        beyond wait in the overflow of their shard key, where they delay nobody. ConfigError if the queue is not fair
        (`window`), for a child where it has parents, and for a plan that there is not; QueueMissing if there is no such
        queue.
        """
        self._client.run(operate.limits.set_limits(self.state, changes, timeout))

    def plans(self, *, timeout: float | None = None) -> dict[str, Plan]:
        """Return the plans by name, each with how many `tenants` are on it. QueueMissing if there is no such queue."""
        return self._client.run(operate.plans.plans(self.state, timeout))

    def set_plan(
        self,
        name: str,
        *,
        max_in_flight: int | None = None,
        rate: float | None = None,
        burst: int | None = None,
        weight: int = 1,
        timeout: float | None = None,
    ) -> None:
        """Make or change a plan: limits and a weight for all shard keys (or parents) that `set_limits` puts on it.

        The numbers are as in `Limits` and `set_weights`; a weight of its own that is not 1 stands before the plan's.
        A change counts from the next call on for all of its tenants, however many they are. There may be 64 plans.
        ConfigError for a bad name (1 to 64 letters, digits and ``. _ -``) or number, and if the queue is not fair
        (`window`); QueueMissing if there is no such queue.
        """
        plan = Plan(max_in_flight=max_in_flight, rate=rate, burst=burst, weight=weight)
        self._client.run(operate.plans.set_plan(self.state, name, plan, timeout))

    def delete_plan(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a plan. ConfigError if there is none, or tenants are on it; QueueMissing if there is no such queue."""
        self._client.run(operate.plans.delete_plan(self.state, name, timeout))

    def paused(self, *, timeout: float | None = None) -> dict[str | bytes | None, float]:
        """Return which shard keys are paused, and None if the whole queue is, each with the end.

        An end is the server's time in seconds since 1970, or `math.inf`. QueueMissing if there is no such queue.
        """
        found = self._client.run(operate.limits.controls(self.state, timeout))
        return dict(found.paused)

    def pause(
        self, shard_key: str | bytes | None = None, *, seconds: float | None = None, timeout: float | None = None
    ) -> None:
        """Deliver nothing of a shard key (of a parent: of all its children), or of the whole queue if None.

        It ends after *seconds* (at most 366 days) by the server's clock, or with `resume`. Writes go on, and so does
        what is in flight. Readers pass over what is paused and do not ask again and again. ConfigError for a shard
        key as in `set_limits`; QueueMissing if there is no such queue.
        """
        self._client.run(operate.limits.pause(self.state, shard_key, seconds, timeout))

    def resume(self, shard_key: str | bytes | None = None, *, timeout: float | None = None) -> None:
        """Go on with a shard key that is paused, or with the whole queue if None. Blocked readers are woken.

        A shard key that was paused by itself stays so when the queue goes on. QueueMissing if there is no such queue.
        """
        self._client.run(operate.limits.resume(self.state, shard_key, timeout))

    def tenants(
        self, order: Order = "backlog", *, limit: int = 20, start: int = 0, timeout: float | None = None
    ) -> list[Tenant]:
        """Return who has most in the queue: shard keys, or parents with their children (`Tenant` says what).

        *order* is "backlog", "oldest" (the longest wait), "in_flight", "held_back", "time" (most work received
        beyond the others'), or the most use of a bound: "dedup" (dedup and unique keys), "dead", "results" (in
        bytes). Those from rank *start* on, at most *limit* (1 to 1,000). It reads the accounts of all tenants in pages,
        each of which takes the server less than 2 ms, so a million tenants take seconds, and the numbers are not of one
        instant. ConfigError for a queue without a window, which knows its shard keys only by what they use of bounds;
        QueueMissing if there is no such queue.
        """
        return self._client.run(inspect.tenants.tenants(self.state, order, limit, start, timeout))

    def tenant(self, shard_key: str | bytes, *, timeout: float | None = None) -> Tenant:
        """Return what one shard key or parent has in the queue, with the `neighbours` that share most streams with it.

        All is zero for one that has nothing. Errors as of `tenants`.
        """
        return self._client.run(inspect.tenants.tenant(self.state, shard_key, timeout))

    def dead(self, count: int = 100, *, after: str = "-", timeout: float | None = None) -> list[DeadLetter]:
        """Return up to *count* dead letters (1 to 1,000), oldest first, that stand after the entry id *after*.

        QueueMissing if there is no such queue; [] to a client that has settings for it, as of `len`.
        """
        letters = self._client.run(inspect.dead_letters.dead_letters(self.state, checked_count(count), after, timeout))
        return [letter.read_with(self._codecs) for letter in letters]

    def delete_dead(
        self,
        letters: Sequence[DeadLetter] | None = None,
        *,
        ids: Iterable[str] | None = None,
        shard_key: str | bytes | None = None,
        reason: str | None = None,
        error: str | None = None,
        older_than: float | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Delete dead letters for good, and return how many.

        Name *letters*, or message *ids*, or say which: those of a *shard_key*, with this text in their *reason* or
        their last *error*, that died at least *older_than* seconds ago (0: all). All that is said must hold; at most
        *limit* are deleted, the oldest first. PartlyDone when the call failed halfway. ConfigError if nothing is said,
        or several ways at once; QueueMissing if there is no such queue.
        """
        chosen = operate.dead_letters.Filter(shard_key, reason, error, older_than)
        return self._client.run(operate.dead_letters.deletion(self.state, letters, ids, chosen, limit, timeout))

    def journal(self, count: int = 1000, *, after: int = 0, timeout: float | None = None) -> JournalPage:
        """Return up to *count* events (1 to 10,000) of the queue's journal after position *after* (docs/journal.md).

        Go on after the page's `position`. The page says how many events were lost: the setting `journal` bounds how
        many are kept. QueueMissing if there is no such queue.
        """
        return self._client.run(inspect.journal.journal(self.state, count, after, timeout))

    def redrive(self, letters: Sequence[DeadLetter], *, timeout: float | None = None) -> int:
        """Move dead letters back into the queue, with their ids and headers. Return how many were moved.

        Those that others have moved or deleted are passed over. No more are moved than `max_len` has room for, by the
        rule of writes: QueueFull if that is none, and PartlyDone if it is some of them. The text says how many were
        left.
        """
        return self._client.run(operate.queues.redrive(self.state, letters_of(letters), timeout))
