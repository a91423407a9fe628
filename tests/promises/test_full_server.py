"""A full Redis: what stores more is refused whole, and all that empties it or lets it be emptied goes on.

The server has not a byte left: each command that Redis refuses for want of memory is refused. Each verb comes from a
client that has just been made, as that of an operator or of a worker that was started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from shardq import Client, Limits, Message, OutOfMemory, PartlyPublished, PartlyWritten, Queue, ShardqError
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.release import release
from shardq.ops.write.write import write_many
from tests.promises.conftest import OpenClient, OpenQueue
from tests.servers import Server
from tests.surface import calls, differences, not_called


class Verb(NamedTuple):
    """A call, what becomes of it while Redis is full, and why."""

    end: str
    why: str
    call: Callable[[Queue], object]


DONE = "done"
REFUSED = "refused: the server is full"
LOOKS = "it only looks"
EMPTIES = "it removes what is stored"
WORKS = "workers must go on, or the queue is never drained"
FREES = "it lets more be delivered, so that the queue can be drained"
STOPS = "an operator must be able to stop a tenant, above all then"
BEGINS = "a worker or an operator that starts then must be able to begin"
STORES = "it stores a message"
KEEPS = "it stores something that needs no room now"
TELLS = "all who follow the bindings are told by what it stores, and what is published is refused anyway"


def first_dead(queue: Queue) -> str:
    return queue.dead()[0].message_id


def any_id(queue: Queue) -> str:
    return queue.peek(1).messages[0].message_id


def finished(queue: Queue) -> str:
    return next(each.message_id for each in queue.journal().events if each.kind == "acked")


def progress(queue: Queue) -> None:
    """A worker's handler tells how far it is, learns that this is not kept, and goes on."""
    delivery = queue.read()
    assert delivery.progress(1, 2) is False
    delivery.ack()


def flush(queue: Queue) -> None:
    writer = queue.client.writer()
    writer.write(queue.name, "more", shard_key="a")
    writer.flush()


def close(queue: Queue) -> None:
    writer = queue.client.writer()
    writer.write(queue.name, "more", shard_key="a")
    writer.close()


