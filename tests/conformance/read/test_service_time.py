"""Turns are fair in the time that work takes: what each delivery is charged, and whose turn it is then."""

from __future__ import annotations

import heapq
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from shardq import ConfigError, Delivery, Limits, Queue
from shardq.ops.read.give_back import unread
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_fairness import sound
from tests.conformance.world import World
from tests.waiting import eventually

Ended = Callable[[Delivery], object]
ENDS: dict[str, Ended] = {
    "ack": lambda delivery: delivery.ack(),
    "nack": lambda delivery: delivery.nack(error="again"),
    "reject": lambda delivery: delivery.reject("no"),
    "ack many": lambda delivery: delivery.queue.ack_many([delivery]),
    "nack many": lambda delivery: delivery.queue.nack_many([delivery], error="again"),
    "reject many": lambda delivery: delivery.queue.reject_many([delivery], "no"),
    "read(ack=)": lambda delivery: delivery.queue.read(ack=delivery),
    "extend": lambda delivery: delivery.extend(60),
}
MOST_JOBS = 3
"""So many of their longest jobs, by weight, one of two that wait may get beyond the other."""
ACROSS = 1
"""So many more if they are of two partitions: a client may deal one job before it looks what others have received."""


def flooded(open_queue: OpenQueue, keys: Sequence[str] = ("a", "b"), **settings: Any) -> Queue:
    """A queue in which each of *keys* has much waiting."""
    queue = open_queue(streams=4, **{"streams_per_shard": 2, **settings})
    queue.write_many([(number, key) for number in range(60) for key in keys])
    return queue


def let_pass(seconds: float) -> None:
    """The time of work."""
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > end)


def ahead(queue: Queue, key: str) -> float:
    """How many seconds of work it has received more than those whose turn is next."""
    return queue.tenant(key).ahead


def served(queue: Queue, costs: dict[str, float], times: int) -> Counter[str]:
    """How much service each shard key gets of so many single reads, if its jobs cost so much."""
    found: Counter[str] = Counter()
    for _ in range(times):
        delivery = queue.read()
        key = str(delivery.shard_key)
        delivery.ack(cost=costs[key])
        found[key] += costs[key]  # type: ignore[assignment]
    return found


@pytest.mark.everywhere
def test_of_two_floods_the_one_with_long_jobs_has_as_many_fewer_turns(open_queue: OpenQueue) -> None:
    queue = flooded(open_queue)
    found = served(queue, {"a": 10.0, "b": 1.0}, 55)
    assert abs(found["a"] - found["b"]) <= MOST_JOBS * 10.0


def test_a_queue_that_is_fair_in_messages_charges_no_time(open_queue: OpenQueue) -> None:
    queue = flooded(open_queue, fair="messages")
    found = served(queue, {"a": 10.0, "b": 1.0}, 40)
    assert abs(found["a"] / 10 - found["b"]) <= 1
    assert ahead(queue, "a") < 0.1


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_the_time_since_the_read_is_charged_whatever_ends_the_delivery(end: Ended, open_queue: OpenQueue) -> None:
    queue = flooded(open_queue, ("a", "b", "c"), max_deliveries=9)
    held = {str(delivery.shard_key): delivery for delivery in queue.read_many(3)}
    held["b"].ack(cost=0)
    let_pass(0.3)
    end(held["a"])
    assert 0.25 < ahead(queue, "a") < 5
    assert ahead(queue, "c") == 0


def test_what_a_consumer_tells_stands_in_place_of_the_time(open_queue: OpenQueue) -> None:
    queue = flooded(open_queue)
    held = {str(delivery.shard_key): delivery for delivery in queue.read_many(2)}
    held["a"].ack(cost=90)
    held["b"].ack(cost=30)
    assert ahead(queue, "a") - ahead(queue, "b") == pytest.approx(60, abs=0.01)


@pytest.mark.once
@pytest.mark.parametrize("cost", [-1, math.nan, math.inf, 3601, "1", True, None.__class__])
def test_a_bad_cost_is_refused_before_anything_is_sent(open_queue: OpenQueue, cost: Any) -> None:
    queue = flooded(open_queue)
    delivery = queue.read()
    with pytest.raises(ConfigError, match="cost must be"):
        delivery.ack(cost=cost)
    assert not delivery.answered
    delivery.ack(cost=3600)


