"""One client's view of the partitions of a queue: its map, a state of each, and whose turn it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as replaced
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from shardq.codec import Codecs
from shardq.errors import ConfigError, QueueMissing, ShardqError
from shardq.model import QueueConfig
from shardq.model.partitions import Partitions, map_of
from shardq.model.shares import check_shares, shared
from shardq.ops.queue.opening import create, find_queue, missing
from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.write import Result
from shardq.partitions import writes
from shardq.partitions.asking import MAX_AGE, ask_map, is_seen
from shardq.partitions.away import Away
from shardq.partitions.changes import all_changed
from shardq.partitions.homes import home
from shardq.partitions.knows import must_ask
from shardq.partitions.map import PartitionMap
from shardq.partitions.placing import HashSlots, placed
from shardq.partitions.turns import BESIDE_QUIET, PartitionTurns
from shardq.platforms import after_fork
from shardq.protocol.keys import QueueKeys
from shardq.sharding import key_bytes

T = TypeVar("T")
MakeState: TypeAlias = Callable[[QueueState, int, str], QueueState]
"""Makes the state of a partition: from the queue's state, its number and its name."""

Ask: TypeAlias = Callable[[Op[None]], object]
"""Runs an operation beside the calls of a client, which do not wait for it."""

_opening = Lock()
"""All callers of one client share what it knows: its turns, and its stands."""


def _forked() -> None:
    global _opening  # a thread of the parent may have held it
    _opening = Lock()


after_fork(_forked)


class Common:
    """The common part of the partitions of one queue of one client under all maps, also while the queue is gone.

    `stands` are the client's blocked reads at the partitions, once somebody waits; `asks` has the map asked for. `held`
    are messages that came late. From local time `tidy_at` on, drained partitions are looked after next, and from
    `upkeep_at` on what is due in all, whose settings were looked up last for those of the queue in `kept_for`. `id` is
    that of the queue when it was seen last: one that was recreated has another.
    """

    def __init__(self, head: QueueState) -> None:
        self.lock = Lock()
        self.stands: Any = None
        self.held: list[Any] = []
        self.asks: Ask | None = None
        self.tidy_at = 0.0
        self.upkeep_at = head.clock.monotonic() + MAX_AGE
        self.kept_for = head.config
        self.id = head.view.id


