"""A right history of a run, made up: what a good hour looks like, at any size.

python -m tests.soak.hour.made FOLDER MESSAGES MINUTES SEED
"""

from __future__ import annotations

import json
import random
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

Event: TypeAlias = dict[str, Any]
Add: TypeAlias = Callable[[str, Event], None]

BEGIN: Final = 1_000.0
"""When the run begins."""

LEASE: Final = 3.0
STREAMS: Final = 8
PRODUCERS: Final = 4
CONSUMERS: Final = 6
QUEUES: Final = ("plain", "sure", "paired")
FAULTS: Final = ("kill a worker", "stop a server", "cut a link", "memory full", "disk full")
FAULT_EVERY: Final = 20.0
FAULT_LASTS: Final = 2.0
SAMPLE_EVERY: Final = 5.0
PROMOTED: Final = 0.5
"""The share of the run after which the server of `paired` is replaced by one that lacks what came last."""

LACKED: Final = 5.0
"""Seconds."""

NACKED: Final = 0.02
KILLED: Final = 0.01
REJECTED: Final = 0.005
CANCELLED: Final = 0.005
"""Shares of the messages."""


class Run:
    """Messages are written evenly over the run; each event is added to the log of its process."""

    def __init__(self, add: Add, messages: int, minutes: float, seed: int) -> None:
        self._add, self._rng = add, random.Random(seed)
        self._messages, self._seconds = messages, minutes * 60
        self._numbers = defaultdict[str, int](int)
        self._begun: list[float] = []
        self._done: list[float] = []
        self._dead = defaultdict[str, int](int)

    def make(self) -> None:
        """Add all events."""
        self._bracket("begin", BEGIN - 5)
        self._faults()
        for number in range(self._messages):
            self._message(number, BEGIN + self._seconds * 0.95 * number / self._messages)
        self._sample()
        self._figures()
        self._bracket("end", BEGIN + self._seconds)

    def _message(self, number: int, at: float) -> None:
        queue = QUEUES[number % len(QUEUES)]
        producer, value = f"p{number % PRODUCERS}-{queue}", f"{queue}:{number}"
        message_id = f"{int(at * 1000)}-{number}-{number % STREAMS}"
        self._add(producer, {"e": "try", "queue": queue, "values": [value]})
        self._told(producer, queue, "write", at, at + 0.01, "ok")
        self._add(
            producer, {"e": "wrote", "queue": queue, "values": [value], "ids": [message_id], "at": at + 0.01}
        )  # fmt: skip
        if queue == "paired" and self._is_lost(at):
            return
        self._begun.append(at)
        draw = self._rng.random()
        if draw < CANCELLED:
            self._add(producer, {"e": "dropped", "queue": queue, "id": message_id, "why": "cancelled"})
            self._done.append(at + 0.01)
            return
        self._deliver(queue, message_id, value, at + 0.02 + self._rng.random() / 20, draw)

    def _is_lost(self, at: float) -> bool:
        promoted = BEGIN + self._seconds * PROMOTED
        return promoted - LACKED < at < promoted

    def _deliver(self, queue: str, message_id: str, value: str, at: float, draw: float) -> None:
        count = 1
        if draw > 1 - NACKED:
            self._settle(self._got(queue, message_id, value, at, count), "nack", at + 0.01)
            at, count = at + 0.05, 2
        elif draw > 1 - NACKED - KILLED:
            self._got(queue, message_id, value, at, count)
            at, count = at + LEASE + 0.1, 2
        is_rejected = draw < CANCELLED + REJECTED
        self._settle(self._got(queue, message_id, value, at, count), "reject" if is_rejected else "ack", at + 0.1)
        self._done.append(at + 0.1)
        self._dead[queue] += is_rejected

    def _got(self, queue: str, message_id: str, value: str, at: float, count: int) -> tuple[str, int]:
        consumer = f"c{self._rng.randrange(CONSUMERS)}-{queue}"
        self._numbers[consumer] += 1
        n = self._numbers[consumer]
        self._add(consumer, {
            "e": "got", "queue": queue, "by": consumer, "n": n, "id": message_id, "value": value, "count": count,
            "asked": at - 0.2, "at": at, "until": at + LEASE * 0.9, "ends": at + LEASE, "batch": 0,
        })  # fmt: skip
        return consumer, n

    def _settle(self, delivery: tuple[str, int], verb: str, at: float) -> None:
        by, n = delivery
        self._add(by, {"e": "settling", "by": by, "n": n, "verb": verb, "at": at})
        self._add(by, {"e": "settled", "by": by, "n": n, "ok": True, "at": at + 0.002})

    def _told(self, who: str, queue: str, call: str, at: float, answered: float, outcome: str) -> None:
        self._add(who, {
            "e": "told", "queue": queue, "who": who, "call": call, "at": at, "answered": answered, "timeout": 20.0,
            "outcome": outcome,
        })  # fmt: skip

    def _faults(self) -> None:
        """Each breaks something for a moment; a write at that time may fail."""
        for number in range(int(self._seconds * 0.9 / FAULT_EVERY)):
            at, name = BEGIN + FAULT_EVERY * (number + 0.5), FAULTS[number % len(FAULTS)]
            until, took = at + FAULT_LASTS, 0.1 + self._rng.random()
            fault = {"name": name, "target": f"target-{number % 3}"}
            self._add("faults", {"e": "fault", **fault, "at": at, "until": until})
            self._add("faults", {"e": "recovered", **fault, "at": until + took, "took": took})
            who, queue = f"p{number % PRODUCERS}-plain", "plain"
            self._add(who, {"e": "try", "queue": queue, "values": [f"plain:failed.{number}"]})
            outcome = "OutOfMemory" if "memory" in name else ("OutcomeUnknown", "BackendTimeout")[number % 2]
            self._told(who, queue, "write", at, at + 1, outcome)
        promoted = BEGIN + self._seconds * PROMOTED
        self._add("faults", {
            "e": "lost_allowed", "queue": "paired", "why": "process", "by": "promotion",
            "from": promoted - LACKED, "until": promoted,
        })  # fmt: skip

    def _sample(self) -> None:
        """Each process warms up and then has what it has."""
        for number, who in enumerate((*(f"p{n}" for n in range(PRODUCERS)), "worker", "gateway", "dashboard")):
            at = 0.0
            while at < self._seconds:
                rss = 60e6 + 1e7 * min(1, at / self._seconds * 8) + self._rng.random() * 1e6
                facts = {"who": who, "pid": 100 + number, "at": BEGIN + at, "rss": int(rss), "fds": 20, "threads": 4}
                self._add("watch", {"e": "process", **facts})
                at += SAMPLE_EVERY

    def _figures(self) -> None:
        """Of all queues as if they were one, since a made run polls only that."""
        self._done.sort()
        at = BEGIN + 2.5
        while at < BEGIN + self._seconds * 0.95:
            undone = bisect_left(self._begun, at) - bisect_left(self._done, at)
            self._poll("plain", at, undone // len(QUEUES), 0, quiet=False)
            at += SAMPLE_EVERY
        for queue in QUEUES:
            self._poll(queue, BEGIN + self._seconds, 0, self._dead[queue], quiet=True)

    def _poll(self, queue: str, at: float, ready: int, dead: int, *, quiet: bool) -> None:
        facts = {"length": ready, "ready": ready, "in_flight": 0, "delayed": 0, "dead": dead, "quiet": quiet}
        self._add("watch", {"e": "figures", "queue": queue, "at": at, **facts})

    def _bracket(self, when: str, at: float) -> None:
        for server in range(3):
            facts = {"server": f"cluster-{server}", "count": 40, "memory": 5_000_000}
            self._add("watch", {"e": "keys", "at": at, "when": when, **facts})


def run(messages: int = 1_500, minutes: float = 6.0, seed: int = 1) -> dict[str, list[Event]]:
    """A run in memory: the events of each log."""
    logs = defaultdict[str, list[Event]](list)
    Run(lambda log, event: logs[log].append(event), messages, minutes, seed).make()
    return logs


def main(folder: Path, messages: int, minutes: float, seed: int) -> None:
    """Write a run into files."""
    files = {}

    def add(log: str, event: Event) -> None:
        if log not in files:
            files[log] = (folder / f"{log}.jsonl").open("w")
        files[log].write(json.dumps(event) + "\n")

    Run(add, messages, minutes, seed).make()
    for each in files.values():
        each.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
