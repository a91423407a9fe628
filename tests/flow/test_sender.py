"""The sender's machine: a bounded window, nothing forgotten before its ack, and each time-out sent again."""

from __future__ import annotations

from random import Random

import pytest

from shardq.errors import ConfigError
from shardq.flow import Fixed, Sender, Sent
from shardq.flow.sender import ACK_RECEIVED, BLOCKED, CAN_SEND, EMPTY, FULL, IDLE, ROOM, SEND, SENDER, TIMEOUT
from shardq.flow.table import ALWAYS_CONDITION


def sent(sender: Sender[int], now: float = 0.0) -> list[int]:
    """The ids that go out now."""
    found = []
    while (step := sender.next(now)) is not None:
        found.append(step.id)
    return found


def test_every_cell_of_the_table_is_filled_and_leads_somewhere() -> None:
    assert set(SENDER) == {IDLE, CAN_SEND, BLOCKED}
    for events in SENDER.values():
        assert set(events) == {SEND, ACK_RECEIVED, TIMEOUT}
        for cell in events.values():
            assert set(cell.then.values()) <= set(SENDER)
            assert set(cell.then) <= {ALWAYS_CONDITION, EMPTY, ROOM, FULL}


def test_a_window_fills_and_opens_as_the_seed_says() -> None:
    sender = Sender[int](Fixed(2))
    assert sender.state == IDLE
    for each in range(4):
        sender.send(each)
    assert sent(sender) == [0, 1]
    assert (sender.state, sender.in_flight, len(sender), sender.credit) == (BLOCKED, 2, 4, 0)
    assert sender.ack_received(1, 0.5)
    assert sender.state == CAN_SEND
    assert sent(sender) == [2]
    assert [sender.ack_received(each, 1.0) for each in (0, 2)] == [True, True]
    assert sent(sender) == [3]
    assert sender.ack_received(3, 1.0)
    assert (sender.state, len(sender), sender.credit) == (IDLE, 0, 2)


def test_what_makes_no_sense_changes_nothing() -> None:
    sender = Sender[int](Fixed(1))
    sender.send(1)
    assert not sender.ack_received(1, 0.0)  # it was never sent
    assert not sender.ack_received(2, 0.0)
    assert not sender.timeout(1, 1, 0.0)
    assert sent(sender) == [1]
    assert not sender.timeout(1, 2, 0.0)
    assert not sender.timeout(7, 1, 0.0)
    assert sender.ack_received(1, 0.0)
    assert not sender.ack_received(1, 0.0)
    assert not sender.timeout(1, 1, 0.0)
    assert not sender.drop(1)
    assert (sender.state, len(sender)) == (IDLE, 0)
    sender.send(5)
    with pytest.raises(ConfigError, match="ids must be unique"):
        sender.send(5)


def test_what_timed_out_goes_out_before_what_never_went() -> None:
    sender = Sender[int](Fixed(2))
    for each in range(4):
        sender.send(each)
    assert sent(sender) == [0, 1]
    assert sender.timeout(1, 1, 3.0)
    assert sender.timeout(0, 1, 3.0)
    assert sent(sender, 3.0) == [1, 0]
    assert not sender.timeout(1, 1, 3.0)  # the timer of the first attempt
    assert sender.timeout(1, 2, 9.0)
    assert sender.ack_received(1, 9.0)  # late, but there
    assert sent(sender, 9.0) == [2]


def test_what_the_receiver_dropped_goes_out_again_and_says_nothing_of_the_way() -> None:
    sender = Sender[int](Fixed(2))
    for each in range(3):
        sender.send(each)
    assert sent(sender) == [0, 1]
    before = sender.timeout_after
    assert sender.dropped(0)
    assert not sender.dropped(0)
    assert not sender.dropped(2)
    assert sender.timeout_after == before
    assert sent(sender) == [0]


def test_a_lost_connection_sends_all_again_in_their_order_also_what_had_timed_out() -> None:
    sender = Sender[int](Fixed(4))
    for each in range(4):
        sender.send(each)
    assert sent(sender) == [0, 1, 2, 3]
    assert sender.timeout(1, 1, 0.5)
    assert sent(sender, 0.5) == [1]  # the second try of it is the last in flight
    assert sender.timeout(2, 1, 0.6)
    sender.lost(0.7)
    assert sent(sender, 0.8) == [0, 1, 2, 3]


def test_a_lost_connection_sends_all_again_in_their_order() -> None:
    sender = Sender[int](Fixed(3))
    for each in range(5):
        sender.send(each)
    assert sent(sender) == [0, 1, 2]
    sender.ack_received(1, 0.1)
    assert sent(sender) == [3]
    sender.lost(0.2)
    assert sender.in_flight == 0
    assert sent(sender, 0.3) == [0, 2, 3]


