"""One client per process and address. Spark uses its Python worker processes again, and never closes them in order."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from shardq.client import Client
from shardq.errors import ConfigError, QueueMissing
from shardq.model.partitions import is_parted
from shardq.ops.queue.opening import open_queue, require_queue
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.spark.ops.scan import server_ms
from shardq.spark.options import Connecting
from shardq.spark.references import url_of


def client_of(options: Connecting) -> Client:
    """The client of this process for the Redis of *options*."""
    return _client(options.url, options.timeout, options.durability, os.getpid())


@lru_cache(maxsize=16)
def _client(url: str, timeout: float, durability: str, process: int) -> Client:
    """Make a client for one *process*: one that was forked must not share connections with its parent."""
    return Client.from_url(url_of(url), timeout=timeout, durability=durability)


def state_of(options: Connecting, tag: str, *, create: bool = False) -> QueueState:
    """This process's memory of a queue, or of a partition, by its *tag*: "jobs" is the head, "jobs#2.a" another.

    Each is a queue of its own for Spark, whose tasks and offsets name it by this. Users know it by its queue's name.
    """
    client, (name, mark, part) = client_of(options), tag.partition("#")
    head = client.state_of(name, {}, create=create)
    if not mark:
        return head
    known = (each for each in partitions_of(head) if each.keys.tag == tag)
    return next(known, None) or client.state_of_part(head, int(part.partition(".")[0]), tag)


def partitions_of(head: QueueState) -> list[QueueState]:
    """The states of the partitions of a queue that was looked at, by its map; for one without partitions its own."""
    return [head, *(head.parts.states[1:] if head.parts is not None else ())]


def queue_in(tag: str) -> str:
    """The name of the queue whose tag, or that of a partition, this is."""
    return tag.partition("#")[0]


def seen_queue(options: Connecting, tag: str) -> QueueState:
    """A queue or partition as it is now; needs only the right to read. QueueMissing if it does not exist."""
    state = state_of(options, tag)
    try:
        seen = client_of(options).run(sight(state, state.until()))
    except QueueMissing:
        raise QueueMissing(f"there is no queue {state.keys.name!r}") from None
    state.know(replace(seen.view, epoch=""))  # a call that changes the queue looks it up, which needs other rights
    return state


def seen_partitions(options: Connecting, name: str) -> list[QueueState]:
    """All partitions of the queue called *name* as they are now; of one without, itself. QueueMissing as above."""
    found = [head := seen_queue(options, name)]
    for each in partitions_of(head)[1:]:
        with suppress(QueueMissing):  # it was drained and removed since the map was seen: nothing was in it
            found.append(seen_queue(options, each.keys.tag))
    return found


def same_seen_queue(options: Connecting, tag: str, life: str) -> QueueState:
    """A queue or partition with the id *life* ('': any). QueueMissing also if it was recreated, and has another."""
    state = seen_queue(options, tag)
    if life not in ("", state.view.id):
        raise QueueMissing(f"queue {state.keys.name!r} was deleted and created again while it was read")
    return state


def queue_of(options: Connecting, tag: str, *, create: bool = False) -> QueueState:
    """A queue or partition that is to be changed; QueueMissing unless it exists or *create* is true."""
    client, state = client_of(options), state_of(options, tag, create=create)
    if create:
        client.run(open_queue(state, state.until()))
        return state
    try:
        client.run(require_queue(state, state.until()))
    except QueueMissing:
        raise QueueMissing(
            f"there is no queue {state.keys.name!r}: write to it first, or set the option create=true to create it "
            "with defaults"
        ) from None
    return state


def whole_queue_of(options: Connecting, name: str, *, create: bool = False) -> QueueState:
    """The queue called *name* if its head is all of it. ConfigError if it has other partitions."""
    state = queue_of(options, name, create=create)
    if is_parted(state.config.partitions):
        raise ConfigError(
            f"queue {name!r} has partitions: a block of consuming() and the errorQueue are for queues without; consume "
            "it by readStream with mode=consume, and name another errorQueue"
        )
    return state


def server_ms_of(options: Connecting) -> int:
    """The time on the server's clock in ms."""
    client = client_of(options)
    return client.run(server_ms(client.clock, options.timeout))
