"""Delivery: every message arrives once it was spooled, under its own id, whatever the network and the gateway do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shardq.datasink.frames import zstd
from shardq.edge import Edge, EdgeMessage
from shardq.edge.compression import Trainer
from shardq.edge.connection import ConnectionEnded
from shardq.errors import BackendTimeout, ClosedError, CodecError, ConfigError, MessageRefused
from tests.edge.sink import Sink, running
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)
Made = Callable[..., Edge]


@pytest.fixture(params=[500, 0], ids=["batches", "singles"])
def sink(request: pytest.FixtureRequest) -> Iterator[Sink]:
    """A gateway that takes batches, and one of the time before."""
    with running(Sink(batches=request.param)) as sink:
        yield sink


@pytest.fixture
def made(sink: Sink, tmp_path: Path) -> Iterator[Made]:
    """Makes producers of one spool."""
    producers: list[Edge] = []

    def make(**settings: Any) -> Edge:
        settings = {"gateway": sink.address, "spool": tmp_path / "spool.db", **settings}
        producers.append(Edge(**settings))
        return producers[-1]

    yield make
    for each in producers:
        each.close()


def many(count: int, size: int = 100) -> list[EdgeMessage]:
    return [EdgeMessage(b"%d:" % each + b"x" * size, f"t-{each % 5}", queue="jobs") for each in range(count)]


def arrived(sink: Sink) -> list[int]:
    """The numbers of what was stored, in order."""
    return sorted(int(each.partition(b":")[0]) for each in sink.stored.values())


def test_a_message_arrives_with_all_that_was_said_of_it(sink: Sink, made: Made) -> None:
    edge = made(token="secret", name="site-7")
    message_id = edge.send({"a": 1}, queue="jobs", shard_key="t-1", headers={"kind": "x"}, delay=1.5)
    edge.send(b"raw", topic="orders.eu", shard_key=b"\xff\x00")
    edge.flush()
    first, second = sink.requests
    assert (first.message_id.hex(), first.queue, first.topic) == (message_id, "jobs", "")
    assert (first.shard_key, first.codec, dict(first.headers), first.delay_ms) == (b"t-1", "m", {"kind": "x"}, 1500)
    assert (second.topic, second.shard_key, second.codec, second.plain_message) == (
        "orders.eu",
        b"\xff\x00",
        "b",
        b"raw",
    )
    assert sink.metadata[0]["authorization"] == "Bearer secret"
    assert (sink.infos[0].name, sink.infos[0].releases) == ("site-7", True)
    status = edge.status()
    assert (status.spool.waiting, status.spool.acked, status.delivered_by) == (0, 2, os.getpid())
    eventually(lambda: sink.released == {first.message_id, second.message_id})


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"shard_key": "t"}, ConfigError, "name the queue or the topic"),
        ({"shard_key": "t", "queue": "a", "topic": "b"}, ConfigError, "name the queue or the topic"),
        ({"shard_key": "t", "queue": "{a}"}, ConfigError, "a queue name may not hold"),
        ({"shard_key": "t", "topic": "a..b"}, ConfigError, "empty"),
        ({"shard_key": "", "queue": "a"}, ConfigError, "empty"),
        ({"shard_key": "t", "queue": "a", "delay": -1}, ConfigError, "delay must be"),
        ({"shard_key": "t", "queue": "a", "headers": {"": "x"}}, ConfigError, "header"),
        ({"shard_key": "t", "queue": "a", "payload": object()}, CodecError, "encode"),
        ({"shard_key": "t", "queue": "a", "payload": b"x" * 2_000_000}, ConfigError, "more than max_payload"),
    ],
)
def test_a_bad_message_is_refused_before_it_is_spooled(
    made: Made, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    edge = made()
    with pytest.raises(error, match=text):
        edge.send(**({"payload": b"x"} | given))
    assert edge.status().spool.accepted == 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"gateway": "nowhere"}, "gateway must be host:port"),
        ({"name": "a b"}, "name must be"),
        ({"on_full": "wait"}, "on_full must be"),
        ({"durability": "x"}, "durability must be"),
        ({"max_bytes": 1}, "max_bytes must be a whole number from 8,388,608"),
        ({"level": 100}, "level must be a whole number from 1 to 22"),
        ({"level": 0}, "level must be a whole number from 1 to 22"),
        ({"in_memory": 0.5}, "in_memory must be a whole number"),
        ({"max_refused_bytes": -1}, "max_refused_bytes must be a whole number"),
        ({"hold": "a week"}, "hold must be a number of seconds"),
        ({"compress": "no"}, "compress must be True or False"),
        ({"token": b"secret"}, "token must be a str, not bytes"),
        ({"token": "a\nb", "gateway": "unix:/x"}, "token must be printable ASCII"),
        ({"root_certificates": "PEM"}, r"root_certificates must be bytes \(PEM\)"),
        ({"gateway": 7}, "gateway must be a str"),
        ({"spool": 7}, "spool must be a path"),
        ({"spool": "x" * 5_000}, "spool must be a path that this system can have, not .{1,60}$"),
        ({"max_payload": 0}, "max_payload must be a whole number"),
        ({"certificate": b"x"}, "certificate and key go together"),
        ({"gateway": "example.org:1", "token": "x"}, "in the clear"),
    ],
)
def test_bad_settings_are_refused(made: Made, given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        made(**given)


def test_lost_acks_and_dropped_messages_are_sent_again_under_their_ids(sink: Sink, made: Made) -> None:
    sink.act = lambda request, number: {3: "lose", 5: "drop"}.get(number % 10, "ack")
    edge = made()
    ids = edge.send_many(many(60))
    edge.flush(60)
    assert arrived(sink) == list(range(60))
    assert {each.hex() for each in sink.stored} == set(ids)
    assert edge.status().delivery.again > 0


@pytest.mark.runs_in("test-all")
def test_a_connection_that_is_cut_again_and_again_loses_nothing(sink: Sink, made: Made, rng: Random) -> None:
    sink.act = lambda request, number: "cut" if rng.random() < 0.05 else "ack"
    edge = made()
    ids = edge.send_many(many(600))
    edge.flush(100)
    assert {each.hex() for each in sink.stored} == set(ids)
    assert edge.status().delivery.connections > 5


def test_what_is_refused_stops_nobody(sink: Sink, made: Made) -> None:
    sink.act = lambda request, number: "refuse" if number % 4 == 0 else "ack"
    edge = made()
    edge.send_many(many(40))
    with pytest.raises(MessageRefused, match=r"10 of INVALID \(not for you\)"):
        edge.flush()
    assert len(sink.stored) == 30
    counts = edge.status().spool
    assert (counts.waiting, counts.acked, counts.refused) == (0, 30, 10)
    assert {(each.reason, each.text) for each in edge.refused()} == {("INVALID", "not for you")}


def test_never_more_is_unacked_than_the_gateway_can_take(sink: Sink, made: Made) -> None:
    sink.capacity, held = 3, list[Any]()
    sink.act = lambda request, number: held.append(number) or ("ack" if len(held) > 100 else "keep")  # type: ignore[func-returns-value]
    edge = made()
    edge.send_many(many(20))
    eventually(lambda: len(held) >= 3)
    eventually(lambda: edge.status().delivery.in_flight == 3)
    assert sink.most_unacked == 3


def test_a_gateway_that_takes_nothing_costs_bounded_memory(sink: Sink, made: Made) -> None:
    sink.act = lambda request, number: "keep"
    edge = made(in_memory=100_000)
    edge.send_many(many(2000, 1000))
    eventually(lambda: sink.requests)
    assert edge._delivering._ready_bytes < 102_000
    with pytest.raises(BackendTimeout, match=r"2,000 messages still wait in the spool; they stay there: connected"):
        edge.flush(0.1)


def test_without_a_gateway_messages_wait_and_go_out_when_it_comes(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/sock"
    with Edge(address, spool=tmp_path / "s.db") as edge:
        edge.send_many(many(10))
        eventually(lambda: edge.status().delivery.last_error)
        assert "UNAVAILABLE" in edge.status().delivery.last_error
        with running(Sink(), address) as sink:
            edge.flush(60)
            assert arrived(sink) == list(range(10))


def test_what_a_closed_producer_had_not_sent_the_next_one_sends(sink: Sink, made: Made) -> None:
    sink.act = lambda request, number: "keep"
    edge = made()
    edge.send_many(many(10))
    eventually(lambda: sink.requests)
    edge.close()
    edge.close()
    with pytest.raises(ClosedError):
        edge.send(b"x", queue="a", shard_key="t")
    sink.act = lambda request, number: "ack"
    made().flush()
    assert arrived(sink) == list(range(10))


@pytest.mark.runs_in("test-all")
def test_a_producer_is_closed_though_its_call_ends_by_itself_in_the_same_moment(
    sink: Sink, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC raises the error of the call then, and hides that the task was cancelled."""
    is_open = threading.Event()

    class Ended(AbstractAsyncContextManager[None]):
        async def __aenter__(self) -> None:
            is_open.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise ConnectionEnded("UNAVAILABLE")

        async def __aexit__(self, *_: object) -> None: ...

    with monkeypatch.context() as patched:
        patched.setattr("shardq.edge.delivering.connected", lambda *_: Ended())
        edge = made()
        edge.send(b"0:", queue="jobs", shard_key="t")
        assert is_open.wait(30)
        edge.close()
    made().flush()
    assert arrived(sink) == [0]


