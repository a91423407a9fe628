"""The order of the next turns: an estimate, from the numbers of one moment."""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

from shardq.model.waiter import Waiter
from shardq.outlook.facts import Facts

TURNS: Final = 40
"""Turns that are shown."""


class TenantTurn(NamedTuple):
    """A number of messages in a row from one shard key."""

    shard_key: str | bytes
    times: int


def next_turns(facts: Facts, count: int = TURNS) -> tuple[TenantTurn, ...]:
    """Return the next turns, as the scheduler would give them if nothing was written or done meanwhile.

    First comes the one with fewest in flight for its weight, among these the one that had least of the workers in the
    last minute. Messages that wait for a limit or a pause have no turn. () where nobody reads, where the queue is
    paused, and without a window.
    """
    if not facts.has_reader or facts.paused_until is not None or not facts.waiters.window:
        return ()
    had = _work(facts)
    # The place in the list decides last, so that no two entries are alike.
    line = [
        (*_rank(each, 0, had), at, 0, each) for at, each in enumerate(facts.waiters.rows) if each.backlog > each.blocked
    ]
    heapq.heapify(line)
    found: list[TenantTurn] = []
    while line and len(found) < count:
        _, _, at, given, waiter = heapq.heappop(line)
        left = waiter.backlog - waiter.blocked - given
        if not line:
            _add(found, waiter.shard_key, left)
            break
        _add(found, waiter.shard_key, 1)
        if left > 1:
            heapq.heappush(line, (*_rank(waiter, given + 1, had), at, given + 1, waiter))
    return tuple(found)


def _rank(waiter: Waiter, given: int, had: dict[str | bytes, float]) -> tuple[int, float]:
    return (waiter.in_flight + given) // waiter.weight, had.get(waiter.shard_key, 0.0) / waiter.weight


def _work(facts: Facts) -> dict[str | bytes, float]:
    """Return how many seconds of work each had in the last minute, as far as workers tell."""
    found: dict[str | bytes, float] = {}
    for worker in facts.working:
        for each in worker.tenants:
            found[each.shard_key] = found.get(each.shard_key, 0.0) + each.done * each.seconds
    return found


def _add(found: list[TenantTurn], shard_key: str | bytes, times: int) -> None:
    if found and found[-1].shard_key == shard_key:
        found[-1] = TenantTurn(shard_key, found[-1].times + times)
    else:
        found.append(TenantTurn(shard_key, times))