def test_what_is_settled_together_shares_the_time_since_the_last_settling(
    open_queue: OpenQueue,
) -> None:
    queue = flooded(open_queue, ("a", "b", "c"))
    batch = queue.read_many(6)
    of = {key: [each for each in batch if each.shard_key == key] for key in "abc"}
    let_pass(0.4)
    assert queue.ack_many([*of["a"], *of["b"]]) == []
    assert queue.ack_many(of["c"]) == []
    told = {key: ahead(queue, key) for key in "abc"}
    assert 0.15 < told["a"] < 2
    assert told["a"] == pytest.approx(told["b"], rel=0.1)
    assert told["c"] < told["a"] / 2


def test_a_lease_that_ends_costs_its_length(open_queue: OpenQueue) -> None:
    queue = flooded(open_queue)
    held = queue.read_many(2, visibility_timeout=0.5)
    mine = str(held[0].shard_key)
    held[1].ack(cost=0)
    eventually(lambda: held[0].lost)
    let_pass(0.05)  # who holds a lease gives up a little before the server does
    queue.read_many(1)
    assert 0.3 < ahead(queue, mine) < 1


def test_weights_divide_the_time(open_queue: OpenQueue) -> None:
    queue = flooded(open_queue)
    queue.set_weights({"a": 3})
    found = served(queue, {"a": 2.0, "b": 2.0}, 60)
    assert abs(found["a"] / 3 - found["b"]) <= MOST_JOBS * 2.0


def test_a_parent_is_charged_for_its_children(open_queue: OpenQueue) -> None:
    keys = [*(f"p/{number}" for number in range(5)), *(f"q{number}" for number in range(2))]
    queue = flooded(open_queue, keys, parents=1)
    found = served(queue, dict.fromkeys(keys, 1.0), 90)
    shares = {name: sum(found[key] for key in keys if key.startswith(name)) for name in ("p/", "q0", "q1")}
    assert max(shares.values()) - min(shares.values()) <= MOST_JOBS
    children = [found[key] for key in keys if key.startswith("p/")]
    assert max(children) - min(children) <= 1


@pytest.mark.parametrize("parents", [0, 1])
@pytest.mark.parametrize("limited", ["cap", "rate", "pause"])
def test_limits_of_one_leave_the_shares_of_the_others(open_queue: OpenQueue, limited: str, parents: int) -> None:
    """By weight, in time; who is limited gets what its limit allows, and has no credit for the rest afterwards."""
    keys = ["a/1", "a/2", "b/1", "b/2", "c/1", "c/2"]
    queue = flooded(open_queue, keys, parents=parents, streams_per_shard=1)
    owners = dict(zip(keys, "aabbcc", strict=True)) if parents else {key: key for key in keys}
    heavy, even, slow = (owners[key] for key in ("a/1", "b/1", "c/1"))
    queue.set_weights({heavy: 3})
    if limited == "pause":
        queue.pause(slow)
    else:  # what it may have is handed out, and not done
        queue.set_limits({slow: Limits(max_in_flight=1) if limited == "cap" else Limits(rate=0.001, burst=1)})
        held = queue.read_many(12)
        assert [owners[str(each.shard_key)] for each in held].count(slow) == 1
        queue.ack_many([each for each in held if owners[str(each.shard_key)] != slow])
    found = shared_out(queue, owners, 90)
    assert found[slow] == 0
    assert abs(found[heavy] / 3 - found[even]) <= MOST_JOBS * 2.0
    if limited == "pause":
        queue.resume(slow)
    else:
        queue.set_limits({slow: Limits()})
    found = shared_out(queue, owners, 60)
    assert found[slow] <= found[even] + MOST_JOBS * 2.0


def shared_out(queue: Queue, owners: dict[str, str], times: int) -> Counter[str]:
    """As `served`, with jobs of two seconds, by who owns the shard key."""
    found: Counter[str] = Counter()
    for key, service in served(queue, dict.fromkeys(owners, 2.0), times).items():
        found[owners[key]] += service
    return found


