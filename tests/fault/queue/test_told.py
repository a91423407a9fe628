"""What each public method tells a caller whose request was lost, whose answer was lost, or who gets no answer at all.

Lost once, and tried again, it tells the same as if nothing had been lost, and has done it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from shardq import Action, BackendTimeout, Client, Delivery, QueueMissing, ShardqError, Written
from shardq.assignment import Assignment
from shardq.model import (
    ActionStatus,
    Controls,
    DeadLetter,
    JournalPage,
    MessageStatus,
    Outlook,
    PeekedPage,
    QueueStats,
    Tenant,
    Verdict,
)
from shardq.model.schedule import Schedule
from shardq.routing import Router
from tests.fault.queue.methods import ROWS, SETTINGS, Place, Row
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server
from tests.surface import calls, differences

SOON = 0.3
"""Seconds after which a caller gives up whom nothing answers."""
SHOWN: dict[type, Callable[[Any], Any]] = {
    Written: lambda each: ("an id", each.is_new),
    Action: lambda each: (each.kind, each.done),
    ActionStatus: lambda each: (each.kind, each.state, each.done, each.passed),
    Controls: lambda each: (sorted(map(str, each.paused)), sorted(map(str, each.limits)), sorted(each.plans)),
    Outlook: lambda each: (each.waits, each.reasons, each.drains),
    Verdict: lambda each: each.kind,
    Delivery: lambda each: (each.payload, each.count, each.last_error),
    DeadLetter: lambda each: (each.payload, each.count, each.reason),
    JournalPage: lambda each: [event.kind for event in each.events],
    MessageStatus: lambda each: each.state,
    PeekedPage: lambda each: [message.state for message in each.messages],
    QueueStats: lambda each: (each.backlog, each.in_flight, each.delayed, each.dead),
    Tenant: lambda each: (each.shard_key, each.backlog),
    Schedule: lambda each: (each.name, each.paused),
    Assignment: lambda each: dict(each.items()),
    Router: lambda each: sorted(each.bindings()),
}


@pytest.fixture
def good(server: Server) -> Iterator[Client]:
    """A client with a good connection."""
    with Client.from_url(server.url) as client:
        yield client


@pytest.fixture
def flaky(proxy: Proxy) -> Iterator[Client]:
    """A client behind the proxy."""
    with Client.from_url(proxy.url) as client:
        yield client


@pytest.fixture
def made(good: Client, flaky: Client, queue_name: str) -> Callable[[str], Place]:
    """Makes queues, each with a router of its own, that both clients know."""

    def make(suffix: str) -> Place:
        name = f"{queue_name}.{suffix}"
        place = Place(flaky.queue(name, **SETTINGS), good.queue(name, **SETTINGS), name)
        place.good.declare()
        place.queue.write(0, shard_key="first")
        place.queue.read().ack()
        return place

    return make


def shown(value: Any, name: str) -> Any:
    """What is told, without what differs each time: ids, times, and the name of the queue."""
    for kind, show in SHOWN.items():
        if isinstance(value, kind):
            return shown(show(value), name)
    if isinstance(value, Mapping):
        return {shown(key, name): shown(each, name) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(each, name) for each in value]
    return value.replace(name, "the queue") if isinstance(value, str) else value


def told(row: Row, place: Place, given: Any) -> Any:
    """What the caller is told: a result, or the kind of an error."""
    try:
        return shown(row.call(place, given), place.good.name)
    except ShardqError as error:
        return type(error)


def left(place: Place) -> Any:
    """What is in the queue and around it."""
    queue = place.good
    try:
        settings = queue.settings()
    except QueueMissing:
        return "there is no queue"
    stats = queue.stats()
    numbers = (
        stats.backlog, stats.in_flight, stats.delayed, stats.dead, stats.written, stats.acked, stats.cancelled,
        stats.purged, stats.dead_lettered, stats.dead_deleted, stats.result_count, len(stats.streams),
    )  # fmt: skip
    limits = (queue.weights(), queue.limits(), sorted(queue.plans()), sorted(map(str, queue.paused())))
    others = (settings, queue.assignment(), queue.schedules.list(), queue.client.bindings(router=place.router))
    return shown([numbers, limits, others], queue.name)


def test_each_public_method_has_its_row() -> None:
    """Also a new one: its row says what is told when its answer is lost."""
    assert differences((row.method for row in ROWS), calls()) == []
    assert len({str(row) for row in ROWS}) == len(ROWS)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize(
    ("row", "verb"), [pytest.param(row, verb, id=f"{row}, {verb}") for row in ROWS for verb in row.verbs.split()]
)
def test_what_is_lost_once_is_told_and_done_as_if_it_were_not(
    proxy: Proxy, made: Callable[[str], Place], row: Row, verb: str
) -> None:
    found = {}
    for fault in ("nothing", "request", "reply"):
        place = made(fault)
        given = row.given(place)
        lose = {"request": proxy.cut_before_request, "reply": proxy.cut_after_request}.get(fault)
        cut = lose(on_the_wire(verb)) if lose else None
        found[fault] = (told(row, place, given), left(place))
        assert cut is None or cut.struck.wait(15)
    assert found["request"] == found["nothing"]
    assert found["reply"] == found["nothing"]


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("answered", ["all else", "nothing"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_who_gets_no_answer_until_the_deadline_is_told_what_is_known(
    proxy: Proxy, made: Callable[[str], Place], row: Row, answered: str
) -> None:
    """The server does what it is told each time, and its answers are lost: so nothing that it was told changes it."""
    place = made("deaf")
    given = row.given(place)
    before = left(place)
    place.queue.state.timeout = place.client.timeout = place.client.router_state(place.router).timeout = SOON
    for lost in [b"FCALL"] if answered == "nothing" else map(on_the_wire, row.verbs.split()):
        for _ in range(200):
            proxy.cut_after_request(lost)
    error = row.deaf if answered == "nothing" else row.silent
    assert told(row, place, given) is error
    proxy.heal()
    if error is BackendTimeout:
        assert left(place) == before
