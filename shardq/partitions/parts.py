"""What one client knows of the partitions of a queue: its map, a state of each, and whose turn it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from shardq.codec import Codecs
from shardq.errors import ConfigError, QueueMissing, ShardqError
from shardq.model import QueueConfig
from shardq.model.partitions import Partitions, map_of
from shardq.model.shares import check_shares, shared
from shardq.ops.queue.opening import create, find_queue, missing
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import ask
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.partitions.homes import home
from shardq.partitions.map import PartitionMap
from shardq.partitions.placing import Slots, placed
from shardq.partitions.turns import Turns
from shardq.sharding import key_bytes

T = TypeVar("T")
MakeState: TypeAlias = Callable[[QueueState, int, str], QueueState]
"""Makes the state of a partition: of the queue of this state, its number and its name."""

_opening = Lock()
"""All callers of one client share what it knows: its turns, and its stands."""


class Parts:
    """The partitions of the queue of *head*, by the map that was *found*. Threads share it; `lock` guards `turns`.

    `codecs` read what messages carry, and `whole` is the state of the queue as its users have it.
    """

    def __init__(self, head: QueueState, found: PartitionMap, make: MakeState, codecs: Codecs) -> None:
        name = head.keys.name
        self.whole, self.codecs, self._parents = head, codecs, head.config.parents
        self.map = found
        self.states = tuple([make(head, number, found.name_of(name, number)) for number in range(found.read)])
        self.turns = Turns(found.read, head.clock.monotonic)
        self.stands: Any = None  # the client's blocked reads at the partitions, once somebody waits
        self.lock = Lock()

    def forked(self) -> None:
        """Begin anew in a child process: a thread of the parent may have held the lock."""
        self.lock = Lock()

    def forget(self) -> None:
        """Forget all: the queue is gone. The next call looks it up anew."""
        self.whole.parts = None
        self.whole.forget()

    def number_of(self, shard_key: str | bytes) -> int:
        """Return the number of the partition that messages of this shard key are written to.

        Where the queue has parents, all children of one have one home: what limits a parent is exact there.
        """
        if self._parents:
            name = key_bytes(shard_key)
            shard_key = name.split(b"/", 1)[0] or name
        return home(shard_key, self.map.written)

    def home_of(self, shard_key: str | bytes) -> QueueState:
        """Return the state of the partition that messages of this shard key are written to."""
        return self.states[self.number_of(shard_key)]

    def of(self, number: int) -> QueueState:
        """Return the state of partition *number*. ConfigError if there is none."""
        if number >= len(self.states):
            raise ConfigError(f"queue {self.states[0].keys.name!r} has no partition {number}: it is gone")
        return self.states[number]

    def in_each(
        self, numbers: Sequence[int], op: Callable[[QueueState, Sequence[int]], Op[Sequence[T]]]
    ) -> Op[list[T]]:
        """Run *op* once on each partition that *numbers* names, for the indexes of these, all at once.

        It returns a result for each index. Return all in their order; raise the error of the first.
        """
        dealt: dict[int, list[int]] = {}
        for at, number in enumerate(numbers):
            dealt.setdefault(number, []).append(at)
        ops = [op(self.of(number), every) for number, every in dealt.items()]
        found: dict[int, T] = {}
        for every, some in zip(dealt.values(), all_of((yield from run_together(ops))), strict=True):
            found.update(zip(every, some, strict=True))
        return [found[at] for at in range(len(numbers))]

    def everywhere(self, op: Callable[[QueueState], Op[T]]) -> Op[list[T]]:
        """Run an operation on each partition, at once. Return what each returned; raise the error of the first."""
        return all_of((yield from run_together([op(state) for state in self.states])))


def numbers_of(deliveries: Iterable[Any]) -> list[int]:
    """Return the numbers of the partitions of *deliveries*; of one that was read from the head alone, 0."""
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
            if not (yield from _is_seen(head, until)):
                return Parts(head, PartitionMap(), lambda state, *_: state, codecs)
        elif not (yield from find_queue(head, until)):
            if not head.creates:
                raise missing(head)
            yield from _create(head, make, codecs, until)
        found = PartitionMap.parse(map_of(head.config.partitions))
        with _opening:
            if head.parts is None:  # another thread may have been here
                parts = Parts(head, found, make, codecs)
                head.coalescers.pop("write", None)
                head.parts = parts
    opened: Parts = head.parts
    return opened


def _is_seen(head: QueueState, until: float) -> Op[bool]:
    """Return whether the queue is there. Its settings are known then: to see them takes no right to change any."""
    seen = yield from outcome_of(sight(head, until))
    if isinstance(seen, QueueMissing):
        return False
    if isinstance(seen, ShardqError):
        raise seen
    if not head.epoch:
        head.know(dataclasses.replace(seen.view, epoch=""))
    return True


def _create(head: QueueState, make: MakeState, codecs: Codecs, until: float) -> Op[None]:
    """Create the partitions, and then the queue, whose map names them: so whoever sees the map finds them all."""
    config, name = head.requested, head.keys.name
    wanted = int(config.partitions)
    if wanted > 1:
        check_settings(config, wanted)
    slots = (
        Slots.of_reply((yield from ask(head, "CLUSTER", "SLOTS", key=head.keys.meta, until=until)))
        if (head.cluster)
        else Slots([])
    )
    found = PartitionMap(wanted, placed(name, wanted, slots))
    parts = Parts(head, found, make, codecs)
    for state in parts.states[1:]:
        state.requested = shared(config, state.number, wanted)
    all_of((yield from run_together([create(state, until) for state in parts.states[1:]])))
    head.requested = replace(config, partitions=Partitions.parse(found.text) if wanted > 1 else 1)
    yield from create(head, until)


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
