"""Asks Redis for the numbers of queues: one `stats` a queue and second, however many threads want them.

The estimates of workers and of the past cost a few calls, and change slowly: they are asked for each 5 s, and only if
somebody wants them. A failure of these hides no other number.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from shardq.arguments import check_name
from shardq.client import Client
from shardq.clock import Clock
from shardq.errors import BackendError, ShardqError
from shardq.exporter.answers import HttpAnswer
from shardq.exporter.errors import Garbled, ToldError, is_refused
from shardq.exporter.policy import Numbers, numbers_of
from shardq.exporter.rates import WorkerRates
from shardq.exporter.server import Gate, ServerNode, ServerNumbers, node_of
from shardq.exporter.tenants import Tenants
from shardq.model.outlook import Outlook
from shardq.model.stats import QueueStats
from shardq.model.worker_status import WorkerStatus
from shardq.ops.inspect.outlook import facts_beside
from shardq.ops.inspect.stats import statistics
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.outlook.outlook import outlook_of
from shardq.outlook.together import statistics as statistics_of
from shardq.partitions.over import each_of, over

T = TypeVar("T")
log = logging.getLogger("shardq.exporter")
FRESH_SECONDS: Final = 1.0
"""Seconds for which the numbers of a queue count as those of now."""
SLOW_FRESH_SECONDS: Final = 5.0
"""Seconds for which that is so of what changes slowly: workers, drain time, the names of the queues."""
MAX_QUEUES: Final = 1000
"""Queues whose numbers are kept: those that were asked for last."""
FORGET_AFTER: Final = 300.0
"""Seconds after which a queue is forgotten that nobody asked for."""
MAX_STRANGERS: Final = 100
"""Names that are no known queue's, and are asked for in a second."""


