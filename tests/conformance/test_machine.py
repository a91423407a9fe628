"""Random walks over everything that a queue can do, compared after each step with a model of plain Python.

Time is a model, too: a unit is 1,000 s, and passes by moving deadlines and due times in Redis back by as much, which is
the same to the scripts. So a walk takes a second, and what ends at a whole unit ends exactly then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shardq import Delivery, LeaseLost, Message, MessageCancelled, MessageNotFound, Queue
from shardq.ops.look import recovered
from shardq.ops.waiting import Asked
from tests.conformance.census import Census
from tests.conformance.world import World, raw_client
from tests.servers import Server, ServerKind

UNIT = 1000.0
MAX_DELIVERIES = 3
MAX_STREAMS = 8  # as many as a read always declares, so that a read that finds less has seen everything
STEPS = 60
WALKS = 80


@dataclass
class Known:
    """One message, as the model knows it. Times are in units; `life` counts deliveries since the last redrive."""

    state: str = "waiting"  # delayed, leased, dead, gone
    until: int = 0  # due, or end of the lease
    life: int = 0
    count: int = 0
    stale: bool = False  # past its own deadline: whoever looks at it drops it
    cancelled: bool = False  # while in flight
    holder: Delivery | None = None

    @property
    def doomed(self) -> bool:
        """Has had all its deliveries: whoever looks at it buries it."""
        return self.life >= MAX_DELIVERIES


@dataclass
class Model:
    """The queue, in plain Python."""

    now: int = 0
    messages: dict[str, Known] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def having(self, *states: str) -> dict[str, Known]:
        return {key: each for key, each in self.messages.items() if each.state in states}

    def is_held(self, each: Known) -> bool:
        return each.state == "leased" and each.until > self.now

    def sweep(self) -> None:
        """What every read does first."""
        for each in self.messages.values():
            if each.state in ("leased", "delayed") and each.until <= self.now:
                each.state = "gone" if each.cancelled else "waiting"

    def deliverable(self) -> dict[str, Known]:
        return {key: each for key, each in self.having("waiting").items() if not each.stale and not each.doomed}


class Walk(RuleBasedStateMachine):
    """Two clients of one queue, either of which may have an old idea of it."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.world.raw.flushall()
        self.clients = [self.world.client(), self.world.client()]
        self.queues: list[Queue] = [
            client.queue("walk", streams=4, streams_per_shard=2, max_deliveries=MAX_DELIVERIES)
            for client in self.clients
        ]
        self.deliveries: list[Delivery] = []

    def teardown(self) -> None:
        """Nothing was lost: all that is left is delivered in the end."""
        try:
            self._end()
        finally:
            for client in self.clients:
                client.close()

    def _end(self) -> None:
        self.pass_time(100)
        self.model.sweep()
        left = set(self.model.deliverable())
        found = self.queues[0].read_many(1000)
        assert {each.message_id for each in found} == left
        self.queues[0].ack_many(found)
        self.queues[0].read_many(1)
        assert self.queues[0].len() == 0

    @initialize()
    def both_know_the_server(self) -> None:
        for queue in self.queues:
            assert queue.read_many(1) == []

    # --- writing

    who = st.integers(0, 1)
    tenants = st.sampled_from(["a", "b", "c", "d"])
    units = st.integers(1, 3)

    @rule(who=who, key=tenants)
    def write(self, who: int, key: str) -> None:
        self._add(self.queues[who].write(key, shard_key=key), Known())

    @rule(who=who, key=tenants, delay=units)
    def write_delayed(self, who: int, key: str, delay: int) -> None:
        message_id = self.queues[who].write(key, shard_key=key, delay=delay * UNIT, deadline=500 * UNIT)
        self._add(message_id, Known("delayed", self.model.now + delay))

    @rule(who=who, key=tenants)
    def write_stale(self, who: int, key: str) -> None:
        message_id = self.queues[who].write(key, shard_key=key, deadline=0.001)
        written = int(message_id.partition("-")[0])
        while self._census().now <= written + 1:
            pass
        self._add(message_id, Known(stale=True))

    @rule(who=who, key=tenants, dedup=st.sampled_from(["x", "y"]))
    def write_once(self, who: int, key: str, dedup: str) -> None:
        message_id = self.queues[who].write(key, shard_key=key, dedup_key=dedup)
        if dedup in self.model.keys:
            assert message_id == self.model.keys[dedup]
        else:
            self._add(message_id, Known())
            self.model.keys[dedup] = message_id

    @rule(who=who, keys=st.lists(st.tuples(tenants, st.integers(0, 2)), min_size=1, max_size=8))
    def write_many(self, who: int, keys: list[tuple[str, int]]) -> None:
        batch = [Message(key, key, delay=delay * UNIT if delay else None) for key, delay in keys]
        for message_id, (_, delay) in zip(self.queues[who].write_many(batch), keys, strict=True):
            self._add(message_id, Known("delayed", self.model.now + delay) if delay else Known())

    def _add(self, message_id: str, known: Known) -> None:
        assert message_id not in self.model.messages
        self.model.messages[message_id] = known

    # --- reading and settling

    @rule(who=who, count=st.integers(1, 9), lease=units, prefer=st.none() | st.integers(0, MAX_STREAMS - 1))
    def read_many(self, who: int, count: int, lease: int, prefer: int | None) -> None:
        self.read_up_to(who, count, lease, prefer)

    def read_up_to(self, who: int, count: int, lease: int, prefer: int | None) -> None:
        self.model.sweep()
        expected = self.model.deliverable()
        found = self.queues[who].read_many(count, visibility_timeout=lease * UNIT, prefer_stream=prefer)
        note(f"found {found}")
        assert len(found) == min(count, len(expected))
        assert len({each.message_id for each in found}) == len(found)
        for delivery in found:
            assert delivery.message_id in expected
            known = expected[delivery.message_id]
            known.life, known.count = known.life + 1, known.count + 1
            known.state, known.until, known.holder = "leased", self.model.now + lease, delivery
            assert delivery.count == known.count
            self.deliveries.append(delivery)
        self._look_for_the_dropped(all_of_them=len(found) < count)

    def _look_for_the_dropped(self, *, all_of_them: bool) -> None:
        """Stale and doomed messages are dropped or buried when they are come upon, all when a read saw everything."""
        stored = self._stored(self._census())
        dead = {letter.message_id for letter in self.queues[0].dead(1000)}
        for message_id, known in self.model.having("waiting").items():
            if message_id not in stored:
                assert known.stale or known.doomed
                known.state = "dead" if message_id in dead else "gone"
                assert known.stale or known.state == "dead"
            else:
                assert not (all_of_them and (known.stale or known.doomed))

    @rule(who=who, lease=units)
    def read_one(self, who: int, lease: int) -> None:
        self.read_up_to(who, 1, lease, None)

    @rule(who=who, count=st.integers(1, 9))
    def lose_a_read(self, who: int, count: int) -> None:
        """The reply is lost, so what it had granted is given back as if it had never been delivered."""
        before = len(self.deliveries)
        self.read_up_to(who, count, 1, None)
        lost, self.deliveries = self.deliveries[before:], self.deliveries[:before]
        holder = lost[0].received.token.split(":", 3)[3] if lost else "nobody"
        state, asked = self.queues[who].state, Asked(holder, 0, round(UNIT * 1000))
        self.clients[who].run(recovered(state, asked, state.until()))
        for delivery in lost:
            known = self.model.messages[delivery.message_id]
            known.life, known.count, known.state, known.holder = known.life - 1, known.count - 1, "waiting", None

    @precondition(lambda self: self.deliveries)
    @rule(who=who)
    def fail(self, who: int) -> None:
        """Give the newest delivery back and take what comes, as long as it goes: messages grow old."""
        for _ in range(MAX_DELIVERIES):
            self.nack(0, 0)
            self.read_up_to(who, 3, 1, None)

    pick = st.integers(0, 9)  # of the newest deliveries: most are live, some are stale
    any_id = st.integers(0, 10**6)

    @precondition(lambda self: self.deliveries)
    @rule(pick=pick)
    def ack(self, pick: int) -> None:
        if self._settle(pick, "ack"):
            self._picked(pick).state = "gone"

    @precondition(lambda self: self.deliveries)
    @rule(pick=pick, delay=st.integers(0, 2))
    def nack(self, pick: int, delay: int) -> None:
        if self._settle(pick, "nack", delay=delay * UNIT):
            known = self._picked(pick)
            known.state, known.until = ("delayed" if delay else "waiting"), self.model.now + delay
            if known.doomed:
                known.state = "dead"

    @precondition(lambda self: self.deliveries)
    @rule(pick=pick)
    def reject(self, pick: int) -> None:
        if self._settle(pick, "reject", reason="no"):
            self._picked(pick).state = "dead"

    @precondition(lambda self: self.deliveries)
    @rule(pick=pick, lease=units)
    def extend(self, pick: int, lease: int) -> None:
        if self._settle(pick, "extend", duration=lease * UNIT):
            self._picked(pick).until = self.model.now + lease

    def _picked(self, pick: int) -> Known:
        return self.model.messages[self._delivery(pick).message_id]

    def _delivery(self, pick: int) -> Delivery:
        return self.deliveries[-1 - pick % len(self.deliveries)]

    def _settle(self, pick: int, verb: str, **settings: object) -> bool:
        """Settle one of the last deliveries; whether it was live, and so must have worked."""
        delivery = self._delivery(pick)
        known, before = self._picked(pick), self._census()
        note(f"{verb} {delivery} {known}")
        call = getattr(delivery, verb)
        if not (self.model.is_held(known) and known.holder is delivery):
            with pytest.raises(LeaseLost):
                call(**settings)
            after = self._census()
            assert (after.leased, after.bodies, after.returned) == (before.leased, before.bodies, before.returned)
            return False
        if known.cancelled:
            with pytest.raises(MessageCancelled):
                call(**settings)
            known.state = known.state if verb == "extend" else "gone"
            return False
        call(**settings)
        return True

    # --- operating

    @precondition(lambda self: self.model.messages)
    @rule(who=who, any_id=any_id)
    def cancel(self, who: int, any_id: int) -> None:
        message_id = list(self.model.messages)[any_id % len(self.model.messages)]
        known = self.model.messages[message_id]
        if known.state in ("dead", "gone"):
            with pytest.raises(MessageNotFound):
                self.queues[who].cancel(message_id)
            return
        in_flight = known.state == "leased"
        assert self.queues[who].cancel(message_id) == ("in flight" if in_flight else "removed")
        known.cancelled = in_flight
        known.state = "leased" if in_flight else "gone"

    @precondition(lambda self: len(self.model.having("waiting", "delayed")) > 8)
    @rule(who=who)
    def purge(self, who: int) -> None:
        waiting = self.model.having("waiting", "delayed")
        assert self.queues[who].purge() == len(waiting)
        for known in waiting.values():
            known.state = "gone"

    @precondition(lambda self: self.model.having("dead"))
    @rule(who=who, count=st.integers(1, 5))
    def redrive(self, who: int, count: int) -> None:
        letters = self.queues[who].dead(count)
        assert self.queues[who].redrive(letters) == len(letters)
        for letter in letters:
            known = self.model.messages[letter.message_id]
            assert (known.state, known.count) == ("dead", letter.count)
            known.state, known.life, known.stale = "waiting", 0, False

    @rule(who=who, streams=st.integers(1, MAX_STREAMS))
    def resize(self, who: int, streams: int) -> None:
        assert self.queues[who].resize(streams)[1] == streams

    @rule(who=who, window=st.integers(500, 600))
    def configure(self, who: int, window: int) -> None:
        assert self.queues[who].configure(dedup_window=window).dedup_window == window

    @rule()
    def scripts_are_forgotten(self) -> None:
        self.world.raw.script_flush()

    @rule(units=units)
    def pass_time(self, units: int) -> None:
        self.world.elapse(self.queues[0], units * UNIT)
        self.model.now += units

    # --- what must always hold

    def _census(self) -> Census:
        return self.world.census(self.queues[0])

    def _stored(self, census: Census) -> set[str]:
        """The ids of all messages that count: a redriven one lies elsewhere than its id says."""
        moved = self.world.raw.hgetall(self.queues[0].state.keys.moved)
        ids = {handle.decode(): message_id.decode() for message_id, handle in moved.items() if message_id}
        return {ids.get(handle) or "-".join(reversed(handle.split(":"))) for handle in census.bodies}

    @invariant()
    def the_queue_is_what_the_model_says(self) -> None:
        if self.queues[0].state.epoch == "":
            return
        census, model = self._census(), self.model
        assert census.problems() == []
        alive = {key for key, each in model.having("waiting", "delayed", "leased").items() if not each.cancelled}
        assert self._stored(census) == alive
        held = sum(1 for each in model.messages.values() if model.is_held(each))
        delayed = sum(1 for each in model.having("delayed").values() if each.until > model.now)
        backlog = len(model.having("waiting", "delayed", "leased")) - held - delayed
        assert (census.in_flight, census.not_due, census.backlog) == (held, delayed, backlog)
        for queue in self.queues:
            stats = queue.stats()
            assert (stats.in_flight, stats.delayed, stats.backlog) == (held, delayed, backlog)
            assert (stats.dead, queue.len()) == (len(model.having("dead")), held + backlog)
            assert stats.streams == tuple(census.per_turn.get(number, 0) for number in range(len(stats.streams)))
            assert sum(stats.streams) == len(census.new) + len(census.returned)


@pytest.fixture
def walk(kind: ServerKind | None) -> Iterator[type[Walk]]:
    with Server(kind) as server, raw_client(server.url) as raw:
        world = World(server.url, raw)

        class Here(Walk):
            pass

        Here.world = world
        yield Here


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_random_walk_never_leaves_the_model(walk: type[Walk]) -> None:
    run_state_machine_as_test(
        walk,
        settings=settings(
            max_examples=WALKS,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize="CI" in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )
