"""expiry: how late does a blocked reader get messages that came due: after a lease, a delayed write, `nack(delay=)`?

There are one reader, in a process of its own, and one writer with Poisson arrivals. Lateness is the time from the due
time by the server's clock to the read that returned the message. Both clocks are those of the same machine.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import struct
import time
import uuid
from multiprocessing.connection import Connection
from typing import Final

from benchmarks.pickup import until_blocked
from benchmarks.report import Table, Target, percentile
from benchmarks.settings import Place
from shardq import Client, Delivery, LeaseLost, Queue
from shardq.model import MessageId

LEASE, DELAYED, NACKED, BUSY = range(4)
KINDS: Final = ("leases that ended", "delayed writes", "nack(delay=)")
OTHERS: Final = 5
"""For so many leases one message is written with a delay, and one is given back with a delay."""

SHORTEST, LONGEST = 0.2, 1.0
"""Seconds of a lease or a delay."""

EDGES: Final = (1, 2, 5, 10, 25, 50, 100, 250)
FASTER: Final = 5
BULK: Final = 10
BODY = struct.Struct("!Bd")


def run(place: Place) -> list[Table]:
    return [_table(place, "idle"), _table(place, "busy")]


def _table(place: Place, state: str) -> Table:
    chosen = place.settings
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    name = f"expiry-{uuid.uuid4().hex[:8]}"
    counts = (chosen.messages, max(1, chosen.messages // OTHERS), max(1, chosen.messages // OTHERS))
    rate = chosen.rate * FASTER
    with Client.from_url(place.url) as client:
        queue = client.queue(name, create=True)
        queue.len()
        reader = spawn.Process(target=collect, args=(place.url, name, counts, chosen.seed, theirs), daemon=True)
        reader.start()
        theirs.close()  # so that a reader that fails ends the wait for what it found
        until_blocked(place.url, 1)
        flood = spawn.Process(target=busy, args=(place.url, name, rate), daemon=True)
        if state == "busy":
            flood.start()
        write(queue, counts, rate, random.Random(chosen.seed))
        found = ours.recv()
        reader.join()
        if state == "busy":
            flood.terminate()
            flood.join()
    rows = [(what, *_row(values)) for what, values in zip(KINDS, found, strict=True)]
    worst = percentile(found[LEASE], 0.99) / 0.25
    other = f", and {rate * BULK:,.0f} other messages/s" if state == "busy" else ""
    return Table(
        f"expiry-{state}",
        f"How late a blocked reader gets what comes due, {rate:g} leases/s{other}: shares within so many ms",
        place.described("one open-loop run"),
        ("", "messages", *(f"{edge} ms" for edge in EDGES), "p50", "p99", "max"),
        rows,
        [Target("p99 of leases that ended, against 250 ms", worst, 1.0, True)],
        dict(zip(KINDS, found, strict=True)),
    )


def _row(values: list[float]) -> tuple[str, ...]:
    shares = (sum(1 for value in values if value * 1e3 <= edge) / len(values) for edge in EDGES)
    figures = (percentile(values, 0.5), percentile(values, 0.99), max(values))
    return (
        f"{len(values):,}", *(f"{share:.1%}" for share in shares), *(f"{value * 1e3:.1f} ms" for value in figures)
    )  # fmt: skip


def write(queue: Queue, counts: tuple[int, ...], rate: float, dice: random.Random) -> None:
    """Write so many messages of each kind in random order; leases arrive at *rate* per second."""
    kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
    dice.shuffle(kinds)
    due = time.monotonic()
    for kind in kinds:
        due += dice.expovariate(rate * len(kinds) / counts[LEASE])
        time.sleep(max(0.0, due - time.monotonic()))
        delay = dice.uniform(SHORTEST, LONGEST)
        queue.write(BODY.pack(kind, delay), shard_key="tenant", delay=delay if kind == DELAYED else None)


def busy(url: str, name: str, rate: float) -> None:
    """Write to the same queue, from other tenants, until terminated."""
    with Client.from_url(url) as client:
        queue = client.queue(name, create=True)
        for number in range(10**9):
            queue.write_many([(BODY.pack(BUSY, 0.0), f"other-{number % 50}-{each}") for each in range(BULK)])
            time.sleep(1 / rate)


def collect(url: str, name: str, counts: tuple[int, ...], seed: int, to: Connection) -> None:
    """Seconds from when each message was due to the read that returned it, by kind."""
    found: list[list[float]] = [[], [], []]
    due: dict[str, float] = {}
    dice = random.Random(seed)
    with Client.from_url(url) as client:
        queue = client.queue(name, create=True)
        while any(len(values) < count for values, count in zip(found, counts, strict=True)):
            lasts = dice.uniform(SHORTEST, LONGEST)
            deliveries = queue.read_many(100, block=5, visibility_timeout=lasts)
            now = time.time()
            queue.ack_many([each for each in deliveries if _done(each, now, lasts, found, due)])
    to.send(found)


def _done(delivery: Delivery, now: float, lasts: float, found: list[list[float]], due: dict[str, float]) -> bool:
    """Record a message that came due; one that shall come again is kept or given back. True if it can be acked."""
    kind, delay = BODY.unpack(delivery.body)
    if kind == BUSY:
        return True
    written = MessageId.parse(delivery.message_id).written_ms / 1000
    if kind == DELAYED:
        found[kind].append(now - written - delay)
    elif delivery.message_id in due:
        found[kind].append(now - due.pop(delivery.message_id))
    elif kind == NACKED:
        again = time.time() + delay
        with contextlib.suppress(LeaseLost):  # on a machine that stood still: it comes again as if for the first time
            delivery.nack(delay=delay)
            due[delivery.message_id] = again
        return False
    else:
        due[delivery.message_id] = written + delivery.pickup_delay + lasts  # the server's clock when it was leased
        return False
    return True
