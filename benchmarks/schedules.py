"""schedules: what 10,000 stored schedules take: a worker's look with nothing due, and one with all of them due.

A schedule that is due each minute is due within the 75 s that a worker looks ahead, so each look that is a minute after
the one before finds all of them. The looks here come one after the other, and each is given what it would find then:
the schedules are removed and added anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Final

from benchmarks.bounds.clock import Clock, Spent
from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, percentile
from benchmarks.settings import Place
from shardq import Client, Queue
from shardq.ops.schedules.attend import Attendant

SCHEDULES: Final = 10_000
ROUNDS: Final = 5
IDLE: Final = 200
LONGEST: Final = 5.0
"""The ms that no script may take longer."""
SEEN: Final = 1000
"""µs from which on the server logs scripts."""


def run(place: Place) -> list[Table]:
    """The one table."""
    quick = place.settings.rounds < 5
    count, rounds = (SCHEDULES // 10, 1) if quick else (SCHEDULES, ROUNDS)
    spent: dict[str, Spent] = {}
    assert place.server.pid
    with contextlib.closing(connect(place.url)) as server, Client.from_url(place.url, timeout=60) as client:
        queue = client.queue("schedules", max_schedules=2 * count, visibility_timeout=300)
        queue.declare()
        clock, look = Clock(server, place.server.pid), _look(client, queue)
        for _ in range(rounds):
            for what, calls in _round(queue, look, count).items():
                with clock.watched(SEEN) as seen:
                    for call in calls:
                        clock.call(seen, call)
                known = spent.setdefault(what, Spent())
                known.calls += seen.calls
                known.longest = max(known.longest, seen.longest)
    longest, worst = max((each.longest, what) for what, each in spent.items())
    return [
        Table(
            "schedules",
            f"Beside {count:,} stored schedules",
            f"{place.described()}; {rounds} rounds",
            ("what", "calls", "server CPU of each, median", "most", "longest script"),
            [_row(what, each) for what, each in spent.items()],
            [Target("the longest script", longest, LONGEST, True, " ms", worst)],
            {what: asdict(each) for what, each in spent.items()},
        )
    ]


def _look(client: Client, queue: Queue) -> Callable[[], None]:
    attendant = Attendant(queue.state, client.codecs, ())
    return lambda: client.run(attendant.attend(60.0))


def _round(queue: Queue, look: Callable[[], None], count: int) -> dict[str, list[Callable[[], object]]]:
    """What is done in one round, in this order."""

    def add(number: int) -> None:
        queue.schedules.add(f"s-{number}", ["app.refresh", {}], shard_key=f"tenant-{number % 1000}", every=60)

    return {
        "add": [partial(add, number) for number in range(count)],
        "a look, all due": [look],
        "a look, none due": [look] * IDLE,
        "pause": [partial(queue.schedules.pause, f"s-{number}") for number in range(0, count, 50)],
        "list": [queue.schedules.list],
        "remove": [partial(queue.schedules.remove, f"s-{number}") for number in range(count)],
        "purge": [queue.purge],
    }


def _row(what: str, spent: Spent) -> tuple[str, ...]:
    median, most = percentile(spent.calls, 0.5), max(spent.calls)
    return (
        what, f"{len(spent.calls):,}", f"{median:.3f} ms", f"{most:.2f} ms",
        f"{spent.longest:.2f} ms" if spent.longest else f"below {SEEN / 1000:g} ms",
    )  # fmt: skip
