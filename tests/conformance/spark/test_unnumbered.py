"""Rows without numbers: each once within a try, in any order, whatever becomes of the calls' answers."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.errors import BackendError, QueueFull
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.steps import Batch, Op, Sleep, Unanswered
from shardq.spark.ops.rows import RowPace, Rows
from shardq.spark.ops.unnumbered import store_unnumbered
from tests.servers import Server
from tests.waiting import eventually


def made(client: Client, name: str, **settings: int) -> Queue:
    queue = client.queue(name, **{"streams": 16, "streams_per_shard": 3, **settings})  # type: ignore[arg-type]
    client.run(open_queue(queue.state, queue.state.until()))
    return queue


def rows(count: int, first: int = 0, *, keyed: bool = False) -> Rows:
    numbers = range(first, first + count)
    keys, bodies = [b"tenant-%d" % (number % 40) for number in numbers], [b"%d" % number for number in numbers]
    return Rows(keys, "b", bodies, options=[f"||{number}" for number in numbers] if keyed else ())


def counts(queue: Queue) -> Counter[int]:
    """How often each number is in *queue*, which is empty then."""
    found: Counter[int] = Counter()
    while some := queue.read_many(1000):
        queue.ack_many(some)
        found.update(int(each.body) for each in some)
    return found


class Lossy:
    """Runs an operation, and loses some answers, and some calls on their way."""

    def __init__(self, client: Client, rng: Random, share: float) -> None:
        self._client, self._rng, self._share = client, rng, share
        self.lost = 0

    def run(self, op: Op[None]) -> None:
        reply: Any = None
        while True:
            try:
                step = op.send(reply)
            except StopIteration:
                return
            match step:
                case Sleep():
                    reply = None
                case Batch() if step.calls[0].call.script.name == "write":
                    reply = self._some(step)
                case _:
                    reply = self._client.run(_only(step))

    def _some(self, step: Batch) -> list[Any]:
        sent = [self._rng.random() >= self._share for _ in step.calls]
        calls = tuple(call for call, goes in zip(step.calls, sent, strict=True) if goes)
        answers = iter(self._client.run(_only(Batch(calls, step.until))) if calls else [])
        found = [next(answers) if goes else Unanswered("no way", sent=False) for goes in sent]
        lost = [self._rng.random() < self._share for _ in found]
        self.lost += sum(lost)
        return [Unanswered("lost", sent=True) if gone else each for each, gone in zip(found, lost, strict=True)]


def _only(step: Any) -> Op[Any]:
    return (yield step)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_rows_are_stored_once_within_a_try(server_client: Client, queue_name: str, rng: Random, share: float) -> None:
    queue, lossy = made(server_client, queue_name), Lossy(server_client, rng, share)
    for first in range(0, 3000, 1000):
        lossy.run(
            store_unnumbered(queue.state, rows(1000, first), RowPace(rng.choice([7, 50, 250]), rng.randrange(1, 9)))
        )
    assert (lossy.lost > 0) == (share > 0)
    assert counts(queue) == dict.fromkeys(range(3000), 1)


def test_another_try_stores_them_again_but_for_those_with_keys(
    server_client: Client, queue_name: str, rng: Random
) -> None:
    """Whose order does not matter."""
    queue = made(server_client, queue_name)
    for _ in range(2):
        server_client.run(store_unnumbered(queue.state, rows(500), RowPace(chunk=60)))
    assert counts(queue) == dict.fromkeys(range(500), 2)
    packed = rows(500, keyed=True)
    for _ in range(3):
        order = rng.sample(range(500), 500)
        keys, bodies = [packed.shard_keys[at] for at in order], [packed.bodies[at] for at in order]
        mixed = Rows(keys, "b", bodies, options=[packed.options[at] for at in order])
        Lossy(server_client, rng, 0.3).run(store_unnumbered(queue.state, mixed, RowPace(chunk=60)))
    assert counts(queue) == dict.fromkeys(range(500), 1)


def test_a_full_queue_takes_what_fits(server_client: Client, queue_name: str) -> None:
    """Also after a call was refused whose rows have to go in smaller ones, and some of its round trip were stored."""
    queue = made(server_client, queue_name, max_len=137)

    def full() -> bool:
        with pytest.raises(QueueFull, match=r"took no more rows for 0.1 s, since it is full \(max_len\).*stay"):
            server_client.run(store_unnumbered(queue.state, rows(400), RowPace(chunk=50, patience=0.1)))
        return queue.len() == 137

    eventually(full, what="what fits is stored; a machine that stands still uses up the patience sooner")
    queue.configure(max_len=0)
    server_client.run(store_unnumbered(queue.state, rows(400, 1000), RowPace(max_backlog=1000)))
    assert queue.len() == 537


def test_a_queue_that_is_resized_meanwhile_gets_each_row_once(server_client: Client, queue_name: str) -> None:
    queue = made(server_client, queue_name)
    with Client.beside(server_client) as other:
        for first, streams in ((0, 40), (1000, 3), (2000, 300), (3000, 16)):
            server_client.run(store_unnumbered(queue.state, rows(1000, first), RowPace(chunk=50)))
            other.queue(queue_name, create=True).resize(streams)
    assert counts(queue) == dict.fromkeys(range(4000), 1)


def test_a_producer_that_redis_does_not_remember_stores_its_rows(
    server_client: Client, queue_name: str, server: Server
) -> None:
    queue = made(server_client, queue_name)
    ends: list[str | int] = [word for number in range(100_001) for word in (9 * 10**12, f"p:{number}")]
    for at in range(0, len(ends), 20_000):
        server.run("ZADD", queue.state.keys.producers, *ends[at : at + 20_000])
    server_client.run(store_unnumbered(queue.state, rows(500), RowPace(chunk=60)))
    assert counts(queue) == dict.fromkeys(range(500), 1)


def test_a_key_of_another_type_is_an_error_at_once(server_client: Client, queue_name: str, server: Server) -> None:
    queue = made(server_client, queue_name, streams=1, streams_per_shard=1)
    server.run("DEL", queue.state.keys.stream(0))
    server.run("SET", queue.state.keys.stream(0), "x")
    with pytest.raises(BackendError, match="holds another type"):
        server_client.run(store_unnumbered(queue.state, rows(10), RowPace()))
