"""For what messages wait: each counts once, so the reasons add up, whatever a queue says of itself."""

from __future__ import annotations

import math
import random

from msgspec.structs import replace

from shardq.model.outlook import WAIT_REASONS
from shardq.model.waiter import Waiter
from shardq.outlook import reasons
from shardq.outlook.outlook import outlook_of
from tests.outlook.given import NOON, facts, minutes, stats, worker


def a_waiter(rng: random.Random, name: str) -> Waiter:
    """Return a shard key in any state."""
    delayed = rng.choice((0, 0, rng.randrange(50)))
    is_limited = rng.random() < 0.4
    flight = rng.randrange(5)
    return Waiter(
        name,
        in_streams=rng.randrange(2),
        held_back=rng.choice((0, 0, 1, rng.randrange(1000))),
        in_flight=flight,
        delayed=delayed,
        retrying=rng.randint(0, delayed),
        weight=rng.choice((1, 1, 3, 100)),
        max_in_flight=rng.choice((0, 5)) if is_limited else 0,
        rate=rng.choice((0.0, 0.5, 20.0)) if is_limited else 0.0,
        allowance=rng.choice((0, 0, 1, 7)) if is_limited else None,
        paused_until=rng.choice((None, None, NOON + 60, math.inf)) if is_limited else None,
    )


def test_reasons_add_up_exactly_in_any_state(seed: int) -> None:
    """10,000 states, of which each message is put on one list by a model that goes through them one by one."""
    rng = random.Random(seed)
    for _ in range(10_000):
        rows = []
        for number in range(rng.randrange(8)):
            row = a_waiter(rng, f"t{number}")
            rows.append(row if row.paused_until is None else replace(row, allowance=0))
        expected = dict.fromkeys(WAIT_REASONS, 0)
        paused, is_read = rng.choice((None, None, NOON + 9, math.inf)), rng.random() < 0.7
        room = rng.choice((None, None, 0, rng.randrange(500)))  # what the limits of the whole queue allow
        runnable = 0
        for row in rows:
            expected["retry"] += row.retrying
            expected["delay"] += row.delayed - row.retrying
            for place in range(row.backlog):
                may_come = row.allowance is None or place < row.allowance
                if paused:
                    expected["pause"] += 1
                elif not may_come:
                    expected["limit" if row.paused_until is None else "pause"] += 1
                elif room is not None and runnable >= room:
                    expected["limit"] += 1
                else:
                    runnable += 1
                    expected["turn" if is_read else "worker"] += 1
        limited = sum(row.blocked for row in rows)
        backlog, delayed = sum(row.backlog for row in rows), sum(row.delayed for row in rows)
        given = stats(
            backlog=backlog,
            delayed=delayed,
            retrying=expected["retry"],
            limited=limited,
            runnable=0 if paused else runnable,
            paused_until=paused,
        )
        told = facts(given, tuple(rows), is_read=is_read)
        assert reasons.of_queue(told) == expected
        assert sum(expected.values()) == backlog + delayed
        for row in rows:
            assert sum(reasons.of_waiter(told, row).values()) == row.backlog + row.delayed


def test_reasons_add_up_where_the_numbers_disagree(seed: int) -> None:
    """Those of the queue and those of shard keys are of two moments: what was told first counts."""
    rng = random.Random(seed)
    for _ in range(500):
        rows = tuple(a_waiter(rng, f"t{number}") for number in range(rng.randrange(40)))
        backlog, delayed = rng.randrange(3000), rng.randrange(100)
        given = stats(
            backlog=backlog,
            delayed=delayed,
            retrying=rng.randrange(200),
            limited=rng.randrange(4000),
            runnable=rng.randrange(4000),
            in_flight=rng.randrange(9),
        )
        told = facts(
            given,
            rows,
            are_all=rng.random() < 0.5,
            workers=(worker(),) if rng.random() < 0.5 else (),
            minutes=minutes(rng.randrange(5), written=rng.randrange(900), done=rng.randrange(900)),
            is_read=rng.random() < 0.5,
        )
        found = outlook_of(told)
        assert sum(found.reasons.values()) == found.waits == backlog + delayed
        assert min(found.reasons.values()) >= 0
        for each in found.tenants:
            assert sum(each.reasons.values()) == each.waits
            assert min(each.reasons.values()) >= 0
