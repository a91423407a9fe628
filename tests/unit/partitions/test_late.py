"""Calls that go on without their reader: whatever becomes of them, their partition is not left out for ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from shardq import BackendTimeout, Client
from shardq.client.sync_stands import Stands, Waits
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import Left
from shardq.ops.read.glance import glance
from shardq.ops.read.waiting import Outstanding
from shardq.partitions.away import FIRST_RETRY
from shardq.partitions.late import bring, probe, reads_aside
from shardq.partitions.map import PartitionMap
from shardq.partitions.parts import Parts
from shardq.partitions.reads import WantedRead
from shardq.testing import ManualClock
from tests.unit.driving import drive

NOWHERE = "redis://localhost:1"
FAILED = BackendTimeout("no answer")


def parts_of(client: Client, text: str, before: Parts | None = None) -> Parts:
    """The partitions by this map, as a client knows them that asks for nothing."""
    state = client.queue("jobs").state
    return Parts(state, PartitionMap.parse(text), client.state_of_part, client.codecs, before)


def mistaken(_step: object) -> ValueError:
    """A mistake in what makes calls."""
    return ValueError("file descriptor cannot be a negative integer")


def no_offer(_visibility: float | None) -> None:
    """Nobody waits."""


@pytest.mark.parametrize("what", ["a read", "a probe"])
def test_a_partition_whose_call_ends_by_a_mistake_is_probed(what: str) -> None:
    clock = ManualClock()
    with Client.from_url(NOWHERE) as client:
        parts = parts_of(client, "3:a,b")
        parts.away._now = clock.monotonic
        if what == "a read":
            parts.away.late(1)
            looks = glance(parts.states[1], clock.monotonic() + 1)
            op = bring(parts, 1, Left(looks, next(looks), many=False), None, no_offer)
        else:
            parts.away.heard(1, FAILED)
            clock.advance(2 * FIRST_RETRY)
            assert parts.away.to_probe() == [1]
            op = probe(parts, 1)
        with pytest.raises(ValueError, match="descriptor"):
            drive(op, mistaken, clock)
        assert parts.away.numbers == {1}
        is_late: bool = parts.away.is_late
        assert not is_late
        clock.advance(3 * FIRST_RETRY)
        assert parts.away.to_probe() == [1]
        parts.away.heard(1, [])
        assert parts.away.numbers == frozenset()


@pytest.mark.parametrize("what", ["a read", "a glance"])
def test_what_a_late_call_is_granted_is_not_the_readers(what: str) -> None:
    """Another call of the reader may have been granted the same so far: nothing."""
    with Client.from_url(NOWHERE) as client:
        parts = parts_of(client, "3:a,b")
        before, own = Outstanding(), Outstanding()
        wanted = WantedRead(1, None, 9.0, waits=False, aside=lambda _: None, offer=no_offer)
        wanted.granted = [(1, before), (1, own)]
        looks = glance(parts.states[1], 9.0)
        left = Left(looks, next(looks), many=False)
        reads_aside(parts, wanted, 1, left, own if what == "a read" else None)
    assert [id(each) for _, each in wanted.granted] == [id(before), id(own)][: 1 if what == "a read" else 2]


def test_what_is_told_of_a_partition_that_has_left_is_probed_by_nobody() -> None:
    """A blocked read may fail there after the map has changed; and so may an ack of what was read from it."""
    clock = ManualClock()
    with Client.from_url(NOWHERE) as client:
        parts = parts_of(client, "1:", parts_of(client, "3:a,b"))
        parts.away._now = clock.monotonic
        parts.away.heard(2, FAILED)
        assert parts.away.numbers == frozenset()
        assert parts.away.failure is None, "it speaks of one that is not read"
        clock.advance(2 * FIRST_RETRY)
        assert parts.away.to_probe() == []


def test_the_end_of_a_call_that_nobody_noted_as_late_is_heard() -> None:
    """A child process begins anew: nothing is late there."""
    with Client.from_url(NOWHERE) as client:
        parts = parts_of(client, "3:a,b")
        parts.away.late(1)
        parts.forked()
        parts.away.ended(1, FAILED)
        assert parts.away.numbers == {1}
        parts.away.ended(1, [])
        assert parts.away.numbers == frozenset()


def no_room(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_where_no_thread_can_start_the_reader_does_what_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what was granted would be leased to nobody."""
    done: list[str] = []

    def op() -> Op[None]:
        done.append(threading.current_thread().name)
        yield from ()

    with Client.from_url(NOWHERE) as client:
        stands = Stands(client, parts_of(client, "3:a,b"))
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", no_room)
            stands.aside(op())
    assert done == [threading.current_thread().name]


def test_whoever_learns_of_another_map_needs_no_room_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a call of somebody else, which is not to fail for that. Those who wait next say so."""
    with Client.from_url(NOWHERE) as client:
        old = parts_of(client, "3:a,b")
        stands: Any = Stands(client, old)
        stands._waiting.append(Waits(1, None))
        new = parts_of(client, "4:a,b,c", old)
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", no_room)
            stands.follow(new)
        assert stands._parts is new
        assert not stands._standing, "so the next who waits begins them"
        stands._waiting.clear()
