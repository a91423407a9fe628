"""pickup: how soon does a blocked reader get messages that were written? `expiry` has those that came due.

It is an open loop: messages arrive by a Poisson process, whether or not earlier ones were picked up, and a late start
of a write counts. Each arrival goes to one contender at random, so all run on the same machine at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import random
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.prior_art import Bare, PriorArt, connect
from benchmarks.report import Table, Target, percentile, times
from benchmarks.settings import Place
from shardq import AsyncClient, Client, Delivery, Empty, Queue, Worker

READERS = 2
STOP = struct.pack("d", -1.0)
BLOCK = 5.0
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}

See = Callable[[bytes], bool]
"""What a reader does with a payload. It ends when this says no."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of queue and reader: the writer, and the loop of its readers, which runs in processes of their own.

    `bounds` are of the bare stream's: how long its p50 and p99 may be.
    """

    name: str
    writer: Callable[[str, str], Callable[[bytes], Any]]
    reader: Callable[[str, str, See], None]
    bounds: tuple[tuple[float, float], ...] = ()


def write_bare(url: str, name: str) -> Callable[[bytes], Any]:
    return Bare(url, name).write


def read_bare(url: str, name: str, see: See) -> None:
    bare = Bare.__new__(Bare)  # the writer made the group
    bare.redis, bare.name = connect(url), name
    goes_on = True
    while goes_on:
        for entry, payload in bare.read(1, BLOCK):
            goes_on = see(payload)
            bare.ack([entry])


def write_prior(url: str, name: str) -> Callable[[bytes], Any]:
    queue = PriorArt(url, name, 64, 6)
    queue.read(0.001)  # makes the groups
    return lambda payload: queue.write(payload, "tenant")


def read_prior(url: str, name: str, see: See) -> None:
    queue = PriorArt(url, name, 64, 6)
    goes_on = True
    while goes_on:
        if found := queue.read(BLOCK):
            goes_on = see(found[2])
            queue.ack(found[0], found[1])


def queue_of(client: Client, name: str) -> Queue:
    return client.queue(name, streams=64, streams_per_shard=6)


def write_shardq(url: str, name: str) -> Callable[[bytes], Any]:
    queue = queue_of(Client.from_url(url), name)
    queue.len()
    return lambda payload: queue.write(payload, shard_key="tenant")


def read_shardq(url: str, name: str, see: See) -> None:
    with Client.from_url(url) as client:
        queue, goes_on = queue_of(client, name), True
        while goes_on:
            with contextlib.suppress(Empty):
                delivery = queue.read(block=BLOCK)
                goes_on = see(delivery.body)
                delivery.ack()


def await_shardq(url: str, name: str, see: See) -> None:
    async def read() -> None:
        async with AsyncClient.from_url(url) as client:
            queue, goes_on = client.queue(name, streams=64, streams_per_shard=6), True
            while goes_on:
                with contextlib.suppress(Empty):
                    delivery = await queue.read(block=BLOCK)
                    goes_on = see(delivery.body)
                    await delivery.ack()

    asyncio.run(read())


def work_shardq(url: str, name: str, see: See) -> None:
    def handle(delivery: Delivery) -> None:
        if not see(delivery.body):
            worker.stop()

    with Client.from_url(url) as client:
        worker = Worker(queue_of(client, name), handle, concurrency=1)
        worker.run()


BARE = Kind("bare XADD, XREADGROUP BLOCK", write_bare, read_bare)
PRIOR = Kind("prior art", write_prior, read_prior)
SYNC = Kind("shardq, Client", write_shardq, read_shardq, ((0.5, 1.6), (0.99, 1.2)))
ASYNC = Kind("shardq, AsyncClient", write_shardq, await_shardq, ((0.5, 1.7),))
WORKER = Kind("shardq, Worker", write_shardq, work_shardq, ((0.5, 1.7),))
KINDS = (BARE, PRIOR, SYNC, ASYNC, WORKER)


def collect(number: int, url: str, name: str, to: Connection) -> None:
    """Main function of a reader's process: the seconds from each write to the read that returned it."""
    found = []

    def see(payload: bytes) -> bool:
        now = time.monotonic()
        written = struct.unpack("d", payload[:8])[0]
        if written < 0:
            return False
        found.append(now - written)
        return True

    KINDS[number].reader(url, name, see)
    to.send(found)


