"""A full Redis: what stores more is refused whole, and all that empties it or lets it be emptied goes on.

The server has not a byte left: each command that Redis refuses for want of memory is refused. Each verb comes from a
client that has just been made, as that of an operator or of a worker that was started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from shardq import Limits, Message, OutOfMemory, Queue, ShardqError
from tests.promises.conftest import OpenClient, OpenQueue
from tests.servers import Server


class Verb(NamedTuple):
    """A call, whether it may run while Redis is full, and why."""

    may_run: bool
    why: str
    call: Callable[[Queue], object]


LOOKS = "it only looks"
EMPTIES = "it removes what is stored"
WORKS = "workers must go on, or the queue is never drained"
FREES = "it lets more be delivered, so that the queue can be drained"
STOPS = "an operator must be able to stop a tenant, above all then"
STORES = "it stores a message"


def first_dead(queue: Queue) -> str:
    return queue.dead()[0].message_id


def any_id(queue: Queue) -> str:
    return queue.peek(1).messages[0].message_id


VERBS: dict[str, Verb] = {
    "len": Verb(True, LOOKS, lambda q: q.len()),
    "stats": Verb(True, LOOKS, lambda q: q.stats()),
    "settings": Verb(True, LOOKS, lambda q: q.settings()),
    "limits": Verb(True, LOOKS, lambda q: q.limits()),
    "paused": Verb(True, LOOKS, lambda q: q.paused()),
    "weights": Verb(True, LOOKS, lambda q: q.weights()),
    "tenants": Verb(True, LOOKS, lambda q: q.tenants()),
    "tenant": Verb(True, LOOKS, lambda q: q.tenant("a")),
    "assignment": Verb(True, LOOKS, lambda q: q.assignment()),
    "journal": Verb(True, LOOKS, lambda q: q.journal()),
    "dead": Verb(True, LOOKS, lambda q: q.dead()),
    "peek": Verb(True, LOOKS, lambda q: q.peek()),
    "status": Verb(True, LOOKS, lambda q: q.status(any_id(q))),
    "read": Verb(True, WORKS, lambda q: q.read()),
    "read_many": Verb(True, WORKS, lambda q: q.read_many(10)),
    "ack": Verb(True, WORKS, lambda q: q.read().ack()),
    "ack_many": Verb(True, WORKS, lambda q: q.ack_many(q.read_many(10))),
    "ack with a result": Verb(True, WORKS, lambda q: q.read().ack(result="done")),
    "nack": Verb(True, WORKS, lambda q: q.read().nack(error="again")),
    "nack with a delay": Verb(True, WORKS, lambda q: q.read().nack(delay=5)),
    "nack_many": Verb(True, WORKS, lambda q: q.nack_many(q.read_many(10), error="again")),
    "reject": Verb(True, WORKS, lambda q: q.read().reject("no")),
    "reject_many": Verb(True, WORKS, lambda q: q.reject_many(q.read_many(10), "no")),
    "extend": Verb(True, WORKS, lambda q: q.read().extend(60)),
    "cancel": Verb(True, EMPTIES, lambda q: q.cancel(any_id(q))),
    "purge": Verb(True, EMPTIES, lambda q: q.purge()),
    "delete": Verb(True, EMPTIES, lambda q: q.delete(expected=None)),
    "delete_dead": Verb(True, EMPTIES, lambda q: q.delete_dead(older_than=0)),
    "delete_dead by id": Verb(True, EMPTIES, lambda q: q.delete_dead(ids=[first_dead(q)])),
    "resume": Verb(True, FREES, lambda q: q.resume("paused")),
    "resume the queue": Verb(True, FREES, lambda q: q.resume()),
    "set_limits, lifting": Verb(True, FREES, lambda q: q.set_limits({"limited": Limits()})),
    "set_weights, lifting": Verb(True, FREES, lambda q: q.set_weights({"weighty": 1})),
    "configure, lifting": Verb(True, FREES, lambda q: q.configure(total_in_flight=0)),
    "configure, another lease": Verb(True, FREES, lambda q: q.configure(visibility_timeout=5)),
    "redrive": Verb(True, FREES, lambda q: q.redrive(q.dead())),
    "list schedules": Verb(True, LOOKS, lambda q: q.schedules.list()),
    "remove a schedule": Verb(True, EMPTIES, lambda q: q.schedules.remove("often")),
    "pause a schedule": Verb(True, STOPS, lambda q: q.schedules.pause("often")),
    "add a schedule": Verb(False, STORES, lambda q: q.schedules.add("new", "call", shard_key="a", every=60)),
    "pause": Verb(True, STOPS, lambda q: q.pause("a")),
    "pause with an end": Verb(True, STOPS, lambda q: q.pause("a", seconds=600)),
    "pause the queue": Verb(True, STOPS, lambda q: q.pause()),
    "write": Verb(False, STORES, lambda q: q.write("more", shard_key="a")),
    "write, delayed": Verb(False, STORES, lambda q: q.write("more", shard_key="a", delay=60)),
    "write, unique": Verb(False, STORES, lambda q: q.write("more", shard_key="a", unique_key="k")),
    "write, with a dedup key": Verb(False, STORES, lambda q: q.write("more", shard_key="a", dedup_key="k")),
}  # fmt: skip


@pytest.fixture
def full(open_queue: OpenQueue, server: Server) -> Iterator[Queue]:
    """A queue with messages in each state on a server that becomes full."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1, result_ttl=60, journal=100, total_in_flight=1000)
    queue.write_many([(number, tenant) for number in range(8) for tenant in ("dies", "a", "b", "c")])
    for each in queue.read_many(100):
        if each.shard_key == "dies" and each.payload < 3:
            each.reject("no")
        else:
            each.nack()
    queue.write_many([Message(number, "late", delay=0.5) for number in range(3)])
    queue.set_limits({"limited": Limits(max_in_flight=1)})
    queue.set_weights({"weighty": 3})
    queue.pause("paused")
    queue.configure(max_schedules=10)
    queue.schedules.add("often", "call", shard_key="a", every=60)
    queue.write_many([(number, tenant) for number in range(5) for tenant in ("paused", "limited", "weighty")])
    with fully(server):
        yield queue


