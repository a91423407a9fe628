"""Histories of a queue as journal events, and what they say about fairness, worked out the slow way."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

BEGIN = 1_763_700_000_000  # ms; the start of a window
SCHEMA = (
    "queue string, number long, time timestamp, kind string, message_id string, shard_key string, stream int, "
    "count int, due timestamp, client string"
)


def time_of(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@dataclass
class History:
    """Journal events of one queue, in any order."""

    queue: str = "jobs"
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    numbers: Any = field(default_factory=lambda: count(1))

    def tell(self, ms: int, kind: str, message: str, key: str | None, deliveries: int = 0, due: int = 0) -> None:
        """One event; times are ms after BEGIN."""
        place = int(message.rpartition("-")[2])
        told = time_of(BEGIN + due) if due else None
        at = time_of(BEGIN + ms)
        self.rows.append((self.queue, next(self.numbers), at, kind, message, key, place, deliveries, told, "host-1"))

    def message(self, ms: int, key: str, stream: int = 0, due: int = 0) -> str:
        """A message is written; its id."""
        name = f"{BEGIN + ms}-{next(self.numbers)}-{stream}"
        self.tell(ms, "written", name, key, due=due)
        return name

    def frame(self, spark: Any) -> Any:
        return spark.createDataFrame(self.rows, SCHEMA)


def random_history(rng: random.Random, messages: int, keys: int, windows: int, window: int) -> History:
    """Some keys write far more than others; some messages wait long, come again, are delayed, vanish or stay."""
    history, span = History(), windows * window * 1000
    for _ in range(messages):
        key = f"key-{min(int(rng.paretovariate(0.8)), keys)}"
        written = rng.randrange(span)
        due = written + rng.randrange(span // 3) if rng.random() < 0.2 else 0
        message = history.message(written, key, rng.randrange(8), due)
        ready = max(written, due)
        picked = ready + rng.choice([0, rng.randrange(50), rng.randrange(span // 2)])
        fate = rng.random()
        if fate < 0.1 or picked >= span:
            continue  # waits for ever, as far as the journal tells
        if fate < 0.15:
            history.tell(picked, "cancelled", message, key)
            continue
        history.tell(picked, "delivered", message, key, 1, due)
        if fate < 0.3:
            history.tell(picked + 5, "nacked", message, key, 1)
            history.tell(picked + 9, "delivered", message, key, 2, due)
        history.tell(picked + 20, "acked", message, key, 1)
    return history


@dataclass
class Naive:
    """Counts, demands and fair shares of a history, message by message and window by window."""

    rows: list[tuple[Any, ...]]
    window: int

    def __post_init__(self) -> None:
        self.counts: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
        self.delays: dict[tuple[int, str], list[int]] = defaultdict(list)
        self.last = max(self._at(row[2]) for row in self.rows)
        for _, _, time, kind, message, key, _, deliveries, due, _ in self.rows:
            at = self._at(max(time, due) if kind == "written" and due else time)
            if at > self.last:
                continue
            name = {"written": "arrived", "cancelled": "left", "acked": "acked", "nacked": "nacked"}.get(kind)
            if kind == "delivered":
                name = "picked" if deliveries == 1 else "repeated"
            self.counts[at, key][str(name)] += 1
            if name == "picked":
                ready = max(int(message.split("-")[0]), round(due.timestamp() * 1000) if due else 0)
                self.delays[at, key].append(round(time.timestamp() * 1000) - ready)

    def _at(self, time: datetime) -> int:
        return round(time.timestamp() * 1000) // (self.window * 1000) * self.window

    @property
    def windows(self) -> list[int]:
        first = min(at for at, _ in self.counts)
        return list(range(first, self.last + 1, self.window))

    def demands(self) -> dict[int, dict[str, int]]:
        """By window and key: what waited at its start or arrived in it."""
        waiting: Counter[str] = Counter()
        for key in {key for _, key in self.counts}:
            lowest = running = 0
            for at in self.windows:
                found = self.counts[at, key]
                running += found["arrived"] - found["picked"] - found["left"]
                lowest = min(lowest, running)
            waiting[key] = -lowest
        demands: dict[int, dict[str, int]] = {}
        for at in self.windows:
            here = {key for when, key in self.counts if when == at} | {key for key, most in waiting.items() if most}
            demands[at] = {key: waiting[key] + self.counts[at, key]["arrived"] for key in here}
            demands[at] = {key: demand for key, demand in demands[at].items() if demand}
            for key in here:
                found = self.counts[at, key]
                waiting[key] += found["arrived"] - found["picked"] - found["left"]
        return demands

    @staticmethod
    def fair(demands: dict[str, int], served: int) -> dict[str, float]:
        """Max-min: what is left goes in equal parts to all that still want, until nobody does or nothing is left."""
        shares = dict.fromkeys(demands, 0.0)
        left = float(served)
        while left > 1e-9 and (hungry := [key for key in demands if demands[key] - shares[key] > 1e-9]):
            part = min(left / len(hungry), *(demands[key] - shares[key] for key in hungry))
            for key in hungry:
                shares[key] += part
            left -= part * len(hungry)
        return shares
