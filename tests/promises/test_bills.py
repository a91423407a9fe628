"""The journal carries a bill: what its events say was charged is what the tenants' accounts were charged, to 0.1 ms.

Time is simulated, on a real server.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from shardq import Delivery, Event, LeaseLost, Limits, Queue
from shardq.testing import ManualClock
from tests.servers import Server
from tests.simulated import clocked_client

pytestmark = pytest.mark.once  # what a server computes does not depend on its kind

LEASE = 30.0
WEIGHTS: dict[str | bytes, int] = {"a": 1, "b": 3, "c": 7}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def journaled(server: Server, clock: ManualClock, **settings: Any) -> Queue:
    client, _ = clocked_client(server, clock)
    queue = client.queue(
        "jobs",
        create=True,
        **{"streams": 4, "streams_per_shard": 2, "visibility_timeout": LEASE, "journal": 10**6} | settings,
    )
    queue.declare()
    return queue


class Accounts:
    """What the accounts of a queue were charged in the calls that it watches, and what the journal says of them."""

    def __init__(self, queue: Queue, raw: Any) -> None:
        self.queue, self._raw, self._meta = queue, raw, queue.state.keys.meta
        self.charged: Counter[str | bytes] = Counter()
        self.told: Counter[str | bytes] = Counter()
        self.events: list[Event] = []
        self._position = queue.journal(1).latest

    def served(self, key: str | bytes) -> int:
        """What it has received, in 0.1 ms by weight, as its account says."""
        text = (self._raw.hget(self._meta, f"t:{key!s}") or b"0").decode()
        word = text.split(" ")[5] if " " in text else f"{text}:".split(":")[1]
        return int(word) if word.isdigit() else 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A call that delivers nothing: whatever an account receives in it was charged."""
        self._follow()
        before = {key: self.served(key) for key in WEIGHTS}
        yield
        for key, had in before.items():
            if had:
                self.charged[key] += self.served(key) - had
        for event in self._follow():
            key = event.shard_key or ""
            if event.charged_ms is not None and before[key]:
                self.told[key] += int(round(event.charged_ms * 10) / WEIGHTS[key] + 0.5)

    def _follow(self) -> list[Event]:
        page = self.queue.journal(10_000, after=self._position)
        self._position = page.position
        self.events += page.events
        return page.events


def ended(queue: Queue, delivery: Delivery, dice: random.Random) -> None:
    """End a delivery, or let it go on, in some way."""
    ways: list[Callable[[], object]] = [
        delivery.ack,
        lambda: delivery.ack(cost=dice.choice((0, 0.0125, 90))),
        lambda: delivery.nack(error="again"),
        lambda: delivery.nack(delay=5),
        lambda: delivery.reject("no"),
        lambda: queue.ack_many([delivery]),
        lambda: delivery.extend(dice.choice((1, LEASE, 400))),
    ]
    with suppress(LeaseLost):
        dice.choice(ways)()


@pytest.mark.parametrize("fair", ["time", "messages"])
def test_the_events_say_to_a_tenth_of_a_ms_what_was_charged(
    server: Server, clock: ManualClock, rng: random.Random, fair: str
) -> None:
    queue = journaled(server, clock, fair=fair, max_deliveries=4, max_dead=5)
    queue.set_weights(WEIGHTS)
    queue.set_limits({"b": Limits(max_in_flight=50)})  # its account has the long form
    with server.client() as raw:
        accounts = Accounts(queue, raw)
        held: list[Delivery] = []
        for _ in range(60):
            queue.write_many([(number, key) for number in range(6) for key in WEIGHTS])
            held += queue.read_many(rng.randrange(1, 6))
            clock.advance(rng.choice((0.001, 0.0137, 1.5, 12)))
            for delivery in rng.sample(held, min(len(held), 3)):
                with accounts.watched():
                    ended(queue, delivery, rng)
            if rng.random() < 0.3:
                queue.pause()
                with accounts.watched():  # it takes back leases that ended, and delivers nothing
                    assert queue.read_many(1) == []
                queue.resume()
            held = [each for each in held if not each.answered and not each.lost]
    assert accounts.told == accounts.charged
    assert sum(accounts.charged.values()) > 0
    assert {each.kind for each in accounts.events} >= {"acked", "nacked", "rejected", "lease_ended", "delivered"}
    assert ("charged" in {each.kind for each in accounts.events}) == (fair == "time")


