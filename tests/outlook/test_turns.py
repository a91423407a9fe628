"""Whose turn is next: an estimate, which the queue then keeps to if nothing else happens."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from shardq import Client, Limits
from shardq.model.waiter import Waiter
from shardq.model.worker_status import TenantWork
from shardq.ops.inspect.outlook import everything
from shardq.outlook.facts import Facts
from shardq.outlook.turns import TURNS, next_turns
from tests.outlook.given import NOON, facts, stats, worker
from tests.servers import Server


def read(*rows: Waiter, **more: Any) -> Facts:
    """Facts of a queue that somebody reads."""
    return facts(None, rows, workers=(worker(),), window=1, **more)


def test_fewest_in_flight_come_first() -> None:
    given = read(Waiter("a", held_back=2, in_flight=1), Waiter("b", held_back=2), Waiter("c", held_back=1, in_flight=3))
    assert next_turns(given) == (("b", 1), ("a", 1), ("b", 1), ("a", 1), ("c", 1))


def test_a_weight_gives_more_in_a_row() -> None:
    given = read(Waiter("a", held_back=3, weight=3), Waiter("b", held_back=2))
    assert next_turns(given) == (("a", 3), ("b", 2))


def test_of_equals_comes_first_who_was_served_least() -> None:
    had = worker(tenants=(TenantWork("a", 50, 1.0, None), TenantWork("b", 5, 1.0, None)))
    given = facts(None, (Waiter("a", held_back=1), Waiter("b", held_back=1), Waiter("c", held_back=1)), workers=(had,))
    assert [each.shard_key for each in next_turns(given)] == ["c", "b", "a"]


def test_the_last_one_has_all_that_is_left() -> None:
    given = read(Waiter("large", held_back=12_836, in_flight=5), Waiter("a", in_streams=1), Waiter("b", in_streams=1))
    assert next_turns(given) == (("a", 1), ("b", 1), ("large", 12_836))


def test_what_is_limited_or_paused_has_no_turn() -> None:
    paused = Waiter("p", held_back=9, allowance=0, paused_until=NOON + 9)
    assert next_turns(read(Waiter("a", held_back=9, allowance=2), paused)) == (("a", 2),)


def test_they_are_bounded() -> None:
    given = read(*(Waiter(f"t{at}", held_back=9) for at in range(1000)))
    assert len(next_turns(given)) == TURNS


@pytest.mark.parametrize("given", [
    facts(None, (Waiter("a", held_back=9),), window=1),
    read(Waiter("a", held_back=9)).__class__(
        stats(backlog=9, paused_until=math.inf), read(Waiter("a", held_back=9)).waiters, workers=(worker(),)
    ),
    facts(None, (Waiter("a", held_back=9),), workers=(worker(),), window=0),
], ids=["nobody reads", "paused", "no window"])  # fmt: skip
def test_nobody_has_a_turn(given: Facts) -> None:
    assert next_turns(given) == ()


def test_a_queue_keeps_to_them(server: Server) -> None:
    """Of the first messages that are read each tenant has as many as was foreseen, give or take one."""
    with Client.from_url(server.url) as client:
        queue = client.queue("jobs", streams=1)
        queue.declare()
        queue.write_many([(b"x", "large")] * 300)
        queue.write_many([(b"x", f"small-{at % 6}") for at in range(30)])
        queue.set_weights({"small-0": 3})
        queue.set_limits({"small-1": Limits(max_in_flight=2)})
        queue.read_many(5)  # they stay in flight, and somebody was there
        found = client.run(everything(queue.state))
        turns = next_turns(found, 20)
        foreseen = Counter[str | bytes]()
        for each in turns:
            foreseen[each.shard_key] += min(each.times, 20)
        count = min(20, foreseen.total())
        came = Counter(each.shard_key for _ in range(count) for each in queue.read_many(1))
        assert came.total() == count
        assert all(abs(came[key] - foreseen[key]) <= 1 for key in came | foreseen), (came, foreseen)
