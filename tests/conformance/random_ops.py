"""A random walk over all that a fair queue can do."""

from __future__ import annotations

import random
from collections.abc import Callable

from shardq import (
    ConfigError,
    Delivery,
    LeaseLost,
    Message,
    MessageCancelled,
    MessageNotFound,
    PartlyWritten,
    QueueFull,
)
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

KEYS: tuple[str | bytes, ...] = ("a", "b", "c/1", "c/2", "c/3", "d/x/y", "/e", b"\x00\xff", "f f", "g:1")
STREAMS = (1, 4, 8, 16, 40)


class RandomOps:
    """Does one thing after the other; `alive` are the messages that must still come."""

    def __init__(self, open_queue: OpenQueue, world: World, rng: random.Random, **settings: int) -> None:
        self._rng, self._world = rng, world
        self.queue = open_queue(
            streams=rng.choice(STREAMS), streams_per_shard=2, window=rng.choice((1, 2, 3)), max_deliveries=4,
            max_in_flight=rng.choice((0, 0, 2, 5)), max_backlog=rng.choice((0, 0, 10)), parents=rng.choice((0, 1)),
            **settings,
        )  # fmt: skip
        self.queue.read_many(1)
        self.alive: set[str] = set()
        self.held: dict[str, Delivery] = {}
        self.log: list[str] = []
        self._numbers = iter(range(10**6))
        self._acts: dict[Callable[[], None], float] = {
            self._write: 6, self._write_many: 3, self._read: 11, self._settle: 8, self._ack_many: 3, self._nack_many: 2,
            self._redrive: 1, self._cancel: 2, self._resize: 0.5, self._switch: 1, self._elapse: 2, self._weigh: 0.5,
            self._split: 0 if self.queue.state.parts else 1,  # parents of a queue with partitions stay as they are
        }  # fmt: skip

    def step(self) -> None:
        """One thing."""
        (act,) = self._rng.choices(list(self._acts), list(self._acts.values()))
        self.log.append(act.__name__)
        try:
            act()
        except (LeaseLost, MessageCancelled, MessageNotFound, QueueFull) as error:
            self.log[-1] += f": {type(error).__name__}"

    def remaining(self) -> set[str]:
        """Which messages do not come when all is read, and which come that should not."""
        self.queue.configure(window=0, max_in_flight=0)
        self._world.elapse(self.queue, 10_000)
        seen: set[str] = set()
        while batch := self.queue.read_many(50):
            assert self.queue.ack_many(batch) == []
            seen |= {each.message_id for each in batch}
        assert self.queue.len() == 0
        return (self.alive - {letter.message_id for letter in self.queue.dead(1000)}) ^ seen

    def _message(self) -> Message:
        rng = self._rng
        return Message(
            next(self._numbers), rng.choice(KEYS), delay=rng.choice((None, None, None, 50.0)),
            deadline=rng.choice((None, None, 100_000.0)),
        )  # fmt: skip

    def _write(self) -> None:
        each = self._message()
        self.alive.add(
            self.queue.write(each.payload, shard_key=each.shard_key, delay=each.delay, deadline=each.deadline)
        )

    def _write_many(self) -> None:
        self._store([self._message() for _ in range(self._rng.randint(1, 20))])

    def _store(self, messages: list[Message]) -> None:
        try:
            self.alive.update(self.queue.write_many(messages))
        except PartlyWritten as error:
            self.alive.update(each for each in error.results if isinstance(each, str))

    def _read(self) -> None:
        lasts = self._rng.choice((5000.0, 60.0))
        for each in self.queue.read_many(self._rng.choice((1, 1, 3, 12)), visibility_timeout=lasts):
            assert each.message_id in self.alive
            self.held[each.message_id] = each

    def _settle(self) -> None:
        if self.held:
            delivery = self.held.pop(self._rng.choice(list(self.held)))
            verb = self._rng.choice(("ack", "ack", "ack", "nack", "delay", "reject"))
            if verb == "ack":
                delivery.ack()
                self.alive.discard(delivery.message_id)
            elif verb == "reject":
                delivery.reject("no")
            else:
                delivery.nack(delay=0 if verb == "nack" else 50)

    def _ack_many(self) -> None:
        batch = [self.held.pop(each) for each in list(self.held)[: self._rng.randint(1, 6)]]
        lost = {each.message_id for each in self.queue.ack_many(batch)}
        self.alive -= {each.message_id for each in batch} - lost

    def _nack_many(self) -> None:
        self.queue.nack_many([self.held.pop(each) for each in list(self.held)[: self._rng.randint(1, 6)]])

    def _redrive(self) -> None:
        self.queue.redrive(self.queue.dead())

    def _cancel(self) -> None:
        if self.alive:
            message_id = self._rng.choice(sorted(self.alive))
            if self.queue.cancel(message_id) != "dead":
                self.alive.discard(message_id)

    def _resize(self) -> None:
        self.queue.resize(self._rng.choice(STREAMS))

    def _switch(self) -> None:
        self.queue.configure(window=self._rng.choice((0, 1, 2, 5)), max_in_flight=self._rng.choice((0, 0, 2, 6)))

    def _weigh(self) -> None:
        self.queue.set_weights({self._rng.choice((*KEYS, "c", "d")): self._rng.choice((1, 2, 5))})

    def _split(self) -> None:
        """Parents change while nothing waits or is delayed that counts, and are refused else."""
        seen = self._world.census(self.queue)
        waits = bool(seen.new or seen.returned or seen.held or seen.delayed or seen.leased)
        wanted = 1 - self.queue.settings().parents
        try:
            assert self.queue.configure(parents=wanted).parents == wanted
            assert not waits
        except ConfigError:
            assert waits

    def _elapse(self) -> None:
        self._world.elapse(self.queue, 60)
