"""A full Redis: what stores more is refused whole, and all that empties it or lets it be emptied goes on.

The server has not a byte left: each command that Redis refuses for want of memory is refused. Each verb comes from a
client that has just been made, as that of an operator or of a worker that was started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from shardq import Client, Limits, OutOfMemory, PartlyPublished, PartlyWritten, Queue, ShardqError
from shardq.ops.write.release import release
from tests.promises.conftest import OpenClient, OpenQueue
from tests.servers import Server
from tests.verbs import LOOKS, SETTINGS, VERBS, furnish

DONE = "done"
REFUSED = "refused: the server is full"

RUN: dict[str, tuple[str, ...]] = {
    "it only looks": LOOKS,
    "workers must go on, or the queue is never drained": (
        "Delivery.ack", "Delivery.ack, with a result", "Delivery.extend", "Delivery.nack",
        "Delivery.nack, with a delay", "Delivery.progress", "Delivery.reject", "Queue.ack_many", "Queue.nack_many",
        "Queue.read", "Queue.read_many", "Queue.reject_many",
    ),
    "it removes what is stored": (
        "Queue.cancel", "Queue.delete", "Queue.delete_dead", "Queue.delete_dead, by id", "Queue.delete_plan",
        "Action.wait, cancel", "Action.wait, delete", "Queue.purge", "Queue.purge, of one", "Schedules.remove",
    ),
    "it lets more be delivered, so that the queue can be drained": (
        "Queue.configure, lifting", "Queue.configure, another lease", "Queue.redrive", "Queue.resume",
        "Action.wait, redrive", "Action.wait, retry",
        "Queue.resume, the queue", "Queue.set_limits, lifting", "Queue.set_weights, lifting",
        "Queue.set_limits, with an end", "Queue.set_weights, with an end",
    ),
    "a worker or an operator that starts then must be able to begin": (
        "Queue.declare", "Schedules.resume",
    ),
    "an operator must be able to stop a tenant, above all then": (
        "Queue.pause", "Queue.pause, with an end", "Queue.pause, the queue", "Queue.set_plan", "Schedules.pause",
    ),
    "an operator must be able to mend it, above all then": (
        "Action.status", "Action.stop", "Queue.cancel, by a filter", "Queue.delete_dead, by a filter",
        "Queue.redrive, by a filter", "Queue.retry_now", "Queue.stop_action", "Queue.take_over",
    ),
    "it notes that somebody waits": (
        "Queue.result",
    ),
}  # fmt: skip
"""The calls of `VERBS` that a full server runs, by the reason why."""

ARE_REFUSED: dict[str, tuple[str, ...]] = {
    "it stores something that needs no room now": (
        "Client.bind", "Client.bind_many", "Queue.assign", "Queue.resize", "Schedules.add",
    ),
    "it stores a message": (
        "Client.publish", "Queue.write", "Queue.write, delayed", "Queue.write, unique",
        "Queue.write, with a dedup key", "Queue.write_many", "Schedules.run", "Writer.close", "Writer.flush",
        "Writer.write",
    ),
    "all who follow the bindings are told by what it stores, and what is published is refused anyway": (
        "Client.unbind", "Client.unbind_gone", "Client.unbind_many",
    ),
    "what it takes back is small": (
        "Queue.unassign",
    ),
}  # fmt: skip
"""Those that it refuses, by the reason why that does no harm."""

ENDS = {
    name: (end, why) for end, table in ((DONE, RUN), (REFUSED, ARE_REFUSED)) for why in table for name in table[why]
}
CHANGES = [name for name, (end, _) in ENDS.items() if end == DONE and name not in LOOKS]


@pytest.fixture
def full(open_queue: OpenQueue, server: Server) -> Iterator[Queue]:
    """A queue with messages in each state, and whatever else there can be of it, on a server that becomes full."""
    queue = open_queue(**SETTINGS)
    furnish(queue)
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


def test_it_is_said_of_each_verb_how_it_ends() -> None:
    assert ENDS.keys() == VERBS.keys()


@each_state
@pytest.mark.parametrize("verb", CHANGES)
def test_each_verb_of_a_fresh_client_runs_on_a_full_server_if_it_may(
    full: Queue, server: Server, open_client: OpenClient, verb: str, functions: str
) -> None:
    forget(server, functions)
    end, why = ENDS[verb]
    assert outcome(VERBS[verb], open_client().queue(full.name)) == end, why


@each_state
def test_what_a_full_server_refuses_changes_nothing_and_all_can_be_seen(
    full: Queue, server: Server, open_client: OpenClient, functions: str
) -> None:
    forget(server, functions)
    before = server.run("DEBUG", "DIGEST")
    for name in ENDS.keys() - {*CHANGES}:
        end, why = ENDS[name]
        assert outcome(VERBS[name], open_client().queue(full.name)) == end, (name, why)
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


def test_a_handler_that_tells_its_progress_goes_on_though_that_is_not_kept(
    full: Queue, open_client: OpenClient
) -> None:
    delivery = open_client().queue(full.name).read()
    assert delivery.progress(1, 2) is False
    delivery.ack()


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


def test_a_full_server_refuses_to_forget_released_ids_by_which_a_gateway_sees_that_it_is_full(
    queue_name: str, server: Server, client: Client
) -> None:
    state = client.state_of(queue_name, {}, remember=3600.0)
    with fully(server), pytest.raises(OutOfMemory):
        client.run(release(state, ["k"], 0.2))


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
