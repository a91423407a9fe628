"""A queue that is full of everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from benchmarks.settings import Settings
from shardq import Client, Delivery, Limits, Message, Queue

T = TypeVar("T")
PIECE: Final = 1000
"""Messages of a call that fills."""
LEASE: Final = 3600.0
AGAIN: Final = 3.0
"""Seconds after which a limited tenant may have its next message."""
SHORT: Final = 0.5
"""Seconds of a pause that ends by itself, and of a delay that is soon over."""
ROUNDS: Final = 3
"""Messages of each tenant."""
NEVER: Final = 0.001
"""A rate that lets no second message through while the benchmark runs."""
PAYLOAD: Final = b"x" * 20


def tenants_of(settings: Settings) -> int:
    """How many tenants wait: ten for each member of an index."""
    return 10 * settings.members


def open_queue(client: Client, name: str, settings: Settings) -> Queue:
    """One without other bounds than those of its calls."""
    queue = client.queue(
        name, create=True, streams=settings.streams, streams_per_shard=settings.per_shard, window=1,
        visibility_timeout=LEASE, max_dead=10**9, max_dedup=10**9,
    )  # fmt: skip
    queue.declare()
    return queue


def pieces(items: Iterable[T]) -> Iterator[list[T]]:
    """The items in lists that one call can take."""
    rest = iter(items)
    while some := list(islice(rest, PIECE)):
        yield some


class Full:
    """Fills a queue, and hands out what calls are made with."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self.queue, self.members = queue, settings.members
        self.tenants = tenants_of(settings)
        self.held: list[Delivery] = []
        self.ids: Sequence[object] = ()
        self._numbers = iter(range(10**9))

    def fill(self) -> None:
        """As many members of each index as the settings say, then the messages of all tenants."""
        self._bury()
        self._make_idle()
        self.limit(1 / AGAIN)
        self.write(self.each("delayed", delay=LEASE))
        self.write(self.each("unique", unique=True))
        self.pause()
        for _ in range(ROUNDS):
            self.write(Message(PAYLOAD, f"tenant-{number}") for number in range(self.tenants))

    def fill_limited(self) -> None:
        """The same members, but nothing that may be delivered."""
        self._bury()
        self.limit(NEVER)
        self.write(self.each("delayed", delay=LEASE))

    def each(self, kind: str, *, unique: bool = False, **options: Any) -> Iterator[Message]:
        """A message of each of so many tenants."""
        for number in range(self.members):
            yield Message(PAYLOAD, f"{kind}-{number}", unique_key=f"key-{number}" if unique else None, **options)

    def write(self, messages: Iterable[Message]) -> None:
        """Write them all, and remember the ids of the last ones."""
        for some in pieces(messages):
            self.ids = self.queue.write_many(some, timeout=60)

    def some(self, count: int, **options: Any) -> list[Message]:
        """Messages of tenants that have others, each of another one."""
        numbers = [next(self._numbers) for _ in range(count)]
        return [Message(PAYLOAD, f"tenant-{7 * number % self.tenants}", **options) for number in numbers]

    def fresh(self, count: int) -> list[Message]:
        """The same, each with a unique key."""
        numbers = [next(self._numbers) for _ in range(count)]
        return [Message(PAYLOAD, f"new-{number}", unique_key=f"new-{number}") for number in numbers]

    def read_all(self, count: int) -> Iterator[list[Delivery]]:
        """Read so many, which may be delivered, in pieces."""
        while count > 0:
            found = self.queue.read_many(min(PIECE, count))
            if not found:
                raise RuntimeError(f"{count} messages did not come")
            count -= len(found)
            yield found

    def take(self, count: int) -> Sequence[Delivery]:
        """So many deliveries that are in flight; a small queue gets more messages for them."""
        while len(self.held) < count:
            found = self.queue.read_many(PIECE)
            self.held += found
            if not found:
                self.write(self.some(PIECE))
        taken, self.held = self.held[:count], self.held[count:]
        return taken

    def limit(self, rate: float) -> None:
        """Tenants that have one message in flight and one behind that waits for a token."""
        for numbers in pieces(range(self.members)):
            self.queue.set_limits({f"limited-{each}": Limits(rate=rate, burst=1) for each in numbers})
        for _ in range(2):
            self.write(self.each("limited"))
        for found in self.read_all(self.members):
            self.held = found

    def pause(self) -> None:
        """Tenants whose pauses end by themselves, with a message each."""
        for number in range(self.members):
            self.queue.pause(f"paused-{number}", seconds=SHORT)
        self.write(self.each("paused"))

    def _bury(self) -> None:
        self.write(self.each("dead"))
        for found in self.read_all(self.members):
            self.queue.reject_many(found, "no")

    def _make_idle(self) -> None:
        """Tenants that had something while others waited: what they have received is remembered."""
        self.queue.pause("blocker")
        self.write(Message(PAYLOAD, "blocker") for _ in range(2 * PIECE))
        self.write(self.each("idle"))
        for found in self.read_all(self.members):
            self.queue.ack_many(found)
