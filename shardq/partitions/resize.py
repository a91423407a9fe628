"""resize: more partitions, or fewer, while the queue is used.

A map that is old by `MAX_AGE` does no harm to who writes, since every partition in it is read. So two maps are stored,
with that time between them: the first has more to read; the second is written by. Both are stored only if nobody
changed the queue since it was looked at. One that died between them is called again, and continues.

A message with a key that goes by an old map is refused once one has gone by the newer (`knows`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from msgspec.structs import replace

from shardq.errors import ConfigError
from shardq.model.partitions import Partitions, check_partitions, map_of
from shardq.model.shares import SHARED_SETTINGS, WHOLE_FIELD
from shardq.ops.queue.change import Changed, change_queue, check_replicas
from shardq.ops.queue.opening import find_queue, log, require_queue
from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Sleep
from shardq.ops.queue.together import run_together
from shardq.partitions.asking import MAX_AGE
from shardq.partitions.furnish import furnish
from shardq.partitions.map import PartitionMap
from shardq.partitions.moving import move_home
from shardq.partitions.parts import MakeState, all_of, check_settings, slots_of
from shardq.partitions.placing import placed

PAUSE_SECONDS: Final = MAX_AGE + 0.5
"""Seconds between the two maps."""
ANNOUNCED_SECONDS: Final = 60.0
"""Seconds for which the first map says that there will be a second: until then no partition is removed."""
REMEMBERED_SECONDS: Final = 7 * 86_400.0
"""Seconds for which the former home of a shard key is remembered at least: messages with a unique key may wait so long.
"""


def resize(head: QueueState, make: MakeState, wanted: int, timeout: float | None = None) -> Op[tuple[int, int]]:
    """Write to *wanted* partitions from now on. Return how many are read, and how many are written to.

    Then stored schedules move to their homes. A partition that is gone is recreated, and one that was (`losses`) gets
    what the head has, if that came to nothing then.

    ConfigError if another client changes the partitions meanwhile.
    """
    check_partitions("partitions", wanted)
    yield from require_queue(head, head.until(timeout))
    found = map_in(head)
    if (count := max(found.read, wanted)) > 1:
        check_settings(head.config, count)
    if found.written != wanted:
        now, _ = yield from _times(head, head.until(timeout))
        if not _is_announced(found, wanted, now):
            found = yield from _announce(head, make, found, wanted, timeout)
        yield Sleep(PAUSE_SECONDS)
        yield from require_queue(head, head.until(timeout))
        if map_in(head).written != wanted:  # another one may have ended what this one began
            found = yield from _write_by(head, make, found, wanted, timeout)
    yield from _make_anew(head, make, timeout)
    if (parts := (head.whole or head).parts) is not None:
        yield from move_home(parts, timeout)
    return map_in(head).read, wanted


def _make_anew(head: QueueState, make: MakeState, timeout: float | None) -> Op[None]:
    """Make all partitions that are written to as the head is, and recreate those that are gone."""
    found, name = map_in(head), head.keys.name
    states = [make(head, number, found.name_of(name, number)) for number in range(1, found.written)]
    for state in states:
        if not (yield from find_queue(state, state.until(timeout))):
            log.warning("partition %d of queue %r was gone, and is created again", state.number, name)
        yield from furnish(head, state, found.read, timeout)


def map_in(head: QueueState) -> PartitionMap:
    """Return the map of the queue as it was seen last."""
    return PartitionMap.parse(map_of(head.config.partitions))


def _is_announced(found: PartitionMap, wanted: int, now: int) -> bool:
    number, until = found.towards or (0, 0)
    return found.read >= wanted and number == wanted and until > now


def _announce(
    head: QueueState, make: MakeState, found: PartitionMap, wanted: int, timeout: float | None
) -> Op[PartitionMap]:
    slots, until = (yield from slots_of(head, head.until(timeout))), head.until(timeout)
    salts = placed(head.keys.name, wanted, slots, found)
    now, _ = yield from _times(head, until)
    more = replace(found, salts=salts, towards=(wanted, now + round(ANNOUNCED_SECONDS * 1000)))

    def will_do(each: PartitionMap) -> bool:
        return each.written == wanted or _is_announced(each, wanted, now)

    return (yield from _store(head, make, found, more, timeout, will_do))


def _write_by(
    head: QueueState, make: MakeState, found: PartitionMap, wanted: int, timeout: float | None
) -> Op[PartitionMap]:
    now, over = yield from _times(head, head.until(timeout))
    if not _is_announced(found, wanted, now):  # this one stood still, and others may have begun another
        _refuse(head)
    following = replace(found, written=wanted).remembering(found.written, over, now)
    return (yield from _store(head, make, found, following, timeout, lambda each: each.written == wanted))


def _times(head: QueueState, until: float) -> Op[tuple[int, int]]:
    """Return the time of the head's clock, and until when a former home is remembered, both in ms."""
    seconds, micros = yield from ask(head, "TIME", key=head.keys.meta, until=until)
    now = int(seconds) * 1000 + int(micros) // 1000
    return now, now + round(max(head.config.dedup_window, REMEMBERED_SECONDS) * 1000)


def _store(
    head: QueueState,
    make: MakeState,
    found: PartitionMap,
    following: PartitionMap,
    timeout: float | None,
    will_do: Callable[[PartitionMap], bool],
) -> Op[PartitionMap]:
    """Store the map *following*. Return the map that is stored then: that of another client *will do*, too."""
    try:
        yield from store_map(head, make, found, following, timeout)
    except Changed:
        if not will_do(map_in(head)):
            _refuse(head)
    return map_in(head)


def store_map(
    head: QueueState,
    make: MakeState,
    found: PartitionMap,
    following: PartitionMap,
    timeout: float | None = None,
) -> Op[None]:
    """Store another map than was *found*, once all its partitions are as the head is. Changed if another is there.

    All bounds of the queue as a whole are shared out among those that are read.
    """
    name, count = head.keys.name, following.read
    states = [make(head, number, following.name_of(name, number)) for number in range(1, count)]

    def agree() -> Op[bool]:
        if map_in(head) != found:
            return False
        if following == found:  # only the epoch is to move
            return True
        all_of((yield from run_together([furnish(head, state, count, timeout) for state in states])))
        return True

    def call(epoch: str, after: str) -> Call:
        text = following.text
        kept = replace(head.config, partitions=Partitions.parse(text) if text else 1).settings()
        values = dict(zip(kept[::2], kept[1::2], strict=True))
        words = [
            word for each in ("partitions", *SHARED_SETTINGS, WHOLE_FIELD) for word in (each, values.get(each, ""))
        ]
        return Call.on(head.keys, "configure", (epoch, after, head.client, *words))

    _, underreplicated = yield from change_queue(head, call, head.until(timeout), agree)
    yield from require_queue(head, head.until(timeout))
    check_replicas(head, underreplicated, None)


def _refuse(head: QueueState) -> NoReturn:
    raise ConfigError(
        f"another client has changed the partitions of queue {head.keys.name!r} meanwhile: see partitions(), and call "
        "resize again if you want another number"
    )