def test_a_dictionary_is_trained_offered_and_used(sink: Sink, made: Made, rng: Random) -> None:
    words = [b"%x" % rng.getrandbits(64) for _ in range(2000)]
    payloads = [b" ".join(rng.choices(words, k=250)) for _ in range(1500)]
    edge = made()
    edge.send_many(EdgeMessage(each, "t", queue="q") for each in payloads)
    edge.flush(60)
    eventually(lambda: edge._delivering._compressor.using is not None, 30)
    before = edge.status().delivery.frame_bytes
    edge.send_many(EdgeMessage(each, "t", queue="q") for each in payloads[:300])
    edge.flush(60)
    alone = sum(len(zstd.compress(each, 3)) for each in payloads[:300])
    assert edge.status().delivery.frame_bytes - before < 0.7 * alone
    assert sorted(sink.stored.values()) == sorted(payloads + payloads[:300])
    edge.close()
    again = made()  # the dictionary is in the spool's file
    eventually(lambda: again._delivering._compressor.using is not None)
    assert len(sink.dictionaries) == 1


def test_an_edge_that_closes_while_it_trains_leaves_no_task_behind(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    trains, is_closed = threading.Event(), threading.Event()

    def trained_late(_: list[bytes]) -> bytes:
        trains.set()
        assert is_closed.wait(30)
        return b"a dictionary"

    monkeypatch.setattr("shardq.edge.delivering.trained", trained_late)
    monkeypatch.setattr(Trainer, "is_ready", True)
    edge = made()
    edge.send(b"x" * 100, queue="jobs", shard_key="t")
    assert trains.wait(30)
    training = edge._delivering._training
    edge.close()
    is_closed.set()
    assert training is not None
    assert training.cancelled(), "else it fails later, or says at the end of the process that it was destroyed"


def test_what_does_not_shrink_goes_plain(sink: Sink, made: Made, rng: Random) -> None:
    edge = made()
    edge.send_many(EdgeMessage(each, "t", queue="q") for each in (rng.randbytes(1000), b"short", b"y" * 1000))
    edge.flush()
    assert len(sink.lengths) == (1 if sink.batches else 3)
    assert 1000 < sum(sink.lengths) < 1200


@pytest.mark.runs_in("test-all")
def test_another_process_takes_over_when_the_one_that_delivers_is_killed(
    sink: Sink, made: Made, tmp_path: Path
) -> None:
    sink.act = lambda request, number: "keep"
    command = [sys.executable, "-c", SENDS, sink.address, str(tmp_path / "spool.db")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "put\n"
    eventually(lambda: sink.requests)
    edge = made()
    eventually(lambda: edge.status().delivery.state == "another process delivers")
    assert edge.status().delivered_by == process.pid
    edge.send(b"1000:", queue="jobs", shard_key="t")
    sink.act = lambda request, number: "ack"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    edge.flush(60)
    assert arrived(sink) == [*range(50), 1000]


SENDS = """
import sys, time
from shardq.edge import Edge, EdgeMessage
from shardq.edge.connection import ConnectionEnded
edge = Edge(sys.argv[1], spool=sys.argv[2])
edge.send_many(EdgeMessage(b"%d:" % at, "t", queue="jobs") for at in range(50))
print("put", flush=True)
time.sleep(600)
"""


@pytest.mark.runs_in("test-all")
def test_a_producer_that_is_killed_at_any_moment_loses_nothing(
    sink: Sink, made: Made, tmp_path: Path, rng: Random
) -> None:
    """It tells what it has put. All of that arrives, sent by it or by the next process, each under one id."""
    told, spool = set[str](), str(tmp_path / "spool.db")
    for _ in range(4):
        command = [sys.executable, "-c", TELLS, sink.address, spool]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(1, 120)):
                told.add(process.stdout.readline().strip())
            process.kill()
            told.update(line for line in process.stdout.read().split() if len(line) == 32)
    made().flush(60)
    assert told <= {each.hex() for each in sink.stored}


TELLS = """
import sys
from shardq.edge import Edge
edge = Edge(sys.argv[1], spool=sys.argv[2])
for number in range(100_000):
    print(edge.send(b"x", queue="jobs", shard_key="t"), flush=True)
"""


FORKS = """
import os, sys
from shardq.edge import Edge
from shardq.errors import ClosedError

with Edge(gateway=sys.argv[1], spool=sys.argv[2]) as edge:
    edge.send(b"mine", queue="jobs", shard_key="t")
    edge.flush()
    pid = os.fork()
    if not pid:
        try:
            edge.send(b"x", queue="jobs", shard_key="t")
        except ClosedError:
            os._exit(17)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 17
    edge.send(b"mine, too", queue="jobs", shard_key="t")
    edge.flush()
"""


@pytest.mark.runs_in("test-all")
def test_a_forked_child_is_told_to_make_its_own(sink: Sink, tmp_path: Path) -> None:
    """gRPC's own handlers of forks are off, as docs/edge.md says: they may end a child by an assertion of theirs."""
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS, sink.address, str(tmp_path / "spool.db")],
        check=True, timeout=60, env=os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "0"},
    )  # fmt: skip
    assert sorted(sink.stored.values()) == [b"mine", b"mine, too"]