class fully:  # noqa: N801 (it reads as a word: `with fully(server)`)
    """The server has no memory left."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def __enter__(self) -> None:
        self._server.run("CONFIG", "SET", "maxmemory", 1)

    def __exit__(self, *_: object) -> None:
        self._server.run("CONFIG", "SET", "maxmemory", 0)


def outcome(call: Callable[[Queue], object], queue: Queue) -> str:
    """How a call ended."""
    try:
        call(queue)
    except OutOfMemory:
        return "refused: the server is full"
    except ShardqError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


@pytest.mark.parametrize("functions", ["known", pytest.param("forgotten", marks=pytest.mark.runs_in("test-all"))])
@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may(
    full: Queue, server: Server, open_client: OpenClient, verb: str, functions: str
) -> None:
    """Also if the server has forgotten all scripts and functions, as after a restart."""
    if functions == "forgotten":
        server.run("SCRIPT", "FLUSH")
        server.run("FUNCTION", "FLUSH")
    may_run, why, call = VERBS[verb]
    expected = "done" if may_run else "refused: the server is full"
    assert outcome(call, open_client().queue(full.name)) == expected, why


def test_what_a_full_server_refuses_changes_nothing(full: Queue, open_client: OpenClient) -> None:
    before = full.stats()
    queue = open_client().queue(full.name)
    for verb in VERBS.values():
        if not verb.may_run:
            assert outcome(verb.call, queue) != "done"
    after = full.stats()
    assert (after.written, after.backlog, after.streams) == (before.written, before.backlog, before.streams)


@pytest.mark.parametrize("functions", ["known", pytest.param("forgotten", marks=pytest.mark.runs_in("test-all"))])
def test_a_full_server_is_drained_to_empty_by_a_fresh_client(
    full: Queue, server: Server, open_client: OpenClient, functions: str
) -> None:
    """All that waits, is delayed, dead, limited or paused; then there is nothing left but what every queue has."""
    if functions == "forgotten":
        server.run("SCRIPT", "FLUSH")
        server.run("FUNCTION", "FLUSH")
    queue = open_client().queue(full.name)
    problems = [outcome(lambda q: q.resume("paused"), queue), outcome(lambda q: q.redrive(q.dead()), queue)]
    problems += [outcome(lambda q: q.set_limits({"limited": Limits()}), queue)]
    assert set(problems) == {"done"}
    until = time.monotonic() + 60
    while queue.len() + queue.stats().delayed and time.monotonic() < until:
        assert queue.ack_many(queue.read_many(100, block=0.5)) == []
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.delayed, stats.dead) == (0, 0, 0, 0)
    assert stats.acked == stats.written


def test_a_queue_on_a_full_server_can_be_deleted_and_leaves_nothing(
    full: Queue, server: Server, open_client: OpenClient
) -> None:
    open_client().queue(full.name).delete(expected=None)
    assert server.run("KEYS", "shardq:{*") == []


@pytest.mark.runs_in("test-all")
def test_a_reader_that_waits_on_a_full_server_gets_what_comes_back_by_time(
    full: Queue, open_client: OpenClient
) -> None:
    """Messages whose leases end."""
    queue = open_client().queue(full.name)
    held = set()
    while found := queue.read_many(100, visibility_timeout=3):
        held |= {each.message_id for each in found}
    late = {queue.read(block=30).message_id for _ in range(len(held))}
    assert held & late
