"""How many steps Lua's machine takes for a message, so that a rule's cost is seen when the rule is added.

A step is what most of a call costs the server (docs/internals/lua.md). They are counted on fakeredis, which runs Lua
5.1 as servers do: the same call takes as many each time. `benchmarks instructions` counts what a server really does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shardq import Delivery, Queue
from shardq.testing import ManualClock, fake_client
from shardq.testing.fake import fake_server

pytestmark = pytest.mark.runs_in("test-all")

COUNT = """
local steps = 0
local function count() steps = steps + 1 end
return function() steps = 0; debug.sethook(count, '', 1) end, function() debug.sethook(); return steps end
"""
CALLS, BATCH = 100, 100
MANY = 20
"""Tries of one group in a second that are not counted: see TOLD_WHOLE in lua/failures.lua."""
TENANTS = 100
BACKLOG = 1000
MOST = {
    "write": 1257, "read": 2000, "ack": 895,
    "write_many": 522, "read_many": 648, "ack_many": 285,
    "nack": 2484, "reject": 3070,
    "write, with a backlog": 1345, "read, with a backlog": 2057, "ack, with a backlog": 1255,
}  # fmt: skip
"""By call, how many steps a message may take: 1 % more than it takes. Lower them when it takes fewer."""


class Steps:
    """Counts the steps of an imitation of a server."""

    def __init__(self, server: Any) -> None:
        self._begin, self._end = server._lua_runtime.execute(COUNT)
        self.seen: dict[str, float] = {}

    @contextmanager
    def of(self, name: str, messages: int = CALLS) -> Iterator[None]:
        """Count, and note how many there were for each message."""
        self._begin()
        try:
            yield
        finally:
            self.seen[name] = self._end() / messages


def prepared(backlog: int) -> tuple[Queue, Steps, Callable[[], str]]:
    """A queue in use, with so many messages that wait; and whose message is the next."""
    server, clock, dice = fake_server(), ManualClock(), random.Random(1)
    queue = fake_client(server=server, clock=clock).queue("jobs", streams=64, streams_per_shard=6)

    def tenant() -> str:
        return f"t{dice.randrange(TENANTS)}"

    queue.write_many([(b"x" * 100, tenant()) for _ in range(BATCH)])
    queue.ack_many(queue.read_many(BATCH))
    for _ in range(0, backlog, BATCH):
        queue.write_many([(b"x" * 100, tenant()) for _ in range(BATCH)])
    queue.write(b"x", shard_key=tenant())
    queue.read().ack()
    return queue, Steps(server), tenant


def singles(backlog: int, said: str) -> dict[str, float]:
    queue, steps, tenant = prepared(backlog)
    with steps.of(f"write{said}"):
        for _ in range(CALLS):
            queue.write(b"x" * 100, shard_key=tenant())
    with steps.of(f"read{said}"):
        found = [queue.read() for _ in range(CALLS)]
    with steps.of(f"ack{said}"):
        for delivery in found:
            delivery.ack()
    return steps.seen


def failures() -> dict[str, float]:
    """Tries that fail where many do: of the first few of a second more is told, and these are not counted."""
    queue, steps, _ = prepared(0)
    queue.write_many([(b"x" * 100, f"t{number}") for number in range(2 * (CALLS + MANY))])
    held, error = [queue.read() for _ in range(2 * (CALLS + MANY))], ValueError("bad")
    for name in ("nack", "reject"):
        for _ in range(MANY):
            _fail(name, held.pop(), error)
        with steps.of(name):
            for _ in range(CALLS):
                _fail(name, held.pop(), error)
    return steps.seen


def _fail(name: str, delivery: Delivery, error: Exception) -> None:
    if name == "nack":
        delivery.nack(error=error)
    else:
        delivery.reject(error)


def batches() -> dict[str, float]:
    queue, steps, tenant = prepared(0)
    with steps.of("write_many", BATCH):
        queue.write_many([(b"x" * 100, tenant()) for _ in range(BATCH)])
    with steps.of("read_many", BATCH):
        found = queue.read_many(BATCH)
        found += queue.read_many(BATCH - len(found)) if len(found) < BATCH else []
    with steps.of("ack_many", BATCH):
        queue.ack_many(found)
    assert len(found) == BATCH
    return steps.seen


def test_a_message_takes_few_steps() -> None:
    seen = singles(0, "") | failures() | batches() | singles(BACKLOG, ", with a backlog")
    assert seen.keys() == MOST.keys()
    assert {call: steps for call, steps in seen.items() if steps > MOST[call]} == {}
