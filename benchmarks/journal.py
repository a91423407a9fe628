"""journal: what does a journal cost? Compared with the same queue without one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import Contender, Run, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import Client, Delivery, Queue

KEPT = 1_000_000
STEPS = ("write", "read", "ack")


class Subject:
    """A queue, with a journal or without, and the traffic for it, in batches or one by one."""

    def __init__(self, place: Place, client: Client, journal: int, batch: int) -> None:
        chosen, name = place.settings, f"journal-{uuid.uuid4().hex[:8]}"
        self.batch, self.journal = batch, journal
        self.traffic = chosen.traffic()[: chosen.messages if batch > 1 else max(10, chosen.messages // 10)]
        self.queue: Queue = client.queue(
            name, streams=chosen.streams, streams_per_shard=chosen.per_shard, visibility_timeout=600.0, journal=journal
        )
        self.held: list[Delivery] = []

    def write(self) -> None:
        if self.batch == 1:
            for payload, key in self.traffic:
                self.queue.write(payload, shard_key=key)
        else:
            for start in range(0, len(self.traffic), self.batch):
                self.queue.write_many(self.traffic[start : start + self.batch])

    def read(self) -> None:
        while len(self.held) < len(self.traffic):
            found = [self.queue.read()] if self.batch == 1 else self.queue.read_many(self.batch)
            self.held += found

    def ack(self) -> None:
        if self.batch == 1:
            for each in self.held:
                each.ack()
        else:
            for start in range(0, len(self.held), self.batch):
                self.queue.ack_many(self.held[start : start + self.batch])
        self.held = []

    def contender(self, step: str) -> Contender:
        """A contender for one of the three steps; the steps before it prepare, those after it clean up."""
        calls: list[Callable[[], None]] = [self.write, self.read, self.ack]
        at = STEPS.index(step)

        def prepare() -> None:
            for call in calls[:at]:
                call()

        def finish(_: Any) -> None:
            for call in calls[at + 1 :]:
                call()

        return Contender(
            _name(step, self.batch, self.journal), len(self.traffic), calls[at], prepare=prepare, finish=finish
        )


def _name(step: str, batch: int, journal: int) -> str:
    size = "one at a time" if batch == 1 else f"batches of {batch}"
    return f"{step}, {size}, {'journal' if journal else 'none'}"


def run(place: Place) -> list[Table]:
    chosen = place.settings
    sizes = (chosen.batch, 1)
    with Client.from_url(place.url) as client, connect(place.url) as server:
        subjects = [Subject(place, client, journal, batch) for batch in sizes for journal in (0, KEPT)]
        contenders = [each.contender(step) for each in subjects for step in STEPS]
        runs = take_runs(server, contenders, chosen.rounds, chosen.seed)
        bytes_per_event = [_bytes_per_event(server, each) for each in subjects if each.journal]
    return [_table(place, runs, sizes, bytes_per_event)]


def _bytes_per_event(server: Any, subject: Subject) -> float:
    keys = subject.queue.state.keys
    begun = int(server.hget(keys.meta, "created")) * 1000
    events = int(server.hget(keys.meta, "events")) - begun
    return float(server.memory_usage(keys.journal, samples=0)) / min(events, KEPT)


def _table(place: Place, runs: dict[str, list[Run]], sizes: tuple[int, ...], size: list[float]) -> Table:
    rows = []
    for batch in sizes:
        for step in STEPS:
            off, on = runs[_name(step, batch, 0)], runs[_name(step, batch, KEPT)]
            cells = [_name(step, batch, 0).removesuffix(", none")]
            for field in ("commands", "server", "client", "wall"):
                cells += [us(middle(off, field)), us(middle(on, field)), times(ratio(on, off, field))]
            rows.append(tuple(cells))
    batched = [ratio(runs[_name(step, sizes[0], KEPT)], runs[_name(step, sizes[0], 0)], "server") for step in STEPS]
    single = [ratio(runs[_name(step, 1, KEPT)], runs[_name(step, 1, 0)], "server") for step in STEPS]
    fields = ("server time", "server CPU", "client CPU", "clock")
    return Table(
        "journal",
        f"With and without a journal, per message; an event takes {size[0]:.0f} B in batches, {size[1]:.0f} B one at a "
        "time",
        place.described(),
        ("", *(f"{field}{of}" for field in fields for of in ("", ", journal", ": ratio"))),
        rows,
        [
            Target("server CPU of a batch with a journal against without, at worst", max(batched), 1.5, True),
            Target("server CPU of a single call, at worst", max(single), 1.25, True),
        ],
        {name: [run._asdict() for run in own] for name, own in runs.items()},
    )
