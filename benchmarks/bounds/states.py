"""The states of a queue in which calls are made, and the calls of each with the bounds of their scripts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.bounds.full import AGAIN, LEASE, PAYLOAD, SHORT, Full
from benchmarks.bounds.full import PIECE as PAGE

BATCH: Final = 100
OF_A_SCRIPT, OF_NOTHING, OF_A_TENANT = 5.0, 0.5, 1.0
"""ms of a script of up to 100 messages, of one that delivers nothing or only counts, and of a look at one tenant."""


Prepared = Any


@dataclass(frozen=True)
class Call:
    """A call: what is prepared for it, what it does with that, and how many ms it may take."""

    name: str
    run: Callable[[Full, Prepared], object]
    bound: float = OF_A_SCRIPT
    prepare: Callable[[Full], Prepared] = lambda _: None
    fewer: int = 1
    """It is made a so manieth as often as others."""


@dataclass(frozen=True)
class State:
    """A state, how the queue comes into it and leaves it, and the calls that are made there."""

    name: str
    begin: Callable[[Full, Any], object]
    calls: Sequence[Call]
    end: Callable[[Full], object] = lambda _: None
    limited: bool = False
    """It is a state of the queue that has nothing to deliver."""


def _read(count: int) -> Callable[[Full, Prepared], object]:
    def run(full: Full, ack: Prepared) -> None:
        full.held += full.queue.read_many(count, ack=ack)

    return run


def _extend(full: Full, delivery: Prepared) -> None:
    delivery.extend(LEASE)
    full.held.append(delivery)


def _one(full: Full) -> Prepared:
    return full.take(1)[0]


def _batch(full: Full) -> Prepared:
    return full.take(BATCH)


def _dead(full: Full) -> Prepared:
    return full.queue.dead(BATCH)


READS: Final = (Call("read of 1", _read(1)), Call("read of 100", _read(BATCH)))
NO_READS: Final = tuple(replace(each, bound=OF_NOTHING) for each in READS)
COUNTS: Final = (Call("len", lambda full, _: full.queue.len(), OF_NOTHING),)
CALLS: Final = (
    Call("write", lambda full, _: full.queue.write(PAYLOAD, shard_key="other")),
    Call("write of a limited one", lambda full, _: full.queue.write(PAYLOAD, shard_key="limited-1")),
    Call("write of 100", lambda full, _: full.queue.write_many(full.some(BATCH))),
    Call("write of 100, delayed", lambda full, _: full.queue.write_many(full.some(BATCH, delay=LEASE))),
    Call("write of 100, unique", lambda full, _: full.queue.write_many(full.fresh(BATCH))),
    *READS,
    Call("ack of 1", lambda full, one: one.ack(), prepare=_one),
    Call("ack of 100", lambda full, held: full.queue.ack_many(held), prepare=_batch),
    Call("nack of 100", lambda full, held: full.queue.nack_many(held), prepare=_batch),
    Call("nack of 100, delayed", lambda full, held: full.queue.nack_many(held, delay=LEASE), prepare=_batch),
    Call("reject of 100", lambda full, held: full.queue.reject_many(held, "no"), prepare=_batch),
    Call("read of 100 with ack of 100", _read(BATCH), prepare=_batch),
    Call("extend", _extend, prepare=_one),
    Call("redrive of 100", lambda full, dead: full.queue.redrive(dead), prepare=_dead),
    Call("delete_dead of 100", lambda full, dead: full.queue.delete_dead(dead), prepare=_dead),
    *COUNTS,
    Call("tenant", lambda full, _: full.queue.tenant("tenant-5"), OF_A_TENANT, fewer=10),
    Call("stats", lambda full, _: full.queue.stats()),
    Call("status of one that waits", lambda full, _: full.queue.status(str(full.ids[-1]))),
    Call(
        "cancel", lambda full, known: full.queue.cancel(known),
        prepare=lambda full: full.queue.write(PAYLOAD, shard_key="tenant-1"),
    ),
    Call("pause", lambda full, _: full.queue.pause("tenant-3", seconds=1)),
    Call("peek of 10", lambda full, _: full.queue.peek(10)),
    Call("peek of 10, in flight", lambda full, _: full.queue.peek(10, state="in_flight")),
    Call("configure", lambda full, _: full.queue.configure(max_deliveries=16), fewer=10),
)  # fmt: skip


def _nothing(full: Full, _: Any) -> None:
    """As it was filled: tokens are due, and pauses are over."""
    time.sleep(AGAIN + SHORT)


def end_leases(full: Full, server: Any) -> None:
    """End all leases by moving their deadlines, which to the scripts is the same as waiting."""
    keys = full.queue.state.keys
    tokens = [token for token in server.zrange(keys.leases, 0, -1) if token]
    for start in range(0, len(tokens), PAGE):
        past = dict.fromkeys(tokens[start : start + PAGE], 1)
        server.zadd(keys.leases, past, xx=True)
    server.hset(keys.meta, "lease_at", 1)


def _delays_over(full: Full, _: Any) -> None:
    full.write(full.each("due", delay=SHORT))
    time.sleep(2 * SHORT)


STATES: Final = (
    State("all is limited", lambda full, _: full.queue.read_many(1), (*NO_READS, *COUNTS, CALLS[0]), limited=True),
    State("tokens due, pauses over", _nothing, CALLS),
    State(
        "the queue is paused",
        lambda full, _: full.queue.pause(),
        (*NO_READS, *COUNTS),
        lambda full: full.queue.resume(),
    ),
    State(
        "total_in_flight is reached",
        lambda full, _: full.queue.configure(total_in_flight=1),
        (*NO_READS, *COUNTS),
        lambda full: full.queue.configure(total_in_flight=0),
    ),
    State(
        "total_rate is used up",
        lambda full, _: (full.queue.configure(total_rate=0.001, total_burst=1), full.queue.read_many(1)),
        (*NO_READS, *COUNTS),
        lambda full: full.queue.configure(total_rate=0),
    ),
    State("settings have changed", lambda full, _: full.queue.configure(max_in_flight=1000), CALLS),
    State("delays are over", _delays_over, (*READS, *COUNTS, Call("stats", lambda full, _: full.queue.stats()))),
    State("leases are over", end_leases, (*READS, *COUNTS, Call("stats", lambda full, _: full.queue.stats()))),
)
