"""A plain call declares few of the queue's keys. One that needs more is refused before it changes anything."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from shardq import Empty, LeaseLost, Limits, Queue, QueueFull
from shardq.ops.queue.state import READS_REMEMBERED
from shardq.ops.queue.steps import Call
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

STEPS = 1500
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {}, "window 0": {"window": 0}, "journal": {"journal": 1000}, "max_len": {"max_len": 40},
    "parents": {"parents": 1}, "deliveries": {"max_deliveries": 2, "max_dead": 3}, "limits": {"max_in_flight": 3},
}  # fmt: skip


class Refusals:
    """The calls that were refused for want of keys, and those of them that had changed something."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.seen, self.broken = world, 0, list[str]()
        whole = Call.whole

        def noted(call: Call) -> Call:
            self.seen += 1
            if self.changes() != self.before:
                self.broken.append(call.script.name)
            return whole(call)

        monkeypatch.setattr(Call, "whole", noted)
        self.before = 0

    def changes(self) -> int:
        """How many changes the server has counted."""
        return int(self.world.raw.info("persistence")["rdb_changes_since_last_save"])

    def look(self, queue: Queue) -> None:
        """Let the next call of the queue declare few keys, whatever was refused."""
        for few in queue.state.few.values():
            few.lacking = 0
        self.before = self.changes()


def steps_of(queue: Queue, dice: random.Random) -> list[Callable[[], object]]:
    """Each makes one call."""
    held: list[Any] = []

    def tenant() -> str:
        return f"{dice.randrange(3)}/{dice.randrange(3)}"

    def read() -> None:
        held.append(queue.read())

    def ended(end: Callable[[Any], object]) -> Callable[[], object]:
        return lambda: held and end(held.pop(dice.randrange(len(held))))

    def write(**options: Any) -> Callable[[], object]:
        return lambda: queue.write(b"x", shard_key=tenant(), **options)

    acks = [ended(lambda each: each.ack())] * 3
    back, later = ended(lambda each: each.nack()), ended(lambda each: each.nack(delay=0.01))
    returns = [back, later, ended(lambda each: each.reject("why"))]
    odd: list[Callable[[], object]] = [write(delay=0.01), write(deadline=0.02), lambda: queue.pause(seconds=0.001)]
    if queue.state.config.window:  # it knows its shard keys
        limits = Limits(rate=1000, burst=1)
        size = 1 if queue.state.config.parents else 3  # of the name of a parent, or of a child
        odd.append(lambda: queue.set_limits({tenant()[:size]: limits}))
    return [write(), write(), read, read, read, *acks, *returns, *odd]


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_call_that_lacks_keys_has_changed_nothing(
    open_queue: OpenQueue, world: World, settings: str, monkeypatch: pytest.MonkeyPatch, real: None
) -> None:
    queue, dice = open_queue(streams=4, visibility_timeout=0.05, **SETTINGS[settings]), random.Random(settings)
    queue.write(b"x", shard_key="1/1")  # it is open from here on
    steps, refusals = steps_of(queue, dice), Refusals(world, monkeypatch)
    for _ in range(STEPS):
        refusals.look(queue)
        with suppress(Empty, LeaseLost, QueueFull):
            dice.choice(steps)()
    assert refusals.seen > 0
    assert queue.stats().acked > 0
    assert refusals.broken == []
    assert world.census(queue).problems() == []


@pytest.mark.once
def test_after_a_refusal_calls_declare_all_keys_for_a_while(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, journal=100)
    queue.write(b"x", shard_key="t")  # it notes its producer, for which it declares all
    few = queue.state.few["write"]
    seen = []
    for _ in range(READS_REMEMBERED + 2):
        queue.write(b"x", shard_key="t")
        seen.append(few.lacking)
    assert seen == [*range(READS_REMEMBERED, -1, -1), READS_REMEMBERED]
    assert queue.stats().backlog == READS_REMEMBERED + 3
