"""surveys: what does a look at tenants cost the server, beside a plain look at all that their queue knows of them?

Each tenant has a message in the streams; half of them have a second one, which waits behind it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, times
from benchmarks.rounds import Contender, Run, middle, numbers, ratio, take_runs
from benchmarks.settings import Place
from shardq import Client, Message, Queue
from shardq.ops.inspect.tenants import tenant, tenants
from shardq.ops.queue.steps import Op

TENANTS: Final = 20
"""For each message of the settings: 100,000 with 5,000."""
LOOKS: Final = 10
"""In a round."""
PLAIN: Final = "plain HSCAN of all accounts"
TABLE: Final = "tenants()"
OLDEST: Final = 'tenants("oldest")'
ONE: Final = "tenant()"
KEPT: Final = 10_000
"""Calls of which the server keeps how long they took."""

Look = Callable[[], Op[Any]]


def run(place: Place) -> list[Table]:
    chosen = place.settings
    count = chosen.messages * TENANTS
    with Client.from_url(place.url) as client, connect(place.url) as server:
        queue = client.queue(f"surveys-{uuid.uuid4().hex[:8]}", streams=chosen.streams, create=True)
        for size in (count, count // 2):
            for start in range(0, size, 1000):
                queue.write_many([Message(b"x", f"t{n}") for n in range(start, min(start + 1000, size))])
        looks = _looks(queue)
        contenders = [Contender(name, LOOKS, _repeated(queue, look)) for name, look in looks.items()]
        contenders.append(Contender(PLAIN, LOOKS, lambda: [_read_all(server, queue) for _ in range(LOOKS)]))
        seen = {name: (_steps(queue, look), _longest(server, queue, look)) for name, look in looks.items()}
        seen[PLAIN] = (_read_all(server, queue), 0.0)
        runs = take_runs(server, contenders, chosen.rounds, chosen.seed)
    return [_table(place, runs, seen, count)]


def _looks(queue: Queue) -> dict[str, Look]:
    state = queue.state
    return {
        TABLE: lambda: tenants(state, "backlog", 20, 0),
        'tenants("in_flight")': lambda: tenants(state, "in_flight", 20, 0),
        OLDEST: lambda: tenants(state, "oldest", 20, 0),
        ONE: lambda: tenant(state, "t7"),
        "tenant(neighbours=True)": lambda: tenant(state, "t7", neighbours=True),
    }


def _repeated(queue: Queue, look: Look) -> Callable[[], Any]:
    return lambda: [queue.client.run(look()) for _ in range(LOOKS)]


def _read_all(server: Any, queue: Queue) -> int:
    """Read all accounts, and return in how many calls."""
    cursor, calls = None, 0
    while cursor != 0:
        cursor, _ = server.hscan(queue.state.keys.meta, cursor or 0, "t:*", 1000)
        calls += 1
    return calls


def _steps(queue: Queue, look: Look) -> int:
    """In how many calls a look is made."""
    steps = 0

    def counted(op: Op[Any]) -> Op[Any]:
        nonlocal steps
        outcome: Any = None
        while True:
            try:
                step = op.send(outcome)
            except StopIteration as done:
                return done.value
            steps += 1
            outcome = yield step

    queue.client.run(counted(look()))
    return steps


def _longest(server: Any, queue: Queue, look: Look) -> float:
    """How many ms of the server the longest call of a look takes, in the quickest of some looks."""
    longest: list[float] = []
    for _ in range(3):
        with _kept(server):
            queue.client.run(look())
            longest.append(max(each["duration"] for each in server.slowlog_get(KEPT)) / 1000)
    return min(longest)


@contextmanager
def _kept(server: Any) -> Iterator[None]:
    """Let the server keep how long each call takes."""
    names = ("slowlog-log-slower-than", "slowlog-max-len")
    before = {name: server.config_get(name)[name] for name in names}
    for name, value in zip(names, (0, KEPT), strict=True):
        server.config_set(name, value)
    server.slowlog_reset()
    try:
        yield
    finally:
        for name, value in before.items():
            server.config_set(name, value)


def _table(place: Place, runs: dict[str, list[Run]], seen: dict[str, tuple[int, float]], count: int) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, own in runs.items():
        calls, longest = seen[name]
        share = times(ratio(own, runs[PLAIN], "server"))
        cells = (f"{calls:,}", _ms(middle(own, "server")), share, f"{longest:.1f} ms" if longest else "-")
        rows.append((name, *cells, _ms(middle(own, "client")), _ms(middle(own, "wall"))))
    return Table(
        "surveys",
        f"Looks at tenants of {count:,}",
        place.described(),
        ("a look", "calls", "server CPU", "/ plain", "longest call", "client CPU", "clock"),
        rows,
        [
            Target("calls of tenants()", seen[TABLE][0], 110, True, ""),
            Target("server CPU of tenants()", middle(runs[TABLE], "server") / 1000, 200, True, " ms"),
            Target('calls of tenants("oldest")', seen[OLDEST][0], 10, True, ""),
            Target('server CPU of tenants("oldest")', middle(runs[OLDEST], "server") / 1000, 15, True, " ms"),
            Target("calls of tenant()", seen[ONE][0], 3, True, ""),
        ],
        numbers(runs),
    )


def _ms(us: float) -> str:
    return f"{us / 1000:.3g} ms"
