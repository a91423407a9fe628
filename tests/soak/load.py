"""Producers and consumers that log all they do, in threads or, run as a program, in processes of their own.

python -m tests.soak.load produce|consume URL QUEUE FOLDER NAME [setting=value ...]
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from shardq import Delivery, LeaseLost, Queue
from tests.clients import ClientKind, opened

T = TypeVar("T")


@dataclass(frozen=True)
class Habits:
    """How a process behaves. Times are seconds, odds are between 0 and 1."""

    client_kind: ClientKind = "sync"
    seed: int = 0
    messages: int = 1000  # that a producer writes
    tenants: int = 50
    batch: int = 50  # at most, of writes and of reads
    pause: float = 0.0  # between two batches of a producer, at most
    lease: float = 0.8
    delay: float = 0.05  # of an ack, mostly
    late: float = 0.01  # odds that an ack comes at about the lease's end, or later
    nack: float = 0.01  # odds that a delivery is given back
    reject: float = 0.0  # odds that it becomes a dead letter
    extend: float = 0.01  # odds that a lease is extended before
    timeout: float = 60.0

    @classmethod
    def parse(cls, words: Sequence[str]) -> Habits:
        """From `name=value` words."""
        given = dict(word.split("=", 1) for word in words)
        return cls(**{name: type(getattr(cls, name))(text) for name, text in given.items()})

    def words(self) -> list[str]:
        """What `parse` reads back."""
        return [f"{item.name}={getattr(self, item.name)}" for item in fields(self)]


class Log:
    """One file of events; each is one write, so a killed process leaves whole lines."""

    def __init__(self, folder: Path, name: str, ending: str = ".jsonl") -> None:
        self.name = name
        self._file = os.open(folder / f"{name}{ending}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, event: str, **facts: object) -> None:
        """Append one event."""
        line = json.dumps({"e": event, **facts}).encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError("half an event was written")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def produce(queue: Queue, log: Log, habits: Habits, stop: threading.Event) -> None:
    """Write so many messages, one at a time or in batches, until done or told to stop."""
    rng = random.Random(f"{habits.seed} {log.name}")
    at = 0
    while at < habits.messages and not stop.is_set():
        size = 1 if rng.random() < 0.5 else rng.randint(2, max(2, habits.batch))
        part = [f"{log.name}.{number}" for number in range(at, min(at + size, habits.messages))]
        tenants = [f"tenant-{rng.randrange(habits.tenants)}" for _ in part]
        log.add("try", values=part)
        if len(part) == 1:
            ids = [queue.write(part[0], shard_key=tenants[0])]
        else:
            ids = queue.write_many(list(zip(part, tenants, strict=True)))
        log.add("wrote", values=part, ids=ids)
        at += len(part)
        stop.wait(rng.uniform(0, habits.pause))


class Unanswered(Exception):
    """A call has no outcome that a consumer could go by; it goes on without."""


class Consumer:
    """Reads, waits a random time for each delivery, some beyond the lease's end, then acks or gives back."""

    def __init__(self, queue: Queue, log: Log, habits: Habits) -> None:
        self._queue, self._log, self._habits = queue, log, habits
        self._rng = random.Random(f"{habits.seed} {log.name}")
        self._numbers = itertools.count()
        self._held: list[tuple[float, int, Delivery]] = []  # a heap, by when to settle

    def run(self, stop: threading.Event) -> None:
        """Until told to stop; then settle what is held."""
        while not stop.is_set():
            self._take()
            self._settle(time.monotonic())
        self._settle(float("inf"))

    def _take(self) -> None:
        habits = self._habits
        wait = 0.2 if not self._held else min(0.2, max(0.0, self._held[0][0] - time.monotonic()))
        count = 1 if self._rng.random() < 0.3 else self._rng.randint(2, max(2, habits.batch))
        asked = time.monotonic()
        try:
            deliveries = self._ask(
                "read_many", lambda: self._queue.read_many(count, block=wait, visibility_timeout=habits.lease)
            )
        except Unanswered:
            return
        at = time.monotonic()
        for index, delivery in enumerate(deliveries):
            number = next(self._numbers)
            self._log.add(
                "got", by=self._log.name, n=number, id=delivery.message_id, value=delivery.payload,
                count=delivery.count, asked=asked, at=at, until=time.monotonic() + delivery.remaining,
                ends=at + habits.lease, batch=index,
            )  # fmt: skip
            heapq.heappush(self._held, (at + self._patience(), number, delivery))

    def _ask(self, verb: str, call: Callable[[], T]) -> T:
        """What a call returns. A consumer that outlives errors raises Unanswered here."""
        return call()

    def _patience(self) -> float:
        if self._rng.random() < self._habits.late:
            return self._habits.lease * self._rng.uniform(0.95, 1.6)
        return self._rng.uniform(0, self._habits.delay)

    def _settle(self, now: float) -> None:
        due = []
        while self._held and self._held[0][0] <= now:
            _, number, delivery = heapq.heappop(self._held)
            if now < float("inf") and self._rng.random() < self._habits.extend:
                self._extend(number, delivery)
            else:
                due.append((number, delivery))
        verbs = [self._verb() for _ in due]
        for verb, (number, delivery) in zip(verbs, due, strict=True):
            if verb != "ack":
                self._one(verb, number, delivery)
        dones = [pair for verb, pair in zip(verbs, due, strict=True) if verb == "ack"]
        if len(dones) > 2:
            self._many(dones)
        else:
            for number, delivery in dones:
                self._one("ack", number, delivery)

    def _verb(self) -> str:
        draw = self._rng.random()
        if draw < self._habits.nack:
            return "nack"
        return "reject" if draw < self._habits.nack + self._habits.reject else "ack"

    def _extend(self, number: int, delivery: Delivery) -> None:
        lease = self._habits.lease
        try:
            self._ask("extend", lambda: delivery.extend(lease))
        except (LeaseLost, Unanswered):
            return
        now = time.monotonic()
        self._log.add("extended", by=self._log.name, n=number, until=now + delivery.remaining, ends=now + lease)
        heapq.heappush(self._held, (now + self._patience(), number, delivery))

    def _one(self, verb: str, number: int, delivery: Delivery) -> None:
        name = self._log.name
        delay = self._rng.choice((0.0, 0.0, 0.05)) if verb == "nack" else 0.0
        self._log.add("settling", by=name, n=number, verb=verb, at=time.monotonic(), delay=delay)
        try:
            self._ask(verb, lambda: self._settle_one(verb, delivery, delay))
            ok = True
        except LeaseLost:
            ok = False
        except Unanswered:
            return
        self._log.add("settled", by=name, n=number, ok=ok, at=time.monotonic())

    @staticmethod
    def _settle_one(verb: str, delivery: Delivery, delay: float) -> None:
        if verb == "nack":
            delivery.nack(delay=delay, error="soak")
        elif verb == "reject":
            delivery.reject("soak")
        else:
            delivery.ack()

    def _many(self, dones: list[tuple[int, Delivery]]) -> None:
        name, sent = self._log.name, time.monotonic()
        for number, _ in dones:
            self._log.add("settling", by=name, n=number, verb="ack", at=sent)
        try:
            late = self._ask("ack_many", lambda: self._queue.ack_many([delivery for _, delivery in dones]))
        except Unanswered:
            return
        lost = {id(delivery.received) for delivery in late}
        for number, delivery in dones:
            self._log.add("settled", by=name, n=number, ok=id(delivery.received) not in lost, at=time.monotonic())


def consume(queue: Queue, log: Log, habits: Habits, stop: threading.Event) -> None:
    """Consume until told to stop."""
    Consumer(queue, log, habits).run(stop)


ROLES: dict[str, Callable[[Queue, Log, Habits, threading.Event], None]] = {"produce": produce, "consume": consume}


def main(role: str, url: str, queue: str, folder: str, name: str, *words: str) -> None:
    """One process: SIGTERM ends it."""
    habits, stop = Habits.parse(words), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings: dict[str, Any] = {"timeout": habits.timeout}
    log = Log(Path(folder), name)
    with opened(habits.client_kind, url, **settings) as client:
        ROLES[role](client.queue(queue, create=True), log, habits, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
