"""Producers of the hour: each writes to one queue in all ways that this queue is for."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from shardq import (
    NotAvailable,
    PartlyPublished,
    PartlyWritten,
    Queue,
    QueueFull,
    Written,
)  # fmt: skip
from tests.soak.hour.notes import Notes
from tests.soak.load import Unanswered

TENANTS: Final = 20
"""How many shard keys each producer has."""

PAUSE: Final = 1.0
"""Seconds between two acts of a producer, at most."""

BATCH: Final = 8
"""Messages that are written at once, at most."""


class Producer:
    """Writes to one queue, and notes what it tried and what it was told."""

    def __init__(self, queue: Queue, notes: Notes, seed: int) -> None:
        self._queue, self._notes = queue, notes
        self._rng = random.Random(f"{seed} {notes.name}")
        self._numbers = itertools.count()
        self._held: dict[str, str] = {}  # of each unique key the message that has it
        every: list[Callable[[], object]] = [self._one, self._one, self._many, self._delayed]
        self._acts = {
            "keyed": [*every, self._deduped, self._unique, self._replaced],
            "removed": [*every, self._cancelled, self._expiring, self._purged],
            "results": [*every, self._resulting],
            "plain": [*every, self._published],
        }.get(queue.name, every)

    def run(self, stop: threading.Event) -> None:
        """Until told to stop."""
        while not stop.is_set():
            with contextlib.suppress(Unanswered, QueueFull):  # what it was told is noted
                self._rng.choice(self._acts)()
            stop.wait(self._rng.uniform(0, PAUSE))

    def _one(self) -> None:
        self._write()

    def _delayed(self) -> None:
        self._write(delay=self._rng.uniform(0.05, 3))

    def _many(self) -> None:
        values = [self._value() for _ in range(self._rng.randint(2, BATCH))]
        self._notes.add("try", values=values, at=time.monotonic())
        some = [(each, self._tenant()) for each in values]
        self._wrote(values, self._results("write_many", lambda: self._queue.write_many(some), values))

    def _deduped(self) -> None:
        """What is written again with its key, or by another client later, has the id that it had."""
        value, tenant = self._value(), self._tenant()
        for _ in range(2):
            self._write(value, shard_key=tenant, dedup_key=value)

    def _unique(self) -> None:
        """Of a key that is there nothing is stored. The value of that call is nobody's."""
        key = f"{self._notes.name} existing {self._rng.randrange(5)}"
        self._write(shard_key="unique", unique_key=key, only_new=True)

    def _replaced(self) -> None:
        """The newest takes the place of the one that waits. Whether it did is open when there is no answer."""
        key = f"{self._notes.name} {self._rng.randrange(5)}"
        if held := self._held.pop(key, None):
            self._dropped(held, "replaced")
        found = self._write(shard_key="unique", unique_key=key, on_conflict="replace", delay=0.2)
        if found is not None:
            self._held[key] = found

    def _cancelled(self) -> None:
        found = self._write(delay=5)
        if found is not None:
            self._dropped(found, "cancelled")
            self._notes.ask("cancel", lambda: self._queue.cancel(found))

    def _expiring(self) -> None:
        found = self._write(deadline=self._rng.uniform(0.01, 1))
        if found is not None:
            self._dropped(found, "expired")

    def _purged(self) -> None:
        tenant = f"{self._notes.name} purged"
        for _ in range(3):
            found = self._write(shard_key=tenant)
            if found is not None:
                self._dropped(found, "purged")
        self._notes.ask("purge", lambda: self._queue.purge(shard_key=tenant))

    def _resulting(self) -> None:
        found = self._write()
        if found is None:
            return
        with contextlib.suppress(NotAvailable):  # it is a dead letter, or not done yet
            self._notes.ask("result", lambda: self._queue.result(found))

    def _published(self) -> None:
        value, tenant = self._value(), self._tenant()
        self._notes.add("try", values=[value], at=time.monotonic())
        topic = f"hour.{self._rng.choice('ab')}.made"
        try:
            found: Any = self._notes.ask(
                "publish", lambda: self._queue.client.publish(topic, value, shard_key=tenant, unmatched="raise"),
                values=[value],
            )  # fmt: skip
        except Unanswered as error:
            if not isinstance(error.__cause__, PartlyPublished):
                raise
            found = error.__cause__.results
        self._wrote([value], [found.get(self._queue.name)])

    def _write(self, value: str | None = None, *, only_new: bool = False, **more: Any) -> str | None:
        """Write one message. Its id, if it was told."""
        value = value or self._value()
        given = {"shard_key": self._tenant(), **more}
        self._notes.add("try", values=[value], at=time.monotonic())
        call = "write if new" if only_new else "write"
        (found,) = self._results(call, lambda: [self._queue.write(value, **given)], [value])
        if isinstance(found, Written) and (found.is_new or not only_new):
            self._wrote([value], [found], more.get("delay", 0.0))
            return str(found)
        return None

    def _results(self, call: str, do: Callable[[], Sequence[Any]], values: Sequence[str]) -> Sequence[Any]:
        try:
            return self._notes.ask(call, do, values=values)
        except Unanswered as error:
            if isinstance(error.__cause__, PartlyWritten):
                return error.__cause__.results
            return [None] * len(values)

    def _wrote(self, values: Sequence[str], ids: Sequence[Any], delay: float = 0.0) -> None:
        told = [(value, each) for value, each in zip(values, ids, strict=True) if isinstance(each, Written)]
        if told:
            self._notes.add(
                "wrote", values=[value for value, _ in told], ids=[str(each) for _, each in told], at=time.monotonic(),
                delay=delay,
            )  # fmt: skip

    def _dropped(self, message_id: str, why: str) -> None:
        self._notes.add("dropped", id=message_id, why=why, at=time.monotonic())

    def _value(self) -> str:
        return f"{self._notes.name}.{next(self._numbers)}"

    def _tenant(self) -> str:
        """Most are small, and one has much."""
        number = 0 if self._rng.random() < 0.2 else self._rng.randrange(TENANTS)
        return f"plan-{number % 3}/tenant-{number}" if self._queue.name == "fair" else f"tenant-{number}"


def produce(queue: Queue, notes: Notes, seed: int, stop: threading.Event) -> None:
    """Write until told to stop."""
    Producer(queue, notes, seed).run(stop)
