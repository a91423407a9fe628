"""reads: what does a read cost the server when one of N streams is busy, and what does each declared key cost?"""

from __future__ import annotations

import uuid
from typing import Any

from benchmarks.prior_art import PriorArt, connect
from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import Contender, Run, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import Client, Delivery, Queue

SIZES = (8, 64, 256, 1024)
DECLARED = (1, 8, 70, 262, 1030)


class Lane:
    """One tenant with one stream, among N streams that are empty: in both kinds of queue."""

    def __init__(self, place: Place, client: Client, streams: int, reads: int) -> None:
        name = f"reads-{streams}-{uuid.uuid4().hex[:8]}"
        self.streams, self.reads = streams, reads
        self.prior = PriorArt(place.url, name, streams, 1)
        self.queue: Queue = client.queue(name, streams=streams, streams_per_shard=1, visibility_timeout=600.0)

    def fill(self) -> None:
        self.queue.write_many([(b"x" * 100, "tenant")] * self.reads)

    def fill_prior(self) -> None:
        for _ in range(self.reads):
            self.prior.write(b"x" * 100, "tenant")

    def read(self) -> list[Delivery]:
        return [self.queue.read() for _ in range(self.reads)]

    def read_prior(self) -> list[Any]:
        return [self.prior.read() for _ in range(self.reads)]

    def settle_prior(self, found: list[Any]) -> None:
        for key, entry, _ in found:
            self.prior.ack(key, entry)

    def contenders(self) -> list[Contender]:
        ours, old = f"shardq {self.streams}", f"prior art {self.streams}"
        return [
            Contender(ours, self.reads, self.read, prepare=self.fill, finish=self.queue.ack_many),
            Contender(old, self.reads, self.read_prior, prepare=self.fill_prior, finish=self.settle_prior),
        ]


def run(place: Place) -> list[Table]:
    chosen = place.settings
    reads = max(10, chosen.messages // 20)
    with Client.from_url(place.url) as client, connect(place.url) as server:
        contenders = [each for n in SIZES for each in Lane(place, client, n, reads).contenders()]
        runs = take_runs(server, contenders, chosen.rounds, chosen.seed)
        return [_table(place, runs, reads), _declared(place, server)]


def _table(place: Place, runs: dict[str, list[Run]], reads: int) -> Table:
    rows = []
    for n in SIZES:
        ours, old = runs[f"shardq {n}"], runs[f"prior art {n}"]
        spent = [run.commands for run in ours]
        cells = [str(n), us(middle(old, "commands")), us(middle(ours, "commands"))]
        cells += [f"{us(min(spent))} to {us(max(spent))}", times(ratio(old, ours, "commands"))]
        cells += [times(ratio(ours, runs[f"shardq {SIZES[0]}"], "commands"))]
        cells += [us(middle(old, "wall")), us(middle(ours, "wall")), times(ratio(old, ours, "wall"))]
        rows.append(tuple(cells))
    first, last = SIZES[0], SIZES[-1]
    at_256 = ratio(runs["prior art 256"], runs["shardq 256"], "commands")
    grown = ratio(runs[f"shardq {last}"], runs[f"shardq {first}"], "commands")
    return Table(
        "reads",
        f"Read when one of N streams is busy: {reads} reads a round",
        place.described(),
        ("N", "server: prior art", "server: shardq", "rounds", "ratio", f"shardq / its {first}", "clock: prior art",
         "clock: shardq", "ratio"),
        rows,
        [
            Target("the prior art's server time at 256 streams against shardq's", at_256, 8),
            Target(f"shardq's server time at {last:,} streams against {first}", grown, 1.3, True),
        ],
        {name: [run._asdict() for run in own] for name, own in runs.items()},
    )  # fmt: skip


def _declared(place: Place, server: Any) -> Table:
    sha = server.script_load("return 1")
    calls = max(20, place.settings.messages // 10)

    def contender(count: int) -> Contender:
        keys = [f"shardq:{{declared}}:s{number}" for number in range(count)]

        def call() -> None:
            for _ in range(calls):
                server.evalsha(sha, count, *keys)

        return Contender(str(count), calls, call)

    runs = take_runs(server, [contender(count) for count in DECLARED], place.settings.rounds, place.settings.seed)
    fewest = runs[str(DECLARED[0])]
    rows = []
    for name, own in runs.items():
        cells = [name, us(middle(own, "commands")), times(ratio(own, fewest, "commands"))]
        cells += [us(middle(own, "server")), us(middle(own, "wall")), times(ratio(own, fewest, "wall"))]
        rows.append(tuple(cells))
    return Table(
        "reads-declared",
        "An empty script, by the number of declared keys",
        place.described(),
        ("keys", "server time", "/ 1 key", "server CPU", "clock", "/ 1 key"),
        rows,
        data={name: [run._asdict() for run in own] for name, own in runs.items()},
    )
