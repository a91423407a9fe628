"""What partitions say of who waits, and of their nodes, together."""

from __future__ import annotations

import math

from shardq.model.waiter import Waiter, Waiters
from shardq.outlook import together
from shardq.outlook.facts import ServerMemory


def test_who_is_in_one_partition_is_as_there() -> None:
    acme, other = Waiter("acme", in_streams=1, allowance=0), Waiter(b"\xff", delayed=2)
    found = together.waiters([Waiters(rows=(acme,)), Waiters(rows=(other,))])
    assert found.rows == (acme, other)


def test_who_is_in_two_has_the_sum_and_what_waits_for_a_limit_still_does() -> None:
    one = Waiter("acme", in_streams=1, held_back=9, in_flight=2, weight=3, max_in_flight=2, allowance=0)
    other = Waiter("acme", in_streams=2, in_flight=1, max_in_flight=2, allowance=1)
    (both,) = together.waiters([Waiters(rows=(one,)), Waiters(rows=(other,))]).rows
    assert (both.in_streams, both.held_back, both.in_flight, both.weight) == (3, 9, 3, 3)
    assert both.blocked == one.blocked + other.blocked == 11
    unlimited = Waiter("acme", in_streams=2)
    (both,) = together.waiters([Waiters(rows=(unlimited,)), Waiters(rows=(Waiter("acme"),))]).rows
    assert both == unlimited


def test_limits_of_the_queue_are_the_sums_and_times_the_last() -> None:
    one = Waiters(time=5.0, total_in_flight=3, total_rate=1.5, blocked_until=7.0, last_lease_end=8.0)
    other = Waiters(time=6.0, total_in_flight=2, total_rate=1.0, last_written=4.0, are_all=False)
    found = together.waiters([one, other])
    assert (found.total_in_flight, found.total_rate) == (5, 2.5)
    assert (found.time, found.blocked_until, found.last_lease_end, found.last_written) == (6.0, 7.0, 8.0, 4.0)
    assert not found.are_all
    paused = [Waiters(rows=(Waiter("acme", paused_until=math.inf),))] * 2
    assert together.waiters(paused).rows[0].paused_until == math.inf


def test_of_several_nodes_the_fullest_speaks() -> None:
    full, free = ServerMemory(90, 100, 1), ServerMemory(500, 1000, 0)
    assert together.memory([free, None, full]) == full
    assert together.memory([None, None]) is None
