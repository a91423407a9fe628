"""Histories of queues as their journals tell them, drawn by Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from shardq.jobs.schema import EVENTS

START = 1_790_000_000_000
"""Ms: when the histories begin."""
KEYS = ("a", "b", "c")
Event = dict[str, Any]

WAITING = ("delivered", "delivered", "delivered", "expired", "cancelled", "purged", "vanished", "replaced", "hastened")
HELD = (
    "acked", "acked", "acked", "nacked", "nacked", "uncounted", "recovered", "lease_ended", "rejected", "dead",
    "no_room", "cancelling", "charged", "vanished",
)  # fmt: skip
DEAD = ("redriven", "redriven", "deleted")
CONTROLS = ("paused", "resumed", "limited")


class Queue:
    """What a queue would allow next, message by message."""

    def __init__(self, draw: st.DrawFn, *, may_move: bool) -> None:
        self.draw, self.may_move = draw, may_move
        self.delivered: set[str] = set()
        self.now = START
        self.numbers = [1000, 5000]
        self.states: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.keys: dict[str, str | None] = {}
        self.events: list[Event] = []

    def tell(self, kind: str, message_id: str | None, key: str | None, **more: Any) -> None:
        """One event."""
        partition = 1 if message_id and message_id.endswith("@1") else 0
        self.numbers[partition] += 1
        event = dict.fromkeys(EVENTS.names) | {"queue": "q", "queue_id": "1789999999999-x", "partition": partition}
        event |= {"number": self.numbers[partition], "time": self.now, "kind": kind, "message_id": message_id}
        self.events.append(event | {"shard_key": key, "count": 0, "values": [], **more})

    def step(self) -> None:
        """Something happens."""
        self.now += self.draw(st.integers(0, 9))
        choice = self.draw(st.integers(0, 9))
        if choice == 0:
            self._control()
        elif choice <= 2 or not self.states:
            self._write()
        else:
            self._go_on(self.draw(st.sampled_from(sorted(self.states))))

    def _due(self) -> int | None:
        return self.draw(st.one_of(st.none(), st.integers(0, 25).map(lambda ms: self.now + ms)))

    def _write(self) -> None:
        at = "@1" if self.draw(st.booleans()) else ""
        name = f"{self.now}-{len(self.keys)}-3{at}"
        self.keys[name], self.states[name], self.counts[name] = self.draw(st.sampled_from(KEYS)), "waiting", 0
        task = self.draw(st.sampled_from((None, "mail")))
        self.tell("written", name, self.keys[name], due=self._due(), task=task)

    def _control(self) -> None:
        kind, key = self.draw(st.sampled_from(CONTROLS)), self.draw(st.sampled_from((*KEYS, None)))
        values: list[tuple[str, str]] = []
        if kind == "limited":
            key = key or "a"
            names = self.draw(st.sets(st.sampled_from(("max_in_flight", "rate", "burst"))))
            values = [(name, self.draw(st.sampled_from(("1", "2", "100", "250")))) for name in sorted(names)]
        due = None if kind == "resumed" else self._due()
        self.tell(kind, None, key, due=due if due != self.now else None, values=values)

    def _go_on(self, name: str) -> None:
        state = self.states[name]
        kind = self.draw(st.sampled_from({"waiting": WAITING, "held": HELD, "dead": DEAD, "no room": ("dead",)}[state]))
        more: dict[str, Any] = {"client": self.draw(st.sampled_from(("w1", "w2"))), "count": self.counts[name]}
        if state == "held" and kind != "cancelling":
            more["charged_ms"] = self.draw(st.integers(0, 99)) / 10
            more["ran_ms"] = self.draw(st.one_of(st.none(), st.integers(0, 99).map(lambda tenths: tenths / 10)))
        if kind == "delivered":
            self.counts[name] += 1
            self.delivered.add(name)
            self.states[name], more["count"] = "held", self.counts[name]
        elif kind in ("nacked", "uncounted", "recovered", "lease_ended", "replaced", "hastened", "redriven"):
            if kind in ("uncounted", "recovered"):
                self.counts[name] -= 1
                kind = "nacked" if kind == "uncounted" else kind
            if kind in ("nacked", "replaced"):
                more["due"] = self._due()
            # What a job waited under another shard key before is not told apart, so that is as when it was replaced.
            if kind == "replaced" and self.may_move and name not in self.delivered:
                self.keys[name] = self.draw(st.sampled_from(KEYS))
            self.states[name], more["count"] = "waiting", self.counts[name]
        elif kind == "no_room":
            self.states[name], more["due"] = "no room", self.now + 10
        elif kind in ("rejected", "dead"):
            self.states[name] = "dead"
        elif kind not in ("cancelling", "charged"):
            del self.states[name]
        self.tell(kind, name, None if kind == "vanished" else self.keys[name], **more)


@st.composite
def histories(draw: st.DrawFn, *, most: int = 40) -> list[Event]:
    """Events in the order of their times, of a head and one more partition; some may be lost."""
    is_lossy = draw(st.booleans())
    queue = Queue(draw, may_move=not is_lossy)
    for _ in range(draw(st.integers(1, most))):
        queue.step()
    return _lose(queue.events, draw) if is_lossy else queue.events


def _lose(events: list[Event], draw: st.DrawFn) -> list[Event]:
    """Leave out a range of the events of messages of one partition, and tell so."""
    partition = draw(st.integers(0, 1))
    own = [at for at, each in enumerate(events) if each["partition"] == partition]
    if len(own) < 3:
        return events
    low = draw(st.integers(0, len(own) - 2))
    high = draw(st.integers(low, len(own) - 2))
    lost, after = set(own[low : high + 1]), own[high + 1]
    told = {**dict.fromkeys(EVENTS.names), "queue": "q", "queue_id": events[0]["queue_id"], "partition": partition}
    told |= {"number": events[own[high]]["number"], "count": high - low + 1, "values": [], "kind": "lost"}
    told["time"] = events[after]["time"]
    return [*(each for at, each in enumerate(events[:after]) if at not in lost), told, *events[after:]]


def table(events: Sequence[Event]) -> pa.Table:
    """Events as the pivot takes them."""
    rows = [
        {**each, **{name: None if each[name] is None else each[name] * 1000 for name in ("time", "due")}}
        for each in events
    ]
    return pa.Table.from_pylist(rows, schema=EVENTS)
