"""One client per process and address. Spark uses its Python worker processes again, and never closes them in order."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache

from shardq.client import Client
from shardq.errors import ConfigError, QueueMissing
from shardq.model.partitions import is_parted
from shardq.ops.queue.opening import open_queue, require_queue
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.spark.ops.recount import server_ms
from shardq.spark.options import Connecting


def client_of(options: Connecting) -> Client:
    """The client of this process for the Redis of *options*."""
    return _client(options.url, options.timeout, options.durability, os.getpid())


@lru_cache(maxsize=16)
def _client(url: str, timeout: float, durability: str, process: int) -> Client:
    """Make a client for one *process*: one that was forked must not share connections with its parent."""
    return Client.from_url(url, timeout=timeout, durability=durability)


def seen_queue(options: Connecting, name: str) -> QueueState:
    """The queue called *name* as it is now; needs only the right to read. QueueMissing if it does not exist."""
    client = client_of(options)
    state = client.state_of(name, {})
    try:
        seen = client.run(sight(state, state.until()))
    except QueueMissing:
        raise QueueMissing(f"there is no queue {name!r}") from None
    state.know(replace(seen.view, epoch=""))  # a call that changes the queue looks it up, which needs other rights
    return _whole(state)


def same_seen_queue(options: Connecting, name: str, life: str) -> QueueState:
    """The queue called *name* with the id *life* ('': any). QueueMissing also if it was made anew, and has another."""
    state = seen_queue(options, name)
    if life not in ("", state.view.id):
        raise QueueMissing(f"queue {name!r} was deleted and made anew while it was read")
    return state


def queue_of(options: Connecting, name: str, *, create: bool = False) -> QueueState:
    """The queue called *name*; QueueMissing unless it exists or *create* is true."""
    client = client_of(options)
    state = client.state_of(name, {}, create=create)
    if create:
        client.run(open_queue(state, state.until()))
        return _whole(state)
    try:
        client.run(require_queue(state, state.until()))
    except QueueMissing:
        raise QueueMissing(
            f"there is no queue {name!r}: write to it first, or set the option create=true to create it with defaults"
        ) from None
    return _whole(state)


def _whole(state: QueueState) -> QueueState:
    """Return the state of a queue if its head is all of it. ConfigError for one with partitions: it has other parts."""
    if is_parted(state.config.partitions):
        raise ConfigError(
            f"queue {state.keys.name!r} has partitions, and Spark reads and writes only queues without: read and write "
            "it by shardq's client, for example in foreachPartition"
        )
    return state


def server_ms_of(options: Connecting) -> int:
    """The time on the server's clock in ms."""
    client = client_of(options)
    return client.run(server_ms(client.clock, options.timeout))
