"""The calls of a mode on a queue of its own: single ones, or those of batches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.modes.cycles import whole
from benchmarks.modes.mode import Mode
from benchmarks.prior_art import Bare
from shardq import Client, Delivery, Empty, Message

LEASE: Final = 600.0
FILLED: Final = 100
"""How many messages a call writes that is not measured."""
WRONG: Final = ValueError("bad")


def _problem() -> Any:
    """What went wrong, as a worker tells it; its text for an earlier shardq, which takes no other."""
    return WRONG if Delivery.nack.__annotations__["error"] != "str" else f"ValueError: {WRONG}"


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run: so many cycles of a mode, one message a call or a batch, and the queue's shape.

    `counts` is where callgrind writes, which counts the server's instructions; "" without it.
    """

    mode: str
    url: str
    pid: int
    batch: int
    cycles: int
    payload: int
    streams: int
    per_shard: int
    seed: int
    counts: str = ""


class Caller:
    """One queue, and how its messages are written, read and acked; what a subclass has are its calls."""

    def __init__(self, client: Client, mode: Mode, order: Order) -> None:
        self.client, self.mode, self.order = client, mode, order
        shape: dict[str, Any] = {"streams": order.streams, "streams_per_shard": order.per_shard}
        self.queue = client.queue("modes", **{"visibility_timeout": LEASE, **shape, **mode.settings})
        self.queue.declare()
        self._dice, self._next = random.Random(order.seed), 0
        self._payload = self._dice.randbytes(mode.payload or order.payload)
        self.size = mode.group if order.batch == 1 else order.batch
        self._held: list[Delivery] = []
        self.acks_with_reads = mode.cycle is whole and mode.ending == "ack" and not mode.bare
        mode.setup(self)
        for _ in range(0, mode.waiting, FILLED):
            self.queue.write_many(self.messages(FILLED))

    def messages(self, count: int = 0) -> list[Message]:
        """The next ones: those of one cycle, or so many."""
        first, count = self._next, count or self.size
        self._next += count
        numbers, options = range(first, first + count), self.mode.options
        return [
            Message(self._payload, self.mode.tenants(at, self._dice), **(options(at) if options else {}))
            for at in numbers
        ]

    def write(self, messages: Sequence[Message]) -> None:
        """Write the messages of one cycle."""
        raise NotImplementedError

    def read(self, count: int) -> list[Delivery]:
        """Read so many; RuntimeError if they do not come."""
        raise NotImplementedError

    def ack(self, found: Sequence[Delivery]) -> None:
        """End what was read as the mode says."""
        raise NotImplementedError

    def nack(self, found: Sequence[Delivery]) -> None:
        """Give back what was read."""
        lost = self.queue.nack_many(found)
        assert not lost

    def read_with_ack(self, count: int) -> None:
        """Read so many, and ack those that the call before this one read."""
        raise NotImplementedError

    def read_nothing(self) -> None:
        """Read, where there is nothing to be had."""
        raise NotImplementedError

    def settle(self) -> None:
        """Ack what the last read with acks left."""
        self.ack(self._held)
        self._held = []


class Singles(Caller):
    """One message a call."""

    def write(self, messages: Sequence[Message]) -> None:
        for each in messages:
            self.queue.write(
                each.payload, shard_key=each.shard_key, delay=each.delay, deadline=each.deadline,
                dedup_key=each.dedup_key, headers=each.headers, unique_key=each.unique_key,
            )  # fmt: skip

    def read(self, count: int) -> list[Delivery]:
        return [self.queue.read(**self.mode.reading) for _ in range(count)]

    def ack(self, found: Sequence[Delivery]) -> None:
        for each in found:
            if self.mode.ending == "reject":
                each.reject(_problem())
            elif self.mode.ending == "nack":
                each.nack(error=_problem())
            elif self.mode.ending == "result":
                each.ack(result=1)
            else:
                each.ack()

    def read_with_ack(self, count: int) -> None:
        for _ in range(count):
            self._held = [self.queue.read(ack=self._held or None, **self.mode.reading)]

    def read_nothing(self) -> None:
        try:
            self.queue.read(**self.mode.reading)
        except Empty:
            return
        raise RuntimeError("a read of an empty queue found something")


class Batches(Caller):
    """A batch a call; reads go on until it is complete."""

    def write(self, messages: Sequence[Message]) -> None:
        self.queue.write_many(messages)

    def read(self, count: int) -> list[Delivery]:
        found: list[Delivery] = []
        while len(found) < count:
            found += self._read_some(count - len(found))
        return found

    def _read_some(self, count: int, **more: Any) -> list[Delivery]:
        some = self.queue.read_many(count, **self.mode.reading, **more)
        if not some:
            raise RuntimeError(f"of a batch {count} messages did not come")
        return some

    def ack(self, found: Sequence[Delivery]) -> None:
        if self.mode.ending == "reject":
            lost = self.queue.reject_many(found, _problem())
        elif self.mode.ending == "nack":
            lost = self.queue.nack_many(found, error=_problem())
        else:
            lost = self.queue.ack_many(found, results=[1] * len(found) if self.mode.ending == "result" else None)
        assert not lost

    def read_with_ack(self, count: int) -> None:
        found = self._read_some(count, ack=self._held or None)
        self._held = found + self.read(count - len(found))

    def read_nothing(self) -> None:
        if self.queue.read_many(self.order.batch, **self.mode.reading):
            raise RuntimeError("a read of an empty queue found something")


class BareStream(Caller):
    """redis-py and one stream with one group instead of a queue: XADD; XREADGROUP; XACK with XDEL."""

    def __init__(self, client: Client, mode: Mode, order: Order) -> None:
        super().__init__(client, mode, order)
        self._stream = Bare(order.url, f"{self.queue.name}-bare")

    def write(self, messages: Sequence[Message]) -> None:
        if self.order.batch > 1:
            self._stream.write_many([each.payload for each in messages])
        else:
            for each in messages:
                self._stream.write(each.payload)

    def read(self, count: int) -> list[Any]:
        found = self._stream.read(count)
        assert len(found) == count
        return found

    def ack(self, found: Sequence[Any]) -> None:
        self._stream.ack([entry for entry, _ in found])


def make_caller(client: Client, mode: Mode, order: Order) -> Caller:
    """The one that the mode and the size of its batches need."""
    if mode.bare:
        return BareStream(client, mode, order)
    return (Singles if order.batch == 1 else Batches)(client, mode, order)
