"""window: what does the admission window cost? Messages are written, read and acked with it and without it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import Contender, Run, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import Client, Queue

PAYLOAD = b"x" * 100


@dataclass(frozen=True, slots=True)
class Load:
    """The order of tenants, how many messages are written before they are read, and the largest ratio in batches."""

    name: str
    key: Callable[[int], str]
    backlog: int
    bound: float = 1.15


FLOOD = 10**9
BOUND_OF_SINGLES = 1.2
LOADS = (
    Load("one shard key, read at once", lambda _: "t", 100),
    Load("one shard key, all written before", lambda _: "t", FLOOD),
    Load("1,000 quiet tenants, read at once", lambda n: f"t{n % 1000}", 100),
    Load("bursts of 10, read at once", lambda n: f"t{n // 10 % 1000}", 100),
    Load("20 floods, all written before", lambda n: f"t{n % 20}", FLOOD),
    Load("100 floods, all written before", lambda n: f"t{n % 100}", FLOOD, 1.6),
)


def _chunks(most: int, size: int) -> Iterator[range]:
    for start in range(0, most, size):
        yield range(start, min(most, start + size))


def _cycle(queue: Queue, load: Load, messages: int, batch: int) -> None:
    """Write, read and ack: in batches, or one at a time (*batch* 1)."""
    for part in _chunks(messages, min(messages, max(load.backlog, batch))):
        for some in _chunks(len(part), batch):
            keys = [load.key(part[at]) for at in some]
            if batch == 1:
                queue.write(PAYLOAD, shard_key=keys[0])
            else:
                queue.write_many([(PAYLOAD, key) for key in keys])
        left = len(part)
        while left:
            found = queue.read_many(min(batch, left))
            left -= len(found)
            if batch == 1:
                found[0].ack()
            else:
                assert not queue.ack_many(found)


def run(place: Place) -> list[Table]:
    """Both queues in the same server, each round in another order."""
    chosen, name = place.settings, uuid.uuid4().hex[:8]
    sizes = {chosen.batch: chosen.messages, 1: max(20, chosen.messages // 5)}
    with Client.from_url(place.url) as client, connect(place.url) as server:
        queues = {
            window: client.queue(
                f"window-{name}-{window}", streams=chosen.streams, streams_per_shard=chosen.per_shard,
                visibility_timeout=600.0, window=window,
            ) for window in (0, 1)
        }  # fmt: skip
        contenders = [
            Contender(f"{load.name}|{batch}|{window}", messages, _running(queue, load, messages, batch))
            for load in LOADS
            for batch, messages in sizes.items()
            for window, queue in queues.items()
        ]
        return [_table(place, take_runs(server, contenders, chosen.rounds, chosen.seed), list(sizes))]


def _running(queue: Queue, load: Load, messages: int, batch: int) -> Callable[[], Any]:
    return lambda: _cycle(queue, load, messages, batch)


def _table(place: Place, runs: dict[str, list[Run]], batches: Sequence[int]) -> Table:
    rows: list[tuple[str, ...]] = []
    targets = []
    for load in LOADS:
        for batch in batches:
            off, on = (runs[f"{load.name}|{batch}|{window}"] for window in (0, 1))
            shape = "one at a time" if batch == 1 else f"in batches of {batch}"
            cost = ratio(on, off, "server")
            rows.append((
                f"{load.name}, {shape}", us(middle(off, "server")), us(middle(on, "server")), times(cost),
                times(ratio(on, off, "commands")), times(ratio(on, off, "wall")),
            ))  # fmt: skip
            bound = BOUND_OF_SINGLES if batch == 1 else load.bound
            targets.append(Target(f"{load.name}, {shape}: server CPU", cost, bound, True))
    return Table(
        "window",
        f"The admission window: {place.settings.streams} streams, {place.settings.per_shard} per shard",
        place.described(),
        ("written, read and acked", "server CPU, off", "window=1", "on : off", "server time", "by the clock"),
        rows,
        targets,
        {name: [run._asdict() for run in each] for name, each in runs.items()},
    )