def run(place: Place) -> list[Table]:
    return [_latency(place)]


def _latency(place: Place) -> Table:
    chosen = place.settings
    spawn = multiprocessing.get_context("spawn")
    names = [f"pickup-{uuid.uuid4().hex[:8]}" for _ in KINDS]
    writers = [kind.writer(place.url, name) for kind, name in zip(KINDS, names, strict=True)]
    pipes: list[list[Connection]] = [[] for _ in KINDS]
    readers = []
    for number in range(len(KINDS)):
        for _ in range(READERS):
            ours, theirs = spawn.Pipe(duplex=False)
            pipes[number].append(ours)
            readers.append(spawn.Process(target=collect, args=(number, place.url, names[number], theirs), daemon=True))
            readers[-1].start()
            theirs.close()  # so that a reader that fails ends the wait for what it found
    until_blocked(place.url, len(readers))
    _arrivals(chosen.seconds, chosen.rate * len(KINDS), chosen.payload, writers, random.Random(chosen.seed))
    time.sleep(0.2)
    found = [_gathered(write, each) for write, each in zip(writers, pipes, strict=True)]
    for reader in readers:
        reader.join()
    return _latency_table(place, {kind.name: values for kind, values in zip(KINDS, found, strict=True)})


def _gathered(write: Callable[[bytes], Any], pipes: list[Connection]) -> list[list[float]]:
    """Tell the readers of one kind to stop until all have. A worker that reads ahead may be told twice."""
    found: list[list[float]] = []
    for pipe in pipes:
        while not pipe.poll(0.1):
            write(STOP)
        found.append(pipe.recv())
    return found


def _arrivals(
    seconds: float, rate: float, size: int, writers: list[Callable[[bytes], Any]], dice: random.Random
) -> None:
    due = time.monotonic()
    end = due + seconds
    while due < end:
        due += dice.expovariate(rate)
        early = due - time.monotonic()
        if early > 0:
            time.sleep(early)
        start = time.monotonic() if early > 0 else due  # a writer that is behind counts from when it was due
        dice.choice(writers)(struct.pack("d", start).ljust(size, b"\0"))


def until_blocked(url: str, count: int) -> None:
    """Wait until all readers block, because messages that are due earlier would say nothing about them."""
    deadline = time.monotonic() + 60
    with connect(url) as server:
        while int(server.info("clients")["blocked_clients"]) < count:
            if time.monotonic() > deadline:
                raise TimeoutError("the readers did not block within 60 s")
            time.sleep(0.01)


def _latency_table(place: Place, of_readers: dict[str, list[list[float]]]) -> Table:
    found = {name: list(chain(*each)) for name, each in of_readers.items()}
    reference = found[BARE.name]
    rows = []
    for name, values in found.items():
        cells = [name, str(len(values)), _quarters(of_readers[name])]
        for share in SHARES.values():
            value, bare = percentile(values, share), percentile(reference, share)
            cells += [f"{value * 1e3:.2f} ms", times(value / bare)]
        rows.append(tuple(cells))
    return Table(
        "pickup",
        f"Write to read, {READERS} blocked readers in processes of their own, {place.settings.rate:g} messages/s each",
        place.described("one open-loop run"),
        ("", "messages", "p50 of each quarter of the run", *(word for share in SHARES for word in (share, "/ bare"))),
        rows,
        [
            Target(
                f"{kind.name}: p{100 * share:g} against {BARE.name}",
                percentile(found[kind.name], share) / percentile(reference, share),
                bound,
                most=True,
            )
            for kind in KINDS
            for share, bound in kind.bounds
        ],
        dict(found),
    )


def _quarters(of_readers: list[list[float]]) -> str:
    """Between which values the medians of the run's quarters lie."""
    quarters = [
        [v for own in of_readers for v in own[at * len(own) // 4 : (at + 1) * len(own) // 4]] for at in range(4)
    ]
    middles = [percentile(each, 0.5) * 1e3 for each in quarters if each]
    return f"{min(middles):.2f} to {max(middles):.2f} ms"
