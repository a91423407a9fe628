"""A worker of several queues: a busy one has nearly all slots, and others wait for the end of one handler at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from shardq import Client
from shardq.model import DeliveryView
from tests.clients import ClientKind
from tests.waiting import eventually
from tests.worker.running import Gate, RunningWorker


class Doors(Gate):
    """Holds each handler until its payload is let out."""

    def __init__(self) -> None:
        super().__init__()
        self.out: set[object] = set()

    def __call__(self, delivery: DeliveryView) -> None:
        self.inside.append(delivery)
        while delivery.payload not in self.out and not self.open.is_set():
            time.sleep(0.002)

    async def asynchronous(self, delivery: DeliveryView) -> None:
        self.inside.append(delivery)
        while delivery.payload not in self.out and not self.open.is_set():  # noqa: ASYNC110 (threads let it out)
            await asyncio.sleep(0.002)

    def began(self, queue: str) -> list[DeliveryView]:
        """The deliveries of *queue* that have begun, each of which has its name in its payload."""
        return [each for each in self.inside if each.payload.split()[0] == queue]

    def let_out(self, queue: str, count: int) -> None:
        """Let out the first *count* of those of *queue* that are inside."""
        held = [each.payload for each in self.began(queue) if each.payload not in self.out]
        self.out.update(held[:count])


class Work:
    """A worker of these queues, the first of which has more than it can do at once."""

    def __init__(self, client: Client, doors: Doors, names: Sequence[str]) -> None:
        self.client, self.doors, self.names = client, doors, names

    def write(self, queue: str, count: int) -> None:
        self.client.queue(queue, create=True).write_many([(f"{queue} {n}", f"t{n % 9}") for n in range(count)])

    def has_begun(self, queue: str, count: int) -> bool:
        return eventually(lambda: len(self.doors.began(queue)) == count, what=f"{count} of {queue} have begun")


@contextmanager
def working(client: Client, url: str, kind: ClientKind, *, concurrency: int, queues: int) -> Iterator[Work]:
    work = Work(client, Doors(), [f"q{number}" for number in range(queues)])
    work.write("q0", 2 * concurrency)
    with RunningWorker(kind, url, work.names, work.doors, concurrency=concurrency):
        try:
            work.has_begun("q0", concurrency - 1)
            yield work
        finally:
            work.doors.open.set()


@pytest.mark.runs_in("test-all")
def test_a_busy_queue_among_fifty_runs_all_but_one_and_others_come_next(
    client: Client, url: str, client_kind: ClientKind
) -> None:
    """It ran 14 of 64."""
    with working(client, url, client_kind, concurrency=64, queues=50) as work:
        work.write("q7", 1)
        work.has_begun("q7", 1)
        assert len(work.doors.began("q0")) == 63, "at once: nothing else had to end"
        work.write("q8", 1)
        work.doors.let_out("q0", 1)
        work.has_begun("q8", 1)
        assert len(work.doors.began("q0")) == 63, "before anything else of the busy one"
        assert [each.count for each in work.doors.inside] == [1] * 65, "what is given back is not counted"


def test_a_queue_that_was_idle_has_its_part_as_soon_as_so_many_handlers_have_ended(
    client: Client, url: str, client_kind: ClientKind
) -> None:
    with working(client, url, client_kind, concurrency=16, queues=4) as work:
        work.write("q1", 20)
        work.has_begun("q1", 1)
        for number in (2, 3, 4):
            work.doors.let_out("q0", 1)
            work.has_begun("q1", number)
        assert len(work.doors.began("q0")) == 15
        work.doors.let_out("q1", 1)
        work.has_begun("q1", 5)
        assert len(work.doors.began("q0")) == 15