class Parts:
    """The partitions of the queue of *head*, by the map that was *found*. Threads share it; `lock` guards `turns`.

    `codecs` read what messages carry, and `whole` is the state of the queue as its users have it. Another map makes
    another one of these, which knows what the one *before* knew of the partitions that stay, and has `left` by their
    numbers those that do not: they may still have deliveries of ours. `generation` says how many maps there have been.
    """

    def __init__(
        self, head: QueueState, found: PartitionMap, make: MakeState, codecs: Codecs, before: Parts | None = None
    ) -> None:
        name = head.keys.name
        self.whole, self.codecs, self._parents = head, codecs, head.config.parents
        self.make = make
        self.map = found
        if head.common is None:
            head.common = Common(head)
        self.common: Common = head.common
        known: tuple[QueueState, ...] = before.states if before else ()
        names = [found.name_of(name, number) for number in range(found.read)]
        kept = [at < len(known) and known[at].keys == QueueKeys(each) for at, each in enumerate(names)]
        self.states: tuple[QueueState, ...] = tuple(
            [known[at] if kept[at] else make(head, at, each) for at, each in enumerate(names)]
        )
        for state in self.states:
            state.whole = head
        self.left: dict[int, QueueState] = dict(before.left) if before else {}
        self.left |= {at: state for at, state in enumerate(known) if state not in self.states}
        self.turns: PartitionTurns = PartitionTurns(
            found.read,
            head.clock.monotonic,
            before.turns if before else None,
            kept,
            head.config.visibility_timeout,
            head.draw(1)[0] % BESIDE_QUIET,
        )
        self.away = Away(self.turns, found.read, head.clock.monotonic)
        self.generation = 0
        self._asked_at = self.seen_at = head.clock.monotonic()

    @property
    def lock(self) -> Lock:
        """The lock of the turns and the stands."""
        return self.common.lock

    @property
    def held(self) -> list[Any]:
        """The messages that came late, while nobody has taken them."""
        return self.common.held

    def forked(self) -> None:
        """Begin again in a child process: a thread of the parent may have held the lock."""
        self.common.lock, self.common.held = Lock(), []
        self.turns.out = frozenset()
        self.away = Away(self.turns, len(self.states), self.whole.clock.monotonic)

    def forget(self) -> None:
        """Forget which there are: the queue is gone. The next call looks it up again.

        Those who wait do so: a queue that is recreated has them follow it, since they are `common`.
        """
        self.whole.parts = None
        self.whole.forget()

    def fresh_for(self) -> float:
        """Return for how many seconds the map is new enough. An old one is asked for again in the background."""
        now = self.whole.clock.monotonic()
        if now - self._asked_at >= MAX_AGE:
            self._asked_at = now
            if self.common.asks is not None:
                self.common.asks(ask_map(self.whole, now + self.whole.timeout))
        return self._asked_at + MAX_AGE - now

    def is_seen(self) -> None:
        """Note that the map was seen as it is now."""
        self._asked_at = self.seen_at = self.whole.clock.monotonic()

    @property
    def is_old(self) -> bool:
        """Whether `resize` may have stored another map since this one was seen. A writer of keys asks for it."""
        return self.whole.clock.monotonic() - self.seen_at >= MAX_AGE

    @property
    def told(self) -> int:
        """The generation of the newest map that a partition knows: see lua/knows.lua."""
        return max([state.view.generation for state in self.states])

    def count_anew(self) -> None:
        """Forget which maps there have been: the queue was recreated, and its maps are counted from the beginning.

        By the count of the one before, a write of this client would pass for one by a newer map than it has.
        """
        self.generation = 0
        for state in self.states[1:]:
            state.know(replaced(state.view, epoch="", generation=0))

    def number_of(self, shard_key: str | bytes, written: int = 0) -> int:
        """Return the number of the partition that messages of this shard key are written to.

        It is by the map, or where another number is *written* to. Where the queue has parents, all children of one have
        one home: limits on a parent are exact there.
        """
        if self._parents:
            name = key_bytes(shard_key)
            shard_key = name.split(b"/", 1)[0] or name
        return home(shard_key, written or self.map.written)

    def home_of(self, shard_key: str | bytes) -> QueueState:
        """Return the state of the partition that messages of this shard key are written to."""
        self.fresh_for()
        number = self.number_of(shard_key)
        self.turns.forget(number)  # who asks is about to write, and its next read finds that
        return self.states[number]

    def others(self) -> list[int]:
        """Return by which other numbers of partitions a key may be known elsewhere than in its home; mostly by none."""
        if not self.map.others:
            return []
        known = self.whole.server_time
        now = 0.0 if known is None else known.ms + (self.whole.clock.monotonic() - known.at) * 1000
        return [number for number, until in self.map.others if until > now]

    def of(self, number: int) -> QueueState:
        """Return the state of partition *number*. ConfigError if there is none."""
        if number >= len(self.states):
            raise ConfigError(f"queue {self.states[0].keys.name!r} has no partition {number}: it is gone")
        return self.states[number]

    def at(self, number: int) -> QueueState:
        """Return the state of partition *number*, which has deliveries: it may be one that has left."""
        return self.states[number] if number < len(self.states) else self.left.get(number) or self.of(number)

    def in_each(
        self, numbers: Sequence[int], op: Callable[[QueueState, Sequence[int]], Op[Sequence[T]]]
    ) -> Op[list[T]]:
        """Run *op* once on each partition that *numbers* names, for the indexes of these, all at once.

        It returns a result for each index. Return all in their order; raise the error of the first.
        """
        dealt: dict[int, list[int]] = {}
        for at, number in enumerate(numbers):
            dealt.setdefault(number, []).append(at)
        ops = [op(self.at(number), every) for number, every in dealt.items()]
        found: dict[int, T] = {}
        for every, some in zip(dealt.values(), all_of((yield from run_together(ops))), strict=True):
            found.update(zip(every, some, strict=True))
        return [found[at] for at in range(len(numbers))]

    def newest(self) -> Op[Parts]:
        """Return the partitions by the map as it is now. QueueMissing if the queue is gone."""
        yield from ask_map(self.whole, self.whole.until())
        return self.whole.parts or self

    def everywhere(self, op: Callable[[QueueState], Op[T]]) -> Op[list[T]]:
        """Look by an operation at each partition, at once. Return what each said; raise the error of the first.

        One that was drained and is not there any more says nothing: the map may name it for a moment longer.
        """
        return all_of([each for _, each in (yield from self.outcomes(op))])

    def around(self, op: Callable[[QueueState], Op[T]]) -> Op[list[T]]:
        """Look at each partition as `everywhere` does, but pass over those that are gone: a reader sees the rest."""
        found = yield from self.outcomes(op)
        return all_of([each for number, each in found if number == 0 or not isinstance(each, QueueMissing)])

    def change(self, op: Callable[[QueueState], Op[T]], unknown: type[ShardqError] | tuple[()] = ()) -> Op[list[T]]:
        """Change each partition by an operation, at once. Return what each said, but those that said *unknown*.

        The map is asked for, since one that was just added would stay as it is. If one fails, the others are changed
        anyway, and the error says which: see `changes`. So the operation must do no harm where it was done.
        """
        parts = yield from self.newest()
        return all_changed(self.whole.keys.name, (yield from parts.outcomes(op)), unknown)

    def outcomes(self, op: Callable[[QueueState], Op[T]]) -> Op[list[tuple[int, T | ShardqError]]]:
        """Run an operation on each partition, at once. Return by their numbers what each returned, or its error.

        One that is not there any more, and to which nothing is written any more, is left out.
        """
        # A client that was idle would leave out what was added meanwhile.
        parts: Parts = (yield from self.newest()) if self.is_old else self.whole.parts or self
        states = parts.states
        found = [*enumerate((yield from run_together([op(state) for state in states])))]
        if any(isinstance(each, QueueMissing) for _, each in found[1:]):
            yield from ask_map(self.whole, self.whole.until())
            now: Parts = self.whole.parts or parts
            written = now.states[: now.map.written]
            found = [
                (number, each)
                for number, each in found
                if states[number] in written or not isinstance(each, QueueMissing)
            ]
        return found

    def unless_removed(self, state: QueueState, op: Op[T], nothing: T) -> Op[T]:
        """Run an operation on one partition. Return *nothing* if that was drained, and is not there any more."""
        try:
            return (yield from op)
        except QueueMissing:
            if state.number < self.map.written:
                raise
            return nothing

    def store(self, messages: Sequence[Outgoing], timeout: float | None) -> Op[list[Result]]:
        """Store many messages in their homes. Return for each its id, or the error with which its write ended."""
        return writes.store(self, messages, timeout)

    def store_in_turn(self, messages: Sequence[Outgoing], until: float, *, shared: bool = False) -> Op[list[Result]]:
        """Do as `store`, for what one call could have, without two calls at the same time: see `writes`."""
        return writes.store_in_turn(self, messages, until, shared=shared)

    def must_ask(self, messages: Sequence[Outgoing]) -> bool:
        """Return whether it must be asked first where these messages go: see `knows`."""
        return must_ask(self, messages)

    def deal_again(
        self, state: QueueState, messages: Sequence[Outgoing], results: list[Result], until: float
    ) -> Op[list[Result]]:
        """Deal those messages again that found no partition of this *state*: see `writes`."""
        return writes.deal_again(self.whole, state, messages, results, until)