def test_the_receiver_may_shrink_the_window_at_any_time() -> None:
    sender = Sender[int](Fixed(10))
    for each in range(20):
        sender.send(each)
    assert len(sent(sender)) == 10
    sender.cap = 3
    for each in range(7):
        sender.ack_received(each, 1.0)
        assert sent(sender, 1.0) == []
        assert sender.state == BLOCKED
    sender.ack_received(7, 1.0)
    assert sent(sender, 1.0) == [10]
    sender.cap = 0
    assert sender.window == 1  # one may always try


def test_time_outs_follow_the_round_trip_and_double() -> None:
    sender = Sender[int](Fixed(1))
    now = 0.0

    def timeout() -> float:
        step = sender.next(now)
        assert isinstance(step, Sent)
        return step.timeout

    for each in range(50):
        sender.send(each)
        assert timeout() == pytest.approx(1.0 if each == 0 else 2.0, abs=1.0 if each else 0)
        now += 0.5
        sender.ack_received(each, now)
    sender.send(99)
    first = timeout()
    assert 1.0 <= first < 1.1  # twice the round trip, which never varies
    for attempt in (1, 2, 3):
        now += 60
        assert sender.timeout(99, attempt, now)
        assert timeout() == pytest.approx(first * 2**attempt)
    sender.ack_received(99, now + 100)  # of one that was sent again nothing is learned
    assert sender.timeout_after == pytest.approx(8 * first)
    sender.send(100)
    assert timeout() == pytest.approx(8 * first)
    sender.ack_received(100, now + 0.5)
    assert sender.timeout_after == pytest.approx(first, abs=0.01)


def test_a_window_that_times_out_whole_shrinks_once() -> None:
    class Counting(Fixed):
        count = 0

        def timed_out(self, now: float) -> None:
            self.count += 1

    limit = Counting(8)
    sender = Sender[int](limit)
    for each in range(8):
        sender.send(each)
    assert sent(sender) == list(range(8))
    assert all(sender.timeout(each, 1, 1.0 + each / 10) for each in range(8))
    assert limit.count == 1
    assert sent(sender, 2.0) == list(range(8))
    sender.lost(3.0)
    assert limit.count == 2


class Walk:
    """Random events on a sender, beside plain sets of what is not acked and what is in flight."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.now, self.fresh = rng, 0.0, 0
        self.limit = Fixed(rng.randrange(1, 6))
        self.sender = Sender[int](self.limit)
        self.unacked, self.flight = set[int](), dict[int, int]()
        self.first_sends: list[int] = []

    def step(self) -> None:
        """One event, and all sends that follow."""
        self.now += self.rng.random()
        self.rng.choice([self.write, self.write, self.ack, self.time_out, self.lose, self.resize, self.drop])()
        while (step := self.sender.next(self.now)) is not None:
            assert step.id not in self.flight
            assert step.id in self.unacked
            if step.attempt == 1:
                self.first_sends.append(step.id)
            self.flight[step.id] = step.attempt
            assert len(self.flight) <= self.sender.window

    def write(self) -> None:
        self.sender.send(self.fresh)
        self.unacked.add(self.fresh)
        self.fresh += 1

    def ack(self) -> None:
        if self.flight:
            chosen = self.rng.choice([*self.flight])
            assert self.sender.ack_received(chosen, self.now)
            self.unacked.remove(chosen)
            del self.flight[chosen]

    def time_out(self) -> None:
        if self.flight:
            chosen = self.rng.choice([*self.flight])
            assert self.sender.timeout(chosen, self.flight.pop(chosen), self.now)

    def lose(self) -> None:
        if self.rng.random() < 0.2:
            self.sender.lost(self.now)
            self.flight.clear()

    def resize(self) -> None:
        self.limit.size, self.sender.cap = self.rng.randrange(1, 6), self.rng.randrange(1, 8)

    def drop(self) -> None:
        if self.unacked and self.rng.random() < 0.2:
            chosen = self.rng.choice([*self.unacked])
            assert self.sender.drop(chosen)
            self.unacked.remove(chosen)
            self.flight.pop(chosen, None)
            self.first_sends = [each for each in self.first_sends if each != chosen]


def test_any_order_of_events_keeps_the_promises(rng: Random) -> None:
    for _ in range(100):
        walk = Walk(rng)
        for _ in range(200):
            walk.step()
            sender, flight = walk.sender, walk.flight
            assert (sender.in_flight, len(sender)) == (len(flight), len(walk.unacked))
            assert {each for each in range(walk.fresh) if each in sender} == walk.unacked
            full = len(flight) >= sender.window
            assert sender.state == (IDLE if not flight else BLOCKED if full else CAN_SEND)
        assert walk.first_sends == sorted(walk.first_sends)
