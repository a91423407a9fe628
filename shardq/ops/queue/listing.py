"""Find the queues that there are, by their keys: nothing else lists them. That walks over all keys of Redis."""

from __future__ import annotations

import re
from itertools import count
from typing import Any, Final

from shardq.clock import Clock
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Argument, Ask, Op
from shardq.protocol.keys import slot

PATTERN: Final = "shardq:{*}:meta"
_META: Final = re.compile(rb"shardq:\{([^{}#]+)\}:meta")
"""A partition has a "#" in its name, and is none of the queues."""
SCANNED: Final = 1000
MAX_SEARCH_SECONDS: Final = 300.0
"""Seconds after which the search for queues that match is given up. It walks over all keys of Redis."""


def queue_names(until: float, clock: Clock) -> Op[set[str]]:
    """Return the names of all queues on all nodes; until the local monotonic time *until*, which each call has."""
    names: set[str] = set()
    for key in (yield from _nodes(until, clock)):
        cursor: Argument = b"0"
        while True:
            words = ("SCAN", cursor, "MATCH", PATTERN, "COUNT", SCANNED)
            cursor, keys = yield from _ask(until, clock, *words, key=key)
            names |= {found[1].decode() for each in keys if (found := _META.fullmatch(each))}
            if cursor == b"0":
                break
    return names


def matching_queues(pattern: str, clock: Clock) -> Op[list[str]]:
    """Return the queues whose whole names match the regular expression *pattern*, sorted."""
    names = yield from queue_names(clock.monotonic() + MAX_SEARCH_SECONDS, clock)
    return [name for name in sorted(names) if re.fullmatch(pattern, name)]


def _nodes(until: float, clock: Clock) -> Op[list[str | None]]:
    """Return for each node a key that it owns; a single None if Redis is not a cluster."""
    info = yield from _ask(until, clock, "INFO", "cluster")
    if b"cluster_enabled:1" not in info:
        return [None]
    firsts = {
        bytes(owner[2]): int(first) for first, _, owner, *_ in (yield from _ask(until, clock, "CLUSTER", "SLOTS"))
    }
    # Commands go to a node by a key, so for each node one is looked for that it owns.
    keys = [next(key for each in count() if slot(key := str(each)) == first) for first in firsts.values()]
    for key in keys:  # SCAN is not redirected, so the owner of the key must be known before
        yield from _ask(until, clock, "EXISTS", key, key=key)
    return list(keys)


def _ask(until: float, clock: Clock, *words: Argument, key: str | None = None) -> Op[Any]:
    """Run a command on the node that owns *key*. Return the reply."""
    return (yield from retry_until(always(Ask(words, key)), until, clock))
