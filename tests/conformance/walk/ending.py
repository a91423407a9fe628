"""How a walk ends: all is delivered, all dies that must, and then no key holds anything but constants."""

from __future__ import annotations

import random
import re

from shardq import Limits, QueueConfig
from tests.conformance.walk.acting import Acting
from tests.conformance.walk.audit import model_text
from tests.conformance.walk.base import NAMES, ensure
from tests.conformance.walk.keyed import Keyed
from tests.conformance.walk.ledger import OF_SHARD_KEYS, Ledger
from tests.conformance.walk.model import EVER, Own
from tests.conformance.walk.operating import Operating
from tests.conformance.walk.reading import Reading
from tests.conformance.walk.settling import Settling

SETTINGS = {*QueueConfig.__struct_fields__, "rules", "accounts", "paused", "paused_by"}
COUNTERS = {
    "n", "adopted", "redriven", "expired", "cancelled", "purged", "dead_lettered", "dead_deleted", "dead_dropped",
    "vanished", "events", "offset", "redelivered", "virtual", "idle", "owed", "retrying", "failed",
}  # fmt: skip
CLOCKS = {
    "ms", "created", "id", "epoch", "waiting", "full_at", "jump", "void", "streams", "wanted", "assigned", "reach",
    "lease_at", "seen_at", "due_at", "late", "walk", "ready", "line", "odd", "last",
}  # fmt: skip
EMPTY = {"behind", "shared", "turns", "servable", "cancels"}
ENOUGH_TO_FORGET = 40
"""Messages of one write that make a queue forget what is over: it looks every 32 messages."""


class Walker(Keyed, Reading, Settling, Operating, Acting):
    """All that a queue can do."""

    def finish(self) -> None:
        """Take everything out. What the model says must come does, whatever happened before."""
        self._lift()
        self.elapse(100)
        self.drain()
        left = self.model.deliverable()
        ensure(not left, f"stranded: {len(left)}, first {model_text(left[0], self.model) if left else ''}")
        self._configure(random.Random(0), max_dead=100_000, max_len=0, max_dedup=1_000_000)
        self.elapse(100)
        self.drain()
        left = self.model.living()
        ensure(not left, f"undead: {len(left)}, first {model_text(left[0], self.model) if left else ''}")
        for _ in range(100):
            if not self.queues[0].dead(1):
                break
            self.redrive(random.Random(1))
            self.drain()
        if self.model.terms.parents:  # the limits of children are left, since nobody looks at them
            self._configure(random.Random(0), parents=0)
        self._lift()
        self._forget()
        self.queues[0].state.shrink_at = 0.0
        self.queues[0].read_many(1)
        wrong = leftovers(self.look())
        ensure(not wrong, f"left behind: {wrong}")

    def _lift(self) -> None:
        """No limits and no pauses any more."""
        rng, queue, terms = random.Random(2), self.queues[0], self.model.terms
        self._configure(rng, total_in_flight=0, total_burst=0, rate_burst=0)
        queue.resume()
        terms.paused_until = 0
        for name in [*terms.own]:
            made: dict[str | bytes, Limits] = {name: Limits()}
            self._limit([name], lambda name=name: queue.resume(name), _go_on, [name])  # type: ignore[misc]
            self._limit([name], lambda made=made: queue.set_limits(made), _as_the_queue, [name])  # type: ignore[misc]

    def drain(self) -> None:
        """Read until nothing comes and nothing dies, by both clients in turn, and ack it.

        A read takes back a bounded number of messages: it may find nothing but dead letters, and the next one more.
        """
        empty = 0
        while empty < 2:
            queue, living = self.queues[len(self.log) % 2], len(self.model.living())
            found = self.read_up_to(queue, 200, 3, None)
            empty = 0 if found or len(self.model.living()) < living else empty + 1
            self.held = []
            ensure(queue.ack_many(found) == [], "settle: an ack of the end was lost")
            for each in found:
                self._settled(self.model.messages[each.message_id], "ack", 0, "")
            self.check()

    def _forget(self) -> None:
        """Weights and shards are taken back, time passes, and writes go on."""
        self.queues[0].unassign()
        self.queues[0].configure(max_backlog=0)
        self.queues[0].set_weights(dict.fromkeys(NAMES, 1))
        self.model.terms.shards, self.model.terms.weights, self.model.terms.weights_until = {}, {}, {}
        self.elapse(10_000)
        self.model.keyed = {}
        self.queues[0].write_many([(number, "a") for number in range(ENOUGH_TO_FORGET)])
        while found := self.queues[0].read_many(ENOUGH_TO_FORGET):
            self.queues[0].ack_many(found)


def _go_on(own: Own, _: bytes) -> None:
    own.paused_until = 0


def _as_the_queue(own: Own, _: bytes) -> None:
    own.cap, own.burst, own.until = None, None, EVER


def leftovers(found: Ledger) -> list[str]:
    """What an idle queue holds beside constants: sentinels, settings, counters, cursors, the last writer's sequence."""
    told = {name for name in found.meta if not re.fullmatch(r"h\d+|.*:s\d+", name)}
    wrong = [f"meta {name}" for name in told - SETTINGS - COUNTERS - CLOCKS - EMPTY - {""}]
    wrong += [f"meta {name} {found.meta[name]}" for name in EMPTY if found.meta[name] != "0"]
    wrong += [f"meta {name} {value}" for name, value in found.meta.items() if ":s" in name and value != "0"]
    wrong += [
        f"state {name!r} {text!r}"
        for name, text in found.hashes["meta"].items()
        if name[:2] in OF_SHARD_KEYS and name[:2] != b"p:"
    ]
    for name, members in found.sorted.items():
        some = {member for member in members if member}
        wrong += [f"{name} {some}"] if some and not (name == "producers" and len(some) == 1) else []
    for name in ("bodies", "errors", "moved", "assigned", "limits", "results", "dedup"):
        wrong += [f"{name} {each!r}" for each in found.hashes[name] if each]
    wrong += [f"{name}, {len(rows)} entries" for name, rows in found.streams.items() if rows and name != "journal"]
    wrong += [f"{found.meta['streams']} streams" for _ in range(1) if found.meta["streams"] != found.meta["wanted"]]
    wrong += [f"cancelled {each!r}" for each in found.cancelled if each]
    return wrong