VERBS: dict[str, Verb] = {
    "Client.bind": Verb(REFUSED, KEEPS, lambda q: q.client.bind("other", q.name)),
    "Client.bind_many": Verb(REFUSED, KEEPS, lambda q: q.client.bind_many([("other", q.name)])),
    "Client.bindings": Verb(DONE, LOOKS, lambda q: q.client.bindings()),
    "Client.publish": Verb(REFUSED, STORES, lambda q: q.client.publish("topic", "more", shard_key="a")),
    "Client.queues": Verb(DONE, LOOKS, lambda q: q.client.queues()),
    "Client.router": Verb(DONE, LOOKS, lambda q: q.client.router()),
    "Client.unbind": Verb(REFUSED, TELLS, lambda q: q.client.unbind("topic", q.name)),
    "Client.unbind_gone": Verb(REFUSED, TELLS, lambda q: q.client.unbind_gone()),
    "Client.unbind_many": Verb(REFUSED, TELLS, lambda q: q.client.unbind_many([("topic", q.name)])),
    "Delivery.ack": Verb(DONE, WORKS, lambda q: q.read().ack()),
    "Delivery.ack, with a result": Verb(DONE, WORKS, lambda q: q.read().ack(result="done")),
    "Delivery.extend": Verb(DONE, WORKS, lambda q: q.read().extend(60)),
    "Delivery.nack": Verb(DONE, WORKS, lambda q: q.read().nack(error="again")),
    "Delivery.nack, with a delay": Verb(DONE, WORKS, lambda q: q.read().nack(delay=5)),
    "Delivery.progress": Verb(DONE, WORKS, progress),
    "Delivery.reject": Verb(DONE, WORKS, lambda q: q.read().reject("no")),
    "Queue.ack_many": Verb(DONE, WORKS, lambda q: q.ack_many(q.read_many(10))),
    "Queue.assign": Verb(REFUSED, KEEPS, lambda q: q.assign(["more"])),
    "Queue.assignment": Verb(DONE, LOOKS, lambda q: q.assignment()),
    "Queue.cancel": Verb(DONE, EMPTIES, lambda q: q.cancel(any_id(q))),
    "Queue.configure, lifting": Verb(DONE, FREES, lambda q: q.configure(total_in_flight=0)),
    "Queue.configure, another lease": Verb(DONE, FREES, lambda q: q.configure(visibility_timeout=5)),
    "Queue.dead": Verb(DONE, LOOKS, lambda q: q.dead()),
    "Queue.declare": Verb(DONE, BEGINS, lambda q: q.declare()),
    "Queue.delete": Verb(DONE, EMPTIES, lambda q: q.delete(expected=None)),
    "Queue.delete_dead": Verb(DONE, EMPTIES, lambda q: q.delete_dead(older_than=0)),
    "Queue.delete_dead, by id": Verb(DONE, EMPTIES, lambda q: q.delete_dead(ids=[first_dead(q)])),
    "Queue.delete_plan": Verb(DONE, EMPTIES, lambda q: q.delete_plan("unused")),
    "Queue.journal": Verb(DONE, LOOKS, lambda q: q.journal()),
    "Queue.len": Verb(DONE, LOOKS, lambda q: q.len()),
    "Queue.limits": Verb(DONE, LOOKS, lambda q: q.limits()),
    "Queue.nack_many": Verb(DONE, WORKS, lambda q: q.nack_many(q.read_many(10), error="again")),
    "Queue.pause": Verb(DONE, STOPS, lambda q: q.pause("a")),
    "Queue.pause, with an end": Verb(DONE, STOPS, lambda q: q.pause("a", seconds=600)),
    "Queue.pause, the queue": Verb(DONE, STOPS, lambda q: q.pause()),
    "Queue.paused": Verb(DONE, LOOKS, lambda q: q.paused()),
    "Queue.peek": Verb(DONE, LOOKS, lambda q: q.peek()),
    "Queue.plans": Verb(DONE, LOOKS, lambda q: q.plans()),
    "Queue.purge": Verb(DONE, EMPTIES, lambda q: q.purge()),
    "Queue.read": Verb(DONE, WORKS, lambda q: q.read()),
    "Queue.read_many": Verb(DONE, WORKS, lambda q: q.read_many(10)),
    "Queue.redrive": Verb(DONE, FREES, lambda q: q.redrive(q.dead())),
    "Queue.reject_many": Verb(DONE, WORKS, lambda q: q.reject_many(q.read_many(10), "no")),
    "Queue.resize": Verb(REFUSED, KEEPS, lambda q: q.resize(8)),
    "Queue.result": Verb(DONE, "it notes that somebody waits", lambda q: q.result(finished(q))),
    "Queue.resume": Verb(DONE, FREES, lambda q: q.resume("paused")),
    "Queue.resume, the queue": Verb(DONE, FREES, lambda q: q.resume()),
    "Queue.set_limits, lifting": Verb(DONE, FREES, lambda q: q.set_limits({"limited": Limits()})),
    "Queue.set_plan": Verb(DONE, STOPS, lambda q: q.set_plan("gold", max_in_flight=1)),
    "Queue.set_weights, lifting": Verb(DONE, FREES, lambda q: q.set_weights({"weighty": 1})),
    "Queue.settings": Verb(DONE, LOOKS, lambda q: q.settings()),
    "Queue.stats": Verb(DONE, LOOKS, lambda q: q.stats()),
    "Queue.status": Verb(DONE, LOOKS, lambda q: q.status(any_id(q))),
    "Queue.tenant": Verb(DONE, LOOKS, lambda q: q.tenant("a")),
    "Queue.tenants": Verb(DONE, LOOKS, lambda q: q.tenants()),
    "Queue.unassign": Verb(REFUSED, "what it takes back is small", lambda q: q.unassign(["assigned"])),
    "Queue.weights": Verb(DONE, LOOKS, lambda q: q.weights()),
    "Queue.write": Verb(REFUSED, STORES, lambda q: q.write("more", shard_key="a")),
    "Queue.write, delayed": Verb(REFUSED, STORES, lambda q: q.write("more", shard_key="a", delay=60)),
    "Queue.write, unique": Verb(REFUSED, STORES, lambda q: q.write("more", shard_key="a", unique_key="k")),
    "Queue.write, with a dedup key": Verb(REFUSED, STORES, lambda q: q.write("more", shard_key="a", dedup_key="k")),
    "Queue.write_many": Verb(REFUSED, STORES, lambda q: q.write_many([("more", "a")] * 3)),
    "Schedules.add": Verb(REFUSED, KEEPS, lambda q: q.schedules.add("new", "call", shard_key="a", every=60)),
    "Schedules.list": Verb(DONE, LOOKS, lambda q: q.schedules.list()),
    "Schedules.pause": Verb(DONE, STOPS, lambda q: q.schedules.pause("often")),
    "Schedules.remove": Verb(DONE, EMPTIES, lambda q: q.schedules.remove("often")),
    "Schedules.resume": Verb(DONE, BEGINS, lambda q: q.schedules.resume("resting")),
    "Schedules.run": Verb(REFUSED, STORES, lambda q: q.schedules.run("often")),
    "Writer.close": Verb(REFUSED, STORES, close),
    "Writer.flush": Verb(REFUSED, STORES, flush),
    "Writer.write": Verb(
        REFUSED, STORES, lambda q: q.client.writer().write(q.name, "more", shard_key="a").result()
    ),
}  # fmt: skip
APART = {
    "Job.cancel": "it is Queue.cancel",
    "Job.result": "it is Queue.result",
    "Job.status": "it is Queue.status",
}
CHANGES = {name: verb for name, verb in VERBS.items() if verb.end == DONE and verb.why != LOOKS}