def test_what_nobody_has_seen_costs_nothing(open_queue: OpenQueue) -> None:
    queue = flooded(open_queue)
    held = queue.read_many(8)
    queue._client.run(unread(queue.state, [each.received for each in held]))
    assert (ahead(queue, "a"), ahead(queue, "b")) == (0, 0)


def test_stats_tell_how_many_wait_for_a_turn(open_queue: OpenQueue) -> None:
    queue = flooded(open_queue, [f"t{number}" for number in range(7)])
    queue.write(1, shard_key="quiet")
    assert queue.stats().tenants_waiting == 0, "each has a message in the streams"
    held = queue.read_many(8)
    assert len({each.shard_key for each in held}) == 8
    assert queue.stats().tenants_waiting == 7
    assert [each.shard_key for each in queue.tenants("time")] == []
    held[0].ack(cost=50)
    (first,) = queue.tenants("time")
    assert first.shard_key == held[0].shard_key


@pytest.mark.parametrize("parents", [0, 1])
def test_neither_of_two_that_wait_gets_more_than_three_of_their_longest_jobs(
    open_queue: OpenQueue, world: World, rng: random.Random, parents: int
) -> None:
    """Fair in service time: all pairs, over all intervals. Four handlers, on a clock of ours.

    Who has nothing in flight comes first, also if it has received more than one that has. So the lead of one over the
    other goes from two jobs behind to one ahead at most; it is rarely more than two in all.
    """
    keys = [f"t{number}" for number in range(6)]
    queue = flooded(open_queue, keys, parents=parents)
    longest = {key: rng.choice((0.5, 5.0, 50.0)) for key in keys}
    jobs: dict[str, list[tuple[float, float]]] = {key: [] for key in keys}
    now, busy, numbers = 0.0, list[tuple[float, int, float, Delivery]](), itertools.count()
    for _ in range(200):
        while len(busy) < 4:
            delivery = queue.read()
            key = str(delivery.shard_key)
            cost = rng.uniform(0, longest[key])
            jobs[key].append((now, now + cost))
            queue.write("another one", shard_key=key)  # so that each waits all the time
            heapq.heappush(busy, (now + cost, next(numbers), cost, delivery))
        now, _, cost, delivery = heapq.heappop(busy)
        tell(delivery, cost)
        end = rng.choice(["ack", "ack", "nack", "reject"])
        delivery.reject("no") if end == "reject" else getattr(delivery, end)()
    times = sorted(end for each in jobs.values() for _, end in each if end <= now)
    got = {key: [_received(jobs[key], time) for time in times] for key in keys}
    for one, other in itertools.permutations(keys, 2):
        most = _most(mine - its for mine, its in zip(got[one], got[other], strict=True))
        bound = (MOST_JOBS + (ACROSS if world.partitions else 0)) * (max(longest[one], longest[other]) + 0.001)
        assert most <= bound, f"{one} got {most:.3f} s more than {other}, {bound:.3f} may be: {longest}"


def tell(delivery: Delivery, cost: float) -> None:
    """Say what the work on it has cost, before it is settled."""
    getattr(delivery, "_twin", delivery).cost = cost


def _received(jobs: Sequence[tuple[float, float]], now: float) -> float:
    """For how long handlers have worked on these jobs, and 1 ms for each that has begun."""
    return sum(min(now, end) - begin + 0.001 for begin, end in jobs if begin <= now)


def _most(leads: Iterable[float]) -> float:
    """The most by which a lead grows over any interval."""
    least = most = 0.0
    for lead in leads:
        least = min(least, lead)
        most = max(most, lead - least)
    return most


def test_what_is_given_back_unseen_leaves_the_account_of_what_is_not_on_it(open_queue: OpenQueue, world: World) -> None:
    """Without a window only what was delayed is on an account. Two of a shard key were given back in one call."""
    queue = open_queue(streams=1, window=0)
    queue.write("delayed", shard_key="t", delay=0.001)
    let_pass(0.02)
    kept = queue.read()
    assert kept.payload == "delayed"
    queue.write("delayed, too", shard_key="t", delay=0.001)
    queue.write("plain", shard_key="t")
    let_pass(0.02)
    found = queue.read_many(2)
    assert len(found) == 2
    queue._client.run(unread(queue.state, [each.received for each in found]))
    assert sound(queue, world)