class Poller:
    """Numbers of queues, each at most a second old. All threads may ask.

    `QueueMissing` and `BackendError` reach all who wait, and nothing is asked again before a second is over, whether it
    was answered or not. (At first a queue takes two calls: how many streams it has is not known before.)

    >>> from shardq.testing import fake_client
    >>> client = fake_client()
    >>> _ = client.queue("jobs", streams=4).write("payload", shard_key="acme")
    >>> Poller(client).numbers("jobs").load
    1
    """

    def __init__(self, client: Client, *, clock: Clock | None = None) -> None:
        self._client, self.clock = client, clock or client.clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Watched] = OrderedDict()
        self._strangers: OrderedDict[str, Watched] = OrderedDict()
        self._asked: list[float] = []
        self.server = ServerNumbers(client, self.clock)
        self._names = HttpAnswer(self._queues, SLOW_FRESH_SECONDS, self.clock)
        self._refused: dict[str, int] = {}
        self._refused_sum: int | None = None

    def numbers(self, queue: str) -> Numbers:
        """Return what is known of a queue. QueueMissing if there is none; BackendError if Redis does not say."""
        found = self.watched(queue)
        stats, past = found.stats.get(), found.past()
        numbers = numbers_of(stats, past.outlook if past else None)
        if past is None:
            return found.rates.told(numbers, None, ())
        return found.rates.told(numbers, past.outlook, past.workers, past.slots_each)

    def stats(self, queue: str, *, early: bool = False) -> QueueStats:
        """Return the numbers of a queue. Errors as of `numbers`. *early* says that something has just been written."""
        return self.watched(queue).stats.get(early=early)

    def partitions(self, queue: str) -> dict[str, QueueStats]:
        """Return the numbers of each partition, by its name in Redis; for any other queue those of itself.

        They are those that `stats` had last; for a queue that nobody has asked for there are none.
        """
        with self._lock:
            found = self._known.get(queue) or self._strangers.get(queue)
        if found is None:
            return {}
        parts = found.state.parts
        most = parts.map.read if parts else 1  # another map may have come since then
        return {parts.map.name_of(queue, at) if parts else queue: each for at, each in enumerate(found.parts[:most])}

    def outlook(self, queue: str) -> Outlook | None:
        """Return what becomes of what waits in a queue, at most 5 s old; None if that is not known."""
        past = self.past(queue)
        return past.outlook if past else None

    def past(self, queue: str) -> Past | None:
        """Return the outlook of a queue and what its workers tell, at most 5 s old; None if that is not known."""
        return self.watched(queue).past()

    def tenants(self, queue: str, most: int, *, is_hashed: bool = False) -> Tenants:
        """Return a look at the tenants of a queue; *most* of them have labels, and *is_hashed* hides their names."""
        found = self.watched(queue)
        return Tenants(found.ask, found.over, most, found.gate.patience, self.clock, is_hashed=is_hashed)

    def age(self, queue: str) -> float | None:
        """Return how many seconds ago the numbers of a queue were last told; None: never."""
        with self._lock:
            found = self._known.get(queue) or self._strangers.get(queue)
        return found.stats.age if found else None

    def is_ready(self) -> bool:
        """Say whether Redis answered in the last 5 s; it is asked if nobody asked it."""
        return self.server.is_ready()

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted, at most 5 s old. BackendError if Redis does not say."""
        return self._names.get()

    def nodes(self) -> list[ServerNode]:
        """Return the servers that have queues which somebody asked for, at most 5 s old."""
        with self._lock:
            known = [each.node for each in self._known.values() if each.gate.error is None]
            asked = list(dict.fromkeys([self.server.node, *known]))
        found: dict[str, ServerNode] = {}
        for each in asked:
            with contextlib.suppress(ShardqError):
                node = each.get()
                found[node.run_id] = node
        return [*found.values()]

    def refused(self, nodes: Sequence[ServerNode]) -> int:
        """Return how many writes full servers refused: never less than before, whichever servers answer.

        The count that one had before it was first looked at counts only if it was among the first of all.
        """
        with self._lock:
            is_first = self._refused_sum is None
            found = self._refused_sum or 0
            for each in nodes:
                if each.memory is not None:
                    before = self._refused.pop(each.run_id, 0 if is_first else each.memory.refused)
                    # A count that fell was set back.
                    found += each.memory.refused - (before if before <= each.memory.refused else 0)
                    self._refused[each.run_id] = each.memory.refused
            while len(self._refused) > MAX_QUEUES:
                del self._refused[next(iter(self._refused))]
            self._refused_sum = found
            return found

    def _queues(self) -> list[str]:
        try:
            with self.server.call():
                return self._client.queues(timeout=self.server.patience)
        except ShardqError as error:
            if is_refused(error):
                raise BackendError(
                    f"this user of Redis may not list the queues ({error.__cause__}): name those that it may read "
                    "(-q QUEUE), or give it the role observer"
                ) from error.__cause__
            raise

    def watched(self, queue: str) -> Watched:
        """Return what is kept of a queue. ConfigError for a bad name; BackendError for one of too many strangers."""
        self.server.begin()
        is_listed = self._is_kept(queue) or queue in self._listed()
        with self._lock:
            found = self._known.get(queue) or self._strangers.get(queue)
            if found is None:
                # One of its own: a client that may create the queue would see a missing one as empty.
                state = self._client.new_state(check_name(queue), {})
                found = Watched(self._client, state, self.server, self.clock, partial(self._know, queue))
                if is_listed:
                    self._known[queue] = found
                else:
                    self._count_stranger()
                    self._strangers[queue] = found
            found.asked_at = now = self.clock.monotonic()
            for table, most in ((self._known, MAX_QUEUES), (self._strangers, MAX_STRANGERS)):
                if queue in table:
                    table.move_to_end(queue)
                while len(table) > most or (table and now - next(iter(table.values())).asked_at > FORGET_AFTER):
                    table.popitem(last=False)
            return found

    def _is_kept(self, queue: str) -> bool:
        with self._lock:
            return queue in self._known or queue in self._strangers

    def _listed(self) -> Sequence[str]:
        """Return the names of all queues, as far as they are known: those of queues are no strangers' names."""
        with contextlib.suppress(ShardqError):
            self.server.require()
            return self._names.get()
        return self._names.value or ()

    def _know(self, queue: str, found: Watched) -> None:
        """Keep a queue as one that there is."""
        with self._lock:
            self._strangers.pop(queue, None)
            self._known.setdefault(queue, found)

    def _count_stranger(self) -> None:
        """Let no more names of strangers through to Redis than it can look up beside its work."""
        now = self.clock.monotonic()
        self._asked = [each for each in self._asked if now - each < FRESH_SECONDS]
        if len(self._asked) >= MAX_STRANGERS:
            raise ToldError(f"more than {MAX_STRANGERS} unknown queues were asked for in a second: ask again")
        self._asked.append(now)