def numbers_of(deliveries: Iterable[Any]) -> list[int]:
    """Return the numbers of the partitions of *deliveries*; for one that was read from the head alone, 0."""
    return [getattr(each, "partition", 0) for each in deliveries]


def listed(op: Op[T]) -> Op[list[T]]:
    """Return what *op* returns, in a list."""
    return [(yield from op)]


def all_of(outcomes: Sequence[T | ShardqError]) -> list[T]:
    """Return *outcomes* if all are results; else raise the first error."""
    found: list[T] = []
    for each in outcomes:
        if isinstance(each, ShardqError):
            raise each
        found.append(each)
    return found


def open_parts(head: QueueState, make: MakeState, codecs: Codecs, until: float, *, create: bool) -> Op[Parts]:
    """Return the partitions of a queue. To *create* is to make them with it if this client has settings for it.

    If the queue is there, its map counts. If it is not, and nobody creates it, the head stands for all of it: it says
    what a queue without partitions says. ConfigError for settings that a queue with partitions cannot have.
    """
    if head.parts is None:
        if not create:
            if not (yield from is_seen(head, until)):
                return Parts(head, PartitionMap(), lambda state, *_: state, codecs)
        elif not (yield from find_queue(head, until)):
            if not head.creates:
                raise missing(head)
            yield from _create(head, make, codecs, until)
        if head.parts is None:  # the queue has one alone
            learn(head, make, codecs, None)
    opened: Parts = head.parts
    return opened