@pytest.fixture
def full(open_queue: OpenQueue, server: Server) -> Iterator[Queue]:
    """A queue with messages in each state, and whatever else there can be of it, on a server that becomes full."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1, result_ttl=60, journal=1000, total_in_flight=1000)
    queue.write("done", shard_key="a")
    queue.read().ack(result="done")
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
    queue.set_plan("gold", max_in_flight=5)
    queue.set_plan("unused", max_in_flight=5)
    queue.assign(["assigned"])
    queue.configure(max_schedules=10)
    for name in ("often", "resting"):
        queue.schedules.add(name, "call", shard_key="a", every=60, paused=name == "resting")
    queue.client.bind_many([("topic", queue.name), ("topic", "gone")])
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
    except PartlyWritten as error:
        errors = error.results
    except PartlyPublished as error:
        errors = [*error.results.values()]
    except ShardqError as error:
        errors = [error]
    else:
        return DONE
    return REFUSED if {*map(type, errors)} == {OutOfMemory} else f"{type(errors[0]).__name__}: {errors[0]}"


each_state = pytest.mark.parametrize(
    "functions", ["known", pytest.param("forgotten", marks=pytest.mark.runs_in("test-all"))]
)
"""The server knows the functions, or has forgotten all, as after a restart."""


def forget(server: Server, functions: str) -> None:
    if functions == "forgotten":
        server.run("SCRIPT", "FLUSH")
        server.run("FUNCTION", "FLUSH")


def test_each_verb_is_shown() -> None:
    assert differences(VERBS, calls(), APART) == []
    assert not_called({name: verb.call for name, verb in VERBS.items()}) == []


@each_state
@pytest.mark.parametrize("verb", CHANGES)
def test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may(
    full: Queue, server: Server, open_client: OpenClient, verb: str, functions: str
) -> None:
    forget(server, functions)
    end, why, call = VERBS[verb]
    assert outcome(call, open_client().queue(full.name)) == end, why


@each_state
def test_what_a_full_server_refuses_changes_nothing_and_all_can_be_seen(
    full: Queue, server: Server, open_client: OpenClient, functions: str
) -> None:
    forget(server, functions)
    before = server.run("DEBUG", "DIGEST")
    for name in VERBS.keys() - CHANGES.keys():
        end, why, call = VERBS[name]
        assert outcome(call, open_client().queue(full.name)) == end, (name, why)
        assert server.run("DEBUG", "DIGEST") == before, name


@each_state
def test_a_full_server_is_drained_to_empty_by_a_fresh_client(
    full: Queue, server: Server, open_client: OpenClient, functions: str
) -> None:
    """All that waits, is delayed, dead, limited or paused; then there is nothing left but what every queue has."""
    forget(server, functions)
    queue = open_client().queue(full.name)
    problems = [outcome(lambda q: q.resume("paused"), queue), outcome(lambda q: q.redrive(q.dead()), queue)]
    problems += [outcome(lambda q: q.set_limits({"limited": Limits()}), queue)]
    assert {*problems} == {DONE}
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
    assert server.run("KEYS", f"shardq:{{{full.name}}}:*") == []


def test_results_that_have_ended_are_forgotten_on_a_full_server(
    open_queue: OpenQueue, server: Server, open_client: OpenClient
) -> None:
    queue = open_queue(result_ttl=60)
    message_id = queue.write("work", shard_key="a")
    queue.read().ack(result="done")
    server.run("ZADD", queue.state.keys.result_ends, 1, message_id)  # as if it had ended
    with fully(server):
        reader = open_client().queue(queue.name)
        assert reader.read_many(1, block=0.05) == []
        assert reader.stats().result_count == 0


def test_ids_that_a_gateway_releases_are_forgotten_on_a_full_server(
    queue_name: str, server: Server, client: Client
) -> None:
    client.queue(queue_name, create=True).declare()
    state = client.state_of(queue_name, {}, remember=3600.0)
    client.run(write_many(state, [Outgoing(b"t", "b", b"x", dedup_key="k", most_ids=9)]))
    with fully(server):
        assert client.run(release(state, ["k"])) == 1


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