def test_a_lease_that_ends_tells_what_it_cost_and_no_time_that_a_handler_ran(
    server: Server, clock: ManualClock
) -> None:
    queue = journaled(server, clock)
    queue.write_many([(number, key) for key in "ab" for number in range(9)])
    queue.read_many(2)
    clock.advance(LEASE + 100)
    queue.read()
    lost = [each for each in queue.journal(100).events if each.kind == "lease_ended"]
    assert [(each.charged_ms, each.ran_ms) for each in lost] == [(LEASE * 1000 + 1, None)] * 2


def test_a_delivery_tells_how_long_it_ran_though_nothing_is_charged(server: Server, clock: ManualClock) -> None:
    queue = journaled(server, clock)
    queue.write("alone", shard_key="a")
    held = queue.read()
    clock.advance(2.5)
    held.ack()
    written, delivered, acked = queue.journal().events
    assert (acked.charged_ms, acked.ran_ms) == (0, 2500)
    assert (written.charged_ms, written.ran_ms, delivered.charged_ms, delivered.ran_ms) == (None,) * 4
    assert {each.version for each in (written, delivered, acked)} == {2}


def test_what_ran_is_told_in_all_and_what_is_charged_in_parts(server: Server, clock: ManualClock) -> None:
    """Each part that is charged while it goes on is an event, so a job of hours is billed while it runs."""
    queue = journaled(server, clock)
    queue.write_many([(number, key) for key in "ab" for number in range(9)])
    held = queue.read()
    for _ in range(3):
        clock.advance(10)
        held.extend(LEASE)
    clock.advance(5)
    held.ack()
    told = [each for each in queue.journal(100).events if each.charged_ms is not None]
    assert [(each.kind, each.charged_ms, each.ran_ms) for each in told] == [
        *[("charged", 10_000, None)] * 3,
        ("acked", 5_001, 35_000),
    ]
    assert {each.client for each in told} == {queue.client.name}
    assert {each.message_id for each in told} == {held.message_id}


def test_a_cost_that_was_told_is_charged_and_what_ran_is_measured(server: Server, clock: ManualClock) -> None:
    queue = journaled(server, clock)
    queue.write_many([(number, key) for key in "ab" for number in range(9)])
    held = queue.read()
    clock.advance(1.5)
    held.ack(cost=60)
    assert [(each.charged_ms, each.ran_ms) for each in queue.journal(100).events[-1:]] == [(60_001, 1500)]


def test_what_a_parent_is_charged_is_told_of_its_children(server: Server, clock: ManualClock) -> None:
    queue = journaled(server, clock, parents=1)
    queue.write_many([(number, key) for key in ("a/1", "a/2", "b/1") for number in range(9)])
    held = queue.read_many(2)
    clock.advance(1)
    queue.ack_many(held)
    told = {each.shard_key: each.charged_ms for each in queue.journal(100).events if each.kind == "acked"}
    assert told == {each.shard_key: 501 for each in held}


def test_without_a_journal_nothing_more_is_measured_or_sent(server: Server, clock: ManualClock) -> None:
    queue = journaled(server, clock, journal=0)
    queue.write("alone", shard_key="a")
    held = queue.read()
    assert not held.received.timed
    queue.write_many([(number, key) for key in "ab" for number in range(9)])
    clock.advance(1)
    other = queue.read()
    other.extend(LEASE)
    other.cost = 3
    with server.client() as raw, raw.monitor() as seen:
        held.ack()
        other.ack()
        raw.echo("over")
        calls = list(iter(lambda: str(seen.next_command()["command"]), "ECHO over"))
    settled = [each for each in calls if each.startswith(("FCALL", "EVAL"))]
    assert len(settled) == 2
    assert not any("~" in each for each in settled)
    assert not any(each.startswith("XADD") and ":journal" in each for each in calls)
