"""A settle that is tried again: whatever happens between its tries, its holder is told what became of the delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shardq import Client, Delivery, LeaseLost, MessageCancelled, Queue
from tests.fault.conftest import Cutter, Open
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server

SOON = 15.0

Act = Callable[[Delivery], object]


@pytest.fixture
def queue(proxy: Proxy, open_client: Open, queue_name: str) -> Queue:
    """A queue that exists, through the proxy."""
    queue = open_client(proxy.url).queue(queue_name, streams=4, max_deliveries=3)
    queue.declare()
    return queue


@pytest.fixture
def other(server: Server, queue: Queue) -> Iterator[Queue]:
    """The same queue, seen by somebody with a good connection."""
    with Client.from_url(server.url) as client:
        yield client.queue(queue.name, create=True)


def taken(queue: Queue, other: Queue) -> Delivery:
    """A message in flight."""
    other.write("work", shard_key="tenant")
    return queue.read(block=SOON)


VERBS: dict[str, Act] = {
    "ack": Delivery.ack,
    "nack": lambda each: each.nack(error="mine"),
    "reject": lambda each: each.reject("mine"),
}
OTHERS: dict[str, Act] = {
    "holds it": lambda each: None,
    "acked it": Delivery.ack,
    "gave it back": lambda each: each.nack(error="another's"),
    "put it off": lambda each: each.nack(delay=60, error="another's"),
    "rejected it": lambda each: each.reject("another's"),
}


class Meanwhile:
    """What happens between the first try of a settle and the next one: its lease ends, and another one gets it."""

    def __init__(self, proxy: Proxy, server: Server, other: Queue, act: Act) -> None:
        self._server, self._other, self._act = server, other, act
        self.happened = False
        proxy.before_request(on_the_wire("ack"), self, skip=1)

    def __call__(self) -> None:
        keys = self._other.state.keys
        for token in self._server.run("ZRANGEBYSCORE", keys.leases, "-inf", "(9000000000000"):
            self._server.run("ZADD", keys.leases, "XX", 1, token)
        self._server.run("HSET", keys.meta, "lease_at", 1)
        for each in self._other.read_many(1):
            self._act(each)
        self.happened = True


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("act", OTHERS)
def test_a_settle_that_was_done_is_told_as_done_though_others_went_on_with_the_message(
    proxy: Proxy, server: Server, queue: Queue, other: Queue, verb: str, act: str
) -> None:
    delivery = taken(queue, other)
    cut = proxy.cut_after_request(on_the_wire(verb if verb == "ack" else "nack"))
    meanwhile = Meanwhile(proxy, server, other, OTHERS[act])
    VERBS[verb](delivery)
    assert cut.struck.wait(SOON)
    assert meanwhile.happened
    assert (delivery.answered, delivery.lost, delivery.dead) == (True, False, verb == "reject")


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("act", OTHERS)
def test_a_settle_that_never_came_is_told_as_lost_when_its_lease_has_ended(
    proxy: Proxy, server: Server, queue: Queue, other: Queue, verb: str, act: str
) -> None:
    """But for an ack of a message that is done: so it is told, whoever did it."""
    delivery = taken(queue, other)
    cut = proxy.cut_before_request(on_the_wire(verb if verb == "ack" else "nack"))
    meanwhile = Meanwhile(proxy, server, other, OTHERS[act])
    if (verb, act) == ("ack", "acked it"):
        VERBS[verb](delivery)
    else:
        with pytest.raises(LeaseLost):
            VERBS[verb](delivery)
    assert cut.struck.wait(SOON)
    assert meanwhile.happened
    assert delivery.lost == ((verb, act) != ("ack", "acked it"))


def test_a_last_nack_tells_that_the_message_is_dead(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(queue, other)
    for _ in range(2):
        delivery.nack()
        delivery = queue.read(block=SOON)
    cut = lose("nack")
    assert delivery.nack(error="enough") is False
    assert cut.struck.wait(SOON)
    assert delivery.dead


@pytest.mark.parametrize("verb", ["nack", "reject"])
def test_who_gives_back_a_cancelled_message_learns_it(queue: Queue, other: Queue, lose: Cutter, verb: str) -> None:
    delivery = taken(queue, other)
    assert other.cancel(delivery.message_id) == "in flight"
    cut = lose("nack")
    with pytest.raises(MessageCancelled):
        VERBS[verb](delivery)
    assert cut.struck.wait(SOON)
    assert (other.len(), other.dead()) == (0, [])


@pytest.mark.parametrize("verb", ["nack_many", "reject_many"])
def test_a_batch_is_told_of_each_what_its_first_try_did(queue: Queue, other: Queue, lose: Cutter, verb: str) -> None:
    other.write_many([("work", f"tenant-{n % 9}") for n in range(250)])
    deliveries = queue.read_many(250)
    lost, cancelled = deliveries[7], deliveries[220]
    other.cancel(cancelled.message_id)
    lost.ack()
    cut = lose("nack", skip=1)
    found = queue.nack_many(deliveries) if verb == "nack_many" else queue.reject_many(deliveries, "poison")
    assert cut.struck.wait(SOON)
    assert {each.message_id for each in found} == {lost.message_id, cancelled.message_id}
    assert len([each for each in deliveries if each.dead]) == (248 if verb == "reject_many" else 0)
    stats = other.stats()
    assert (stats.backlog, stats.in_flight, stats.dead) == ((248, 0, 0) if verb == "nack_many" else (0, 0, 248))
