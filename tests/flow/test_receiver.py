"""The receiver's machine: a bounded queue that drops its oldest message, and says so."""

from __future__ import annotations

from collections import deque
from random import Random

from shardq.flow import Receiver
from shardq.flow.receiver import BLOCKED, FULL, RECEIVED, RECEIVER, RECEIVING, ROOM, WANT_MORE
from shardq.flow.table import ALWAYS_CONDITION


def test_every_cell_of_the_table_is_filled_and_leads_somewhere() -> None:
    assert set(RECEIVER) == {RECEIVING, BLOCKED}
    for events in RECEIVER.values():
        assert set(events) == {RECEIVED, WANT_MORE}
        for cell in events.values():
            assert set(cell.then.values()) <= set(RECEIVER)
            assert set(cell.then) <= {ALWAYS_CONDITION, ROOM, FULL}


def test_a_full_queue_drops_the_oldest_and_tells_the_capacity() -> None:
    receiver = Receiver[str](2, 10**6)
    assert receiver.received("a", 1) == []
    assert receiver.state == RECEIVING
    assert receiver.received("b", 1) == []
    assert receiver.state == BLOCKED
    assert receiver.received("c", 1) == ["a"]
    assert receiver.state == BLOCKED
    assert receiver.want_more() == "b"
    assert receiver.state == RECEIVING
    assert [receiver.want_more(), receiver.want_more()] == ["c", None]


def test_bytes_are_bounded_too_and_one_message_always_fits() -> None:
    receiver = Receiver[str](100, 10)
    assert [receiver.received(each, 4) for each in "ab"] == [[], []]
    assert receiver.state == RECEIVING  # it has two bytes left, and the next message has four
    assert receiver.received("c", 4) == ["a"]
    assert receiver.received("large", 99) == ["b", "c"]
    assert (receiver.state, len(receiver), receiver.bytes) == (BLOCKED, 1, 99)
    assert receiver.want_more() == "large"
    assert (receiver.state, receiver.bytes) == (RECEIVING, 0)


def test_any_order_of_events_is_that_of_a_plain_queue(rng: Random) -> None:
    for _ in range(100):
        capacity, size = rng.randrange(1, 6), rng.randrange(1, 40)
        receiver, plain = Receiver[int](capacity, size), deque[tuple[int, int]]()
        for number in range(100):
            if rng.random() < 0.6:
                own = rng.randrange(1, 20)
                dropped = []
                while plain and (len(plain) == capacity or sum(each for _, each in plain) + own > size):
                    dropped.append(plain.popleft()[0])
                plain.append((number, own))
                assert receiver.received(number, own) == dropped
            else:
                assert receiver.want_more() == (plain.popleft()[0] if plain else None)
            held = sum(each for _, each in plain)
            assert (len(receiver), receiver.bytes) == (len(plain), held)
            assert receiver.state == (BLOCKED if len(plain) >= capacity or held >= size else RECEIVING)
