"""What a gateway does not take for now is held and tried again, while all else goes on."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shardq.edge import Edge, EdgeMessage, delivering
from shardq.edge.places import GatewayPlaces, place_of
from shardq.edge.spool import Spool, SpoolHold
from shardq.errors import BackendTimeout
from shardq.testing import ManualClock
from tests.edge.sink import Sink
from tests.edge.test_delivering import made, many, sink
from tests.waiting import eventually

__all__ = ["made", "sink"]  # pytest finds the fixtures here

pytestmark = pytest.mark.timeout(120)
OTHER_REASONS = ("NOT_ALLOWED", "TOO_LARGE", "REASON_UNSPECIFIED")
Made = Callable[..., Edge]


class Request:
    """What a place is made of."""

    def __init__(self, queue: str = "", topic: str = "", shard_key: bytes = b"t", size: int = 1) -> None:
        self.queue, self.topic, self.shard_key, self.plain_message = queue, topic, shard_key, bytes(size)


def test_a_place_names_what_a_refusal_depends_on() -> None:
    assert place_of(Request("a"), "NO_QUEUE") == place_of(Request("a", shard_key=b"u"), "NO_QUEUE")
    assert place_of(Request("a"), "NO_QUEUE") != place_of(Request(topic="a"), "NO_QUEUE")
    assert place_of(Request("a"), "NOT_ALLOWED") != place_of(Request("a", shard_key=b"u"), "NOT_ALLOWED")
    assert place_of(Request("a", size=1000), "TOO_LARGE") == place_of(Request("b", size=1001), "TOO_LARGE")
    assert place_of(Request("a", size=1000), "TOO_LARGE") != place_of(Request("a", size=9000), "TOO_LARGE")


def test_places_are_asked_for_with_growing_pauses_and_one_at_a_time() -> None:
    places, now, pauses = GatewayPlaces(Random(1)), 0.0, list[float]()
    places.add("p", now)
    places.add("p", now + 0.5)  # one more message that is held there changes nothing
    for _ in range(10):
        asked = now
        while not places.due(now):
            now += 0.01
        pauses.append(now - asked)
        assert places.due(now + 100) == []
        places.failed("p", now)
    for number, pause in enumerate(pauses):
        assert 0.8 * min(60, 2**number) <= pause <= min(60, 2**number) + 0.02
    places.start(["q"], now)  # of a new connection all is asked for
    assert sorted(places.due(now)) == ["p", "q"]
    places.opened("p")
    assert len(places) == 1


def test_a_bound_that_changes_lets_what_was_too_large_be_asked_for_at_once() -> None:
    places = GatewayPlaces(Random(1))
    places.add("TOO_LARGE 9", 0.0)
    places.add("NO_QUEUE a ", 0.0)
    places.raised(0.1)
    assert places.due(0.1) == ["TOO_LARGE 9"]


@pytest.mark.parametrize(
    "reason",
    ["NO_QUEUE", *(pytest.param(name, marks=pytest.mark.runs_in("test-all")) for name in OTHER_REASONS)],
)
def test_what_is_not_taken_for_now_goes_out_later_and_stops_nobody(sink: Sink, made: Made, reason: str) -> None:
    is_open = [False]
    sink.act = lambda request, number: "ack" if request.queue == "other" or is_open[0] else f"refuse {reason}"
    edge = made()
    ids = edge.send_many(many(200))
    others = edge.send_many(EdgeMessage(b"%d:" % number, "t", queue="other") for number in range(1000, 1300))
    eventually(lambda: len(sink.stored) == 300)
    eventually(lambda: edge.status().spool.held == 200)
    eventually(lambda: edge.status().spool.waiting == 200)
    eventually(lambda: edge.status().delivery.in_flight == 0)
    status = edge.status()
    assert {each.reason for each in status.held} == {reason}
    assert status.spool.refused == 0
    before = len(sink.requests)
    eventually(lambda: len(sink.requests) > before, what="the place is asked for again")
    with pytest.raises(BackendTimeout, match=f"are held: {reason}: not for you"):
        edge.flush(0.1)
    assert len(sink.requests) - before <= 20, "one message of each place asks for all"
    is_open[0] = True
    edge.flush(60)
    assert {each.hex() for each in sink.stored} == {*ids, *others}
    assert edge.status().spool.held == 0


def test_held_messages_survive_the_process_and_are_sent_by_the_next(sink: Sink, made: Made) -> None:
    sink.act = lambda request, number: "refuse NO_QUEUE"
    edge = made()
    edge.send_many(many(50))
    eventually(lambda: edge.status().spool.held == 50)
    edge.close()
    sink.act = lambda request, number: "ack"
    made().flush(30)
    assert len(sink.stored) == 50


def test_what_is_held_too_long_is_refused_with_its_reason_and_can_be_sent_again(
    sink: Sink, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "EXPIRE", 0.1)
    sink.act = lambda request, number: "refuse NO_QUEUE"
    edge = made(hold=0.0)
    ids = edge.send_many(many(10))
    eventually(lambda: edge.status().spool.refused == 10, 60)
    assert {(each.id.hex(), each.reason) for each in edge.refused()} == {(each, "NO_QUEUE") for each in ids}
    assert edge.status().spool.held == 0
    sink.act = lambda request, number: "ack"
    assert edge.resend(ids[:2]) == 2
    assert edge.resend(reason="INVALID") == 0
    assert edge.resend(reason="NO_QUEUE") == 8
    edge.flush(30)
    assert {each.hex() for each in sink.stored} == set(ids)
    assert edge.status().spool.refused == 0


def test_a_hold_is_as_old_as_its_first_refusal(tmp_path: Path) -> None:
    clock = ManualClock(wall=1000.0)
    spool = Spool(tmp_path / "s.db", clock=clock)
    spool.put([(b"a", b"x"), (b"b", b"y")])
    spool.hold([SpoolHold(1, "p", 1, "NO_QUEUE", "there is none")])
    clock.advance(100)
    spool.hold([SpoolHold(1, "q", 1, "NOT_ALLOWED", "no"), SpoolHold(2, "q", 1, "NOT_ALLOWED", "no")])
    assert spool.expire(1050.0) == 1
    (refused,) = spool.refusals.kept()
    assert (refused.id, refused.request, refused.reason) == (b"a", b"x", "NOT_ALLOWED")
    assert [(each.messages, each.since) for each in spool.held()] == [(1, 1000.0)]
    spool.close()


RELEASES = """
import sys
from shardq.edge.spool import Spool
spool = Spool(sys.argv[1])
assert spool.release("p")
print("some", flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_while_it_releases_leaves_the_rest_held(
    sink: Sink, made: Made, tmp_path: Path
) -> None:
    """The place is asked for again, and all goes out once."""
    edge = made()
    sink.act = lambda request, number: "keep"
    edge.send_many(many(1000))
    edge.close()
    spool = Spool(tmp_path / "spool.db")
    spool.hold([SpoolHold(seq, "p", 1, "NO_QUEUE", "there is none") for seq in range(1, 1001)])
    command = [sys.executable, "-c", RELEASES, str(spool.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"some\n"
        process.kill()
    (place,) = spool.held()
    assert 0 < place.messages == spool.counts().held < 1000
    spool.close()
    sink.act, sink.requests[:] = lambda request, number: "ack", []
    edge = made()
    edge.flush(60)
    late = edge.status().delivery.again  # a busy machine's acks may be late
    assert (len(sink.stored), len(sink.requests)) == (1000, 1000 + late)
    assert edge.status().spool.held == 0


def steps(spool: Spool, work: Callable[[], object]) -> int:
    """How many hundreds of steps SQLite takes for it."""
    done = list[int]()
    spool.file.db.set_progress_handler(lambda: done.append(1), 100)
    work()
    spool.file.db.set_progress_handler(None, 100)
    return len(done)


def test_what_is_looked_at_often_takes_no_longer_with_many_held_messages(tmp_path: Path) -> None:
    spool, found = Spool(tmp_path / "s.db"), list[list[int]]()
    for count in (100, 10_000):
        added = spool.put([(b"id", b"x")] * count)
        spool.hold([SpoolHold(seq, "p", 1, "NO_QUEUE", "no") for seq in added])
        looks = (lambda: spool.expire(0.0), spool.held, spool.counts, lambda: spool.first_held("p"))
        found.append([steps(spool, each) for each in looks])
    few, very_many = found
    assert spool.counts().held == 10_100
    assert all(each <= first + 1 for first, each in zip(few, very_many, strict=True))
    spool.close()


def test_a_place_whose_bits_have_flipped_lets_its_messages_go_out(sink: Sink, made: Made, tmp_path: Path) -> None:
    sink.act = lambda request, number: "refuse NO_QUEUE"
    edge = made()
    edge.send_many(many(30))
    eventually(lambda: edge.status().spool.held == 30)
    edge.close()
    with closing(sqlite3.connect(tmp_path / "spool.db")) as db, db:
        db.execute("UPDATE held SET place = x'00' WHERE seq < 10")
        db.execute("UPDATE held SET place = NULL WHERE seq = 10")
    sink.act = lambda request, number: "ack"
    made().flush(60)
    assert len(sink.stored) == 30


@pytest.mark.parametrize("name", [b"\0", None, 7])
def test_places_that_make_no_sense_are_counted_anew(tmp_path: Path, name: object) -> None:
    spool = Spool(tmp_path / "s.db")
    spool.put([(b"a", b"x")] * 2)
    spool.hold([SpoolHold(1, "p", 1, "NO_QUEUE", "no"), SpoolHold(2, "p", 1, "NO_QUEUE", "no")])
    spool.file.db.execute("UPDATE places SET name = ?, messages = 'x'", (name,))
    assert [(each.place, each.messages) for each in spool.held()] == [("p", 2)]
    spool.close()


def test_what_is_held_of_a_message_that_is_gone_does_not_stop_the_look_for_old_ones(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db")
    spool.put([(b"a", b"x")])
    spool.file.db.execute("INSERT INTO held VALUES (999, 'p', 1, 'NO_QUEUE', 'no', 5.0)")
    assert spool.expire(10.0) == 1
    assert spool.expire(10.0) == 0
    assert (spool.held(), spool.counts().held, spool.counts().refused) == ([], 0, 0)
    spool.close()


def test_a_frame_that_is_not_decodable_is_sent_plain_which_gets_the_true_reason(sink: Sink, made: Made) -> None:
    """A gateway says NOT_DECODABLE of a frame whose payload is larger than its bound is by now."""
    kinds: list[Any] = []

    def act(request: Any, number: int) -> str:
        kinds.append(request.WhichOneof("payload"))
        return "refuse NOT_DECODABLE" if kinds[-1] == "zstd_compressed" else "ack"

    sink.act = act
    edge = made()
    edge.send(b"x" * 10_000, queue="jobs", shard_key="t")
    edge.flush(30)
    assert kinds == ["zstd_compressed", "plain_message"]
    sink.act = lambda request, number: "refuse NOT_DECODABLE"
    edge.send(b"x" * 10_000, queue="jobs", shard_key="t")
    eventually(lambda: edge.status().spool.refused == 1)


def test_thousands_of_refusals_are_a_few_lines_in_the_log(
    sink: Sink, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    sink.act = lambda request, number: "refuse INVALID" if number % 2 else "refuse NO_QUEUE"
    edge = made()
    with caplog.at_level(logging.WARNING, "shardq"):
        edge.send_many(many(2000))
        eventually(lambda: edge.status().spool.refused + edge.status().spool.held == 2000, 60)
    told = [each.getMessage() for each in caplog.records if "messages, such as" in each.getMessage()]
    assert any("refused for good: INVALID: 1 messages" in each for each in told)
    assert any("held, since the gateway does not take them now: NO_QUEUE: 1 messages" in each for each in told)
    assert len(told) <= 12
    assert "x" * 50 not in caplog.text
