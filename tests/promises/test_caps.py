"""A cap holds for who is busy as it is set, and is a bound on what is in flight then and later."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import pytest

from shardq import Delivery, Limits, Queue
from tests.promises.conftest import OpenQueue

CAP = 3
CAPS: dict[str, Callable[[Queue], object]] = {
    "configure": lambda queue: queue.configure(max_in_flight=CAP),
    "set_limits": lambda queue: queue.set_limits({"busy": Limits(max_in_flight=CAP)}),
}


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("batch", [1, 10])
def test_a_cap_that_is_set_holds_for_who_is_busy(open_queue: OpenQueue, cap: str, batch: int) -> None:
    """Nothing of the tenant is delivered before it has less in flight than the cap, and then no more than that."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    queue.write_many([(number, "busy") for number in range(100)])
    held: deque[Delivery] = deque()
    while len(held) < 50:
        held += queue.read_many(50 - len(held))
    CAPS[cap](queue)
    for _ in range(80):
        before = len(held)
        held += queue.read_many(batch)
        assert len(held) <= max(before, CAP)
        held.popleft().ack()
    assert len(held) < CAP


@pytest.mark.parametrize("cap", CAPS)
def test_a_cap_blocks_nothing_of_others(open_queue: OpenQueue, cap: str) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    queue.write_many([(number, "busy") for number in range(20)])
    held: list[Delivery] = []
    while len(held) < 10:
        held += queue.read_many(10 - len(held))
    CAPS[cap](queue)
    queue.write_many([(number, f"t{number}") for number in range(20)])
    found = queue.read_many(100)
    assert Counter(each.shard_key for each in found) == {f"t{number}": 1 for number in range(20)}


@pytest.mark.parametrize("how", ["ack", "nack", "reject", "lost"])
def test_each_end_of_a_delivery_makes_room_below_a_cap(open_queue: OpenQueue, how: str) -> None:
    """Those that were delivered before there was a cap, too."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    queue.write_many([(number, "busy") for number in range(20)])
    held = [queue.read(visibility_timeout=3 if how == "lost" else 60) for _ in range(6)]
    queue.configure(max_in_flight=CAP)
    assert queue.read_many(9) == []
    if how == "ack":
        assert queue.ack_many(held) == []
    elif how == "nack":
        assert queue.nack_many(held) == []
    elif how == "reject":
        assert queue.reject_many(held, "no") == []
    found = queue.read_many(9, block=30)
    while len(found) < CAP:
        found += queue.read_many(9, block=30)
    assert len(found) == CAP
    assert queue.read_many(9) == []
