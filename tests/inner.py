"""Calls of functions that no method of a client makes, or not by itself: of upkeep, workers, gateways, and Spark."""

from __future__ import annotations

from typing import Any

from shardq import Queue
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Argument, Call
from shardq.protocol.keys import QueueKeys


def inner_looks(keys: QueueKeys) -> dict[str, Call]:
    """Calls that change nothing, by the function that each runs."""
    stream = (keys.stream(0),)
    args: dict[str, tuple[tuple[Argument, ...], tuple[str, ...]]] = {
        "accounts": (("0", 100), ()),
        "alone": (("0", 100), ()),
        "due_schedules": ((75_000, 100, "c:f"), ()),
        "facts": ((), ()),
        "fetch": ((1000, 0, "0:1-1", "d:1-1"), stream),
        "glance": ((), ()),
        "held": ((9, 1000, 0, "", "", "", "", "tenant-0"), ()),
        "holders": (("0", 100), ()),
        "knows": ((0, "3.none", "tenant-0", "k", "one", "tenant-1", "u", "two"), ()),
        "recount": (("0", "o:w:0"), ()),
        "runs": (("tenant-0", "tenant-1"), ()),
        "outside": ((), ()),
        "present": (("tenant-0", "tenant-1"), ()),
        "sample": ((9,), ()),
        "skip": (("0-0", "+", 9), stream),
        "states": ((1000, "d:1-1", "0:1-1"), stream),
        "waiting": ((9, ""), stream),
    }
    return {name: Call.on(keys, name, given, rest=rest) for name, (given, rest) in args.items()}


def run(queue: Queue, call: Call) -> Any:
    """Make one call on a queue's server, and return the reply."""
    state = queue.state
    return queue.client.run(retry_until(always(call), state.until(), state.clock))
