"""throughput: messages per second through one process, one at a time and in batches."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.prior_art import Bare, PriorArt, connect
from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import CALLS, Contender, Run, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import Client, Delivery

PRIOR = ("evalsha",)
"""The commands of the prior art whose server time counts."""


class Field:
    """The three queues that are compared. Each is filled anew for a read."""

    def __init__(self, place: Place, client: Client) -> None:
        chosen, run = place.settings, uuid.uuid4().hex[:8]
        self.prior = PriorArt(place.url, f"prior:{run}", chosen.streams, chosen.per_shard)
        self.bare = Bare(place.url, f"bare:{run}")
        self.queue = client.queue(
            f"bench-{run}", streams=chosen.streams, streams_per_shard=chosen.per_shard, visibility_timeout=600.0
        )
        self.batch = chosen.batch
        self.traffic = chosen.traffic()
        self.payloads = [payload for payload, _ in self.traffic]

    def write_prior(self) -> None:
        for payload, key in self.traffic:
            self.prior.write(payload, key)

    def write_bare(self) -> None:
        for payload in self.payloads:
            self.bare.write(payload)

    def write_bare_batches(self) -> None:
        for at in range(0, len(self.payloads), self.batch):
            self.bare.write_many(self.payloads[at : at + self.batch])

    def write(self) -> None:
        for payload, key in self.traffic:
            self.queue.write(payload, shard_key=key)

    def write_batches(self) -> None:
        for at in range(0, len(self.traffic), self.batch):
            self.queue.write_many(self.traffic[at : at + self.batch])

    def drain_prior(self) -> None:
        while found := self.prior.read():
            self.prior.ack(found[0], found[1])

    def drain_bare(self) -> None:
        while found := self.bare.read(1):
            self.bare.ack([entry for entry, _ in found])

    def drain_bare_batches(self) -> None:
        while found := self.bare.read(self.batch):
            self.bare.ack([entry for entry, _ in found])

    def drain(self) -> None:
        while found := self.queue.read_many(1):
            found[0].ack()

    def drain_batches(self) -> None:
        while found := self.queue.read_many(self.batch):
            self.queue.ack_many(found)

    def read_prior(self) -> list[tuple[bytes, bytes, bytes]]:
        found = [self.prior.read() for _ in self.traffic]
        return [each for each in found if each]

    def settle_prior(self, found: list[tuple[bytes, bytes, bytes]]) -> None:
        for key, entry, _ in found:
            self.prior.ack(key, entry)

    def read_batches(self) -> list[Delivery]:
        return [each for _ in range(0, len(self.traffic), self.batch) for each in self.queue.read_many(self.batch)]

    def read_single(self) -> list[Delivery]:
        return [self.queue.read() for _ in self.traffic]

    def settle(self, found: list[Delivery]) -> None:
        lost = self.queue.ack_many(found)
        assert not lost
        self.drain_batches()

    def writers(self) -> list[Contender]:
        def each(name: str, run: Callable[[], None], commands: Sequence[str], drain: Callable[[], None]) -> Contender:
            return Contender(name, len(self.traffic), run, commands, finish=lambda _: drain())

        return [
            each("prior art, one at a time", self.write_prior, PRIOR, self.drain_prior),
            each("bare XADD, one at a time", self.write_bare, ("xadd",), self.drain_bare_batches),
            each("bare XADD, pipelined", self.write_bare_batches, ("xadd",), self.drain_bare_batches),
            each("shardq write", self.write, CALLS, self.drain_batches),
            each(f"shardq write_many({self.batch})", self.write_batches, CALLS, self.drain_batches),
        ]

    def readers(self) -> list[Contender]:
        def each(
            name: str, fill: Callable[[], None], run: Callable[[], Any], commands: Sequence[str],
            finish: Callable[[Any], None] = lambda _: None,
        ) -> Contender:  # fmt: skip
            return Contender(name, len(self.traffic), run, commands, prepare=fill, finish=finish)

        bare = ("xreadgroup", "xack", "xdel")
        batch = self.batch
        return [
            each("prior art, one at a time", self.write_prior, self.read_prior, PRIOR, self.settle_prior),
            each("prior art, one at a time, with acks", self.write_prior, self.drain_prior, (*PRIOR, "xack", "xdel")),
            each("bare XREADGROUP, one at a time, with acks", self.write_bare_batches, self.drain_bare, bare),
            each("bare XREADGROUP, in batches, with acks", self.write_bare_batches, self.drain_bare_batches, bare),
            each("shardq read", self.write_batches, self.read_single, CALLS, self.settle),
            each("shardq read, with acks", self.write_batches, self.drain, CALLS),
            each(f"shardq read_many({batch})", self.write_batches, self.read_batches, CALLS, self.settle),
            each(f"shardq read_many({batch}), with acks", self.write_batches, self.drain_batches, CALLS),
        ]


def run(place: Place) -> list[Table]:
    with Client.from_url(place.url) as client, connect(place.url) as server:
        field = Field(place, client)
        field.drain_prior()  # makes its streams and groups, which is not the work of a write
        rounds, seed = place.settings.rounds, place.settings.seed
        return [
            _written(place, take_runs(server, field.writers(), rounds, seed)),
            _read(place, take_runs(server, field.readers(), rounds, seed)),
        ]


def _written(place: Place, runs: dict[str, list[Run]]) -> Table:
    batched = runs[f"shardq write_many({place.settings.batch})"]
    prior, bare = runs["prior art, one at a time"], runs["bare XADD, pipelined"]
    return Table(
        "throughput-write",
        f"Write: {place.settings.streams} streams, {place.settings.per_shard} per shard, one process",
        place.described(),
        *_compared(runs, {"prior art": prior, "pipelined XADD": bare}),
        [
            Target("batched write against the prior art's, by the clock", 1 / ratio(batched, prior, "wall"), 20),
            Target(
                "server time of a batched write against pipelined XADD", ratio(batched, bare, "commands"), 2.5, True
            ),
            Target("server CPU of a batched write against pipelined XADD", ratio(batched, bare, "server"), 2.5, True),
        ],
        _data(runs),
    )


def _read(place: Place, runs: dict[str, list[Run]]) -> Table:
    ours = f"shardq read_many({place.settings.batch})"
    prior, with_acks = runs["prior art, one at a time"], runs["prior art, one at a time, with acks"]
    alone = 1 / ratio(runs[ours], prior, "wall")
    acked = 1 / ratio(runs[f"{ours}, with acks"], with_acks, "wall")
    return Table(
        "throughput-read",
        f"Read: {place.settings.streams} streams, all busy, one process",
        place.described(),
        *_compared(
            runs,
            {
                "prior art, with acks": with_acks,
                "bare batches, with acks": runs["bare XREADGROUP, in batches, with acks"],
            },
        ),
        [
            Target("batched read against the prior art's read, neither acked, by the clock", alone, 8),
            Target("batched read and ack against the prior art's read and ack, by the clock", acked, 8),
        ],
        _data(runs),
    )


def _compared(
    runs: dict[str, list[Run]], references: dict[str, list[Run]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    columns = ["one message", "messages/s", "slowest to fastest round"]
    columns += [f"rate / {name}" for name in references]
    columns += ["client CPU", "server CPU", "server time"]
    columns += [f"server time / {name}" for name in references]
    rows = []
    for name, own in runs.items():
        rates = sorted(1e6 / run.wall for run in own)
        cells = [name, f"{1e6 / middle(own, 'wall'):,.0f}", f"{rates[0]:,.0f} to {rates[-1]:,.0f}"]
        cells += [times(1 / ratio(own, other, "wall")) for other in references.values()]
        cells += [us(middle(own, "client")), us(middle(own, "server")), us(middle(own, "commands"))]
        cells += [times(ratio(own, other, "commands")) for other in references.values()]
        rows.append(tuple(cells))
    return tuple(columns), rows


def _data(runs: dict[str, list[Run]]) -> dict[str, Any]:
    return {name: [run._asdict() for run in own] for name, own in runs.items()}