def known_beside(head: QueueState, other: Parts, make: MakeState, codecs: Codecs) -> Parts:
    """Return the partitions of *head*, by the map that another client of this process knows. Nothing is asked for that.

    That one has deliveries of ours, or we of its. They may have been read by an older map than ours: then ours stays,
    and has `left` what that one has besides.
    """
    parts: Parts | None = head.parts
    if parts is None or (parts.map != other.map and other.seen_at > parts.seen_at):
        parts = head.parts = Parts(head, other.map, make, codecs, parts)
        parts.seen_at, parts.generation = other.seen_at, other.generation
    if parts.map != other.map or other.left:
        known = other.left | dict(enumerate(other.states))
        besides = {at: state for at, state in known.items() if at >= len(parts.states) and at not in parts.left}
        parts.left |= {at: make(head, at, state.keys.tag) for at, state in besides.items()}
    return parts


def learn(head: QueueState, make: MakeState, codecs: Codecs, asks: Ask | None) -> None:
    """Take the partitions that the queue is known to have for those that this client uses."""
    view = head.view  # read once, since another thread may replace it meanwhile
    found = PartitionMap.parse(map_of(view.config.partitions))
    with _opening:  # another thread may be here
        parts: Parts | None = head.parts
        if is_new := parts is None or parts.map != found:
            parts = Parts(head, found, make, codecs, parts)
        if view.id != parts.common.id:
            parts.common.id = view.id
            parts.count_anew()
        parts.generation = max(parts.generation, view.generation)
        with parts.lock:  # a reader may make the stands
            head.parts = parts
        parts.is_seen()
        parts.common.asks = asks or parts.common.asks
        if (met := head.coalescers.pop("write", None)) is not None:
            met.verb.deal()
    if is_new and parts.common.stands is not None:
        parts.common.stands.follow(parts)


def _create(head: QueueState, make: MakeState, codecs: Codecs, until: float) -> Op[None]:
    """Create the partitions, and then the queue, whose map names them: so a client that sees the map finds them all."""
    config, name = head.requested, head.keys.name
    wanted = int(config.partitions)
    if wanted > 1:
        check_settings(config, wanted)
    slots = yield from slots_of(head, until)
    found = PartitionMap(wanted, placed(name, wanted, slots))
    parts = Parts(head, found, make, codecs)
    for state in parts.states[1:]:
        state.requested = shared(config, state.number, wanted)
    all_of((yield from run_together([create(state, until) for state in parts.states[1:]])))
    head.requested = replace(config, partitions=Partitions.parse(found.text) if wanted > 1 else 1)
    yield from create(head, until)


def slots_of(head: QueueState, until: float) -> Op[HashSlots]:
    """Return which master has which slots; without a cluster one has all."""
    if not head.cluster:
        return HashSlots([])
    return HashSlots.of_reply((yield from ask(head, "CLUSTER", "SLOTS", key=head.keys.meta, until=until)))


def check_settings(config: QueueConfig, count: int) -> None:
    """ConfigError for settings that a queue with *count* partitions, more than one, cannot have."""
    if config.key_scope == "queue":
        raise ConfigError(
            'key_scope="queue" is not for a queue with partitions: what all shard keys share would lie in one of them'
        )
    if config.ttl is not None:
        raise ConfigError(
            "ttl is not for a queue with partitions: one that nobody uses would expire while the others live"
        )
    check_shares(config, count)
