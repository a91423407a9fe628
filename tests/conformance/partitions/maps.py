"""Change the map of a queue by hand, as a resize does in the end; or begin one that dies before that."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from shardq import Queue
from shardq.model.partitions import map_of
from shardq.ops.operate import queues
from shardq.ops.queue.opening import create
from shardq.partitions import resize
from shardq.partitions.map import PartitionMap
from tests.conformance.world import World


def map_now(world: World, queue: Queue) -> PartitionMap:
    """The map that the queue has."""
    return PartitionMap.parse(map_of(world.client().queue(queue.name).settings().partitions))


def change_map(world: World, queue: Queue, *, written: int, read: int) -> PartitionMap:
    """Let the queue have *read* partitions, of which the first ones are *written* to. New ones are made."""
    before = map_now(world, queue)
    salts = [*before.salts, *"abcdefgh"][: read - 1]
    found = PartitionMap(written, tuple(salts))
    client: Any = world.client()
    head = client.state_of(queue.name, {"streams": 4, "streams_per_shard": 2})
    for number in range(before.read, read):
        state = client.state_of_part(head, number, found.name_of(queue.name, number))
        client.run(create(state, state.until()))
    world.node(queue.state.keys.meta).hset(queue.state.keys.meta, "partitions", found.text)
    client.run(queues.configure(head, {"max_deliveries": 100 + read}))  # any change moves the epoch
    return found


def delete_last(world: World, queue: Queue, expected: int | None = 0) -> None:
    """Delete the last partition, which has what is *expected*, and take it out of the map."""
    before = map_now(world, queue)
    last = before.read - 1
    assert before.written <= last
    client: Any = world.client()
    state = client.state_of_part(client.state_of(queue.name, {}), last, before.name_of(queue.name, last))
    client.run(queues.delete(state, expected))
    change_map(world, queue, written=before.written, read=last)


class Died(Exception):
    """The process ends here."""


def dies(seconds: float) -> NoReturn:
    """End the process in place of a sleep."""
    raise Died


def begin(queue: Queue, wanted: int) -> None:
    """Let a resize say what it goes towards, and then die."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resize, "Sleep", dies)
        with pytest.raises(Died):
            queue.resize(partitions=wanted)


def calls_of(world: World) -> int:
    """How many calls of verbs the server has had."""
    stats = world.raw.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("fcall", "fcall_ro", "evalsha"))