class Past(NamedTuple):
    """The facts that are asked for each 5 s: the fate of waiting messages, and the workers' reports."""

    outlook: Outlook
    workers: tuple[WorkerStatus, ...]
    slots_each: float | None = None
    """Jobs that a worker may run at once: if none works, the number of those that were heard last; None: not known."""


class Watched:
    """One queue: the answers that are kept of it."""

    def __init__(
        self, client: Client, state: QueueState, server: ServerNumbers, clock: Clock, know: Callable[[Watched], None]
    ) -> None:
        self._client, self.state, self._know = client, state, know
        self.asked_at = 0.0
        # On a cluster each queue may lie on another node, and one that is away says nothing of the others.
        self.gate: Gate = Gate(clock, server) if state.cluster else server
        self.stats = HttpAnswer(self._ask_stats, FRESH_SECONDS, clock)
        self._past = HttpAnswer(self._ask_past, SLOW_FRESH_SECONDS, clock)
        self.node = HttpAnswer(self._ask_node, SLOW_FRESH_SECONDS, clock) if state.cluster else server.node
        self.parts: Sequence[QueueStats] = ()
        """The numbers of each partition, or of the queue alone; and those of the time before."""
        self._before: Sequence[QueueStats] = ()
        self.rates = WorkerRates(clock)
        self._garbled = set[str]()  # what could not be read when it was asked for last

    def past(self) -> Past | None:
        """Return what changes slowly; None if that cannot be said now."""
        try:
            return self._past.get()
        except ShardqError:
            return None

    def _ask_stats(self) -> QueueStats:
        before, patience = self.parts, self.gate.patience
        try:
            found = self.ask(self.each(lambda state: statistics(state, patience), looks=True), "statistics")
        except ShardqError as error:
            if is_refused(error):
                raise _unreadable(self.state.keys.name, error) from error.__cause__
            raise
        if not before:
            self._know(self)
        self._before, self.parts = before, found
        return statistics_of(found)

    def _ask_past(self) -> Past:
        now = self.stats.get()
        before = statistics_of(self._before) if self._before else None
        facts = self.ask(facts_beside(self.state, now, before, self.gate.patience), "facts_beside")
        last = facts.working or facts.workers
        slots = sum(each.slots for each in last) / len(last) if last else None
        return Past(outlook_of(facts), facts.working, slots)

    def each(self, op: Callable[[QueueState], Op[T]], *, looks: bool = False) -> Op[list[T]]:
        """Return what each partition says, or the queue alone."""
        return each_of(self.state, op, looks=looks)

    def over(self, op: Callable[[QueueState], Op[T]], together: Callable[[Sequence[T]], T]) -> Op[T]:
        """Return what the partitions say, together."""
        return over(self.state, op, together)

    def ask(self, op: Op[T], what: str) -> T:
        """Return what *op* finds, if Redis is there. Garbled if another program has made the queue's numbers none.

        *what* is the name of the operation: each is logged once when it cannot be read.
        """
        setattr(op, "__name__", what)  # noqa: B010 (of one that goes over partitions: a generator may be named)
        with self.gate.call():
            try:
                found = self._client.run(op)
            except ShardqError:
                raise
            except (ValueError, ArithmeticError, LookupError, TypeError) as error:
                if what not in self._garbled:
                    log.warning("the numbers of queue %r cannot be read: %r", self.state.keys.name, error)
                self._garbled.add(what)
                raise Garbled(f"the numbers of queue {self.state.keys.name!r} cannot be read") from None
        self._garbled.discard(what)
        return found

    def _ask_node(self) -> ServerNode:
        return self.ask(node_of(self.state.keys.meta, self.gate.patience, self.state.clock), "node_of")


def _unreadable(queue: str, error: ShardqError) -> BackendError:
    """Return the error for a queue that this user may not read: it names the role for programs that only look."""
    return BackendError(
        f"this user of Redis may not read queue {queue!r} ({error.__cause__}): it needs the role observer, and "
        f"`shardq server acl observer {queue}` prints the rights"
    )
