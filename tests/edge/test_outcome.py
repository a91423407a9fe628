"""What became of a message is told to who sent it, whichever process delivers."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardq.edge import AsyncEdge, Edge
from shardq.edge.spool import Spool
from shardq.errors import BackendTimeout, ConfigError, MessageRefused
from tests.edge.sink import Sink, running
from tests.edge.test_delivering import made, many, sink
from tests.waiting import eventually

__all__ = ["made", "sink"]  # pytest finds the fixtures here

pytestmark = pytest.mark.timeout(120)
Made = Callable[..., Edge]


def test_the_id_is_a_str_and_waits_for_the_outcome(sink: Sink, made: Made) -> None:
    edge = made()
    sent = edge.send(b"1:", queue="jobs", shard_key="t")
    assert sent.outcome(30) == "stored"
    assert bytes.fromhex(sent) in sink.stored
    assert (json.dumps(sent), type(sent.id), dict.fromkeys([str(sent)], 1)[sent]) == (f'"{sent}"', str, 1)
    assert copy.copy(sent) == sent
    assert type(copy.copy(sent)) is str
    sink.act = lambda request, number: "refuse INVALID"
    with pytest.raises(MessageRefused, match="INVALID: not for you") as refused:
        edge.send(b"2:", queue="jobs", shard_key="t").outcome(30)
    assert (refused.value.reason, refused.value.text) == ("INVALID", "not for you")
    assert sent.outcome(0) == "stored"
    sink.act = lambda request, number: "refuse NO_QUEUE"
    held = edge.send(b"3:", queue="jobs", shard_key="t")
    eventually(lambda: edge.status().spool.held == 1)
    with pytest.raises(BackendTimeout, match=r"it is held \(NO_QUEUE: not for you"):
        held.outcome(0)
    sink.act = lambda request, number: "ack"
    assert held.outcome(60) == "stored"


async def test_the_twin_can_be_awaited(tmp_path: Path) -> None:
    with running(Sink(act=lambda request, number: "refuse INVALID" if number == 2 else "ack")) as sink:
        async with AsyncEdge(sink.address, spool=tmp_path / "s.db") as edge:
            first, second = await edge.send_many(many(2))
            assert await first.outcome() == "stored"
            with pytest.raises(MessageRefused, match="not for you"):
                await second.outcome()
            with pytest.raises(MessageRefused, match="1 of INVALID"):
                await edge.flush()
            (refused,) = await edge.refused()
            assert refused.id.hex() == second
            assert await edge.resend([second]) == 1
            assert await second.outcome() == "stored"
            await edge.flush()


DELIVERS = """
import sys
from shardq.edge import Edge
with Edge(sys.argv[1], spool=sys.argv[2]):
    print("delivers", flush=True)
    sys.stdin.read()
"""


@pytest.mark.runs_in("test-all")
def test_another_process_may_deliver(sink: Sink, made: Made, tmp_path: Path) -> None:
    sink.act = lambda request, number: "refuse INVALID" if request.plain_message == b"bad" else "ack"
    command = [sys.executable, "-c", DELIVERS, sink.address, str(tmp_path / "spool.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        edge = made()
        eventually(lambda: edge.status().delivered_by == process.pid)
        assert edge.send(b"good", queue="jobs", shard_key="t").outcome(30) == "stored"
        with pytest.raises(MessageRefused, match="INVALID"):
            edge.send(b"bad", queue="jobs", shard_key="t").outcome(30)
        with pytest.raises(MessageRefused, match="1 of INVALID"):
            edge.flush(30)
        process.communicate("")


def test_flush_tells_once_what_was_refused_since_the_last_one(sink: Sink, made: Made) -> None:
    sink.act = lambda request, number: "refuse INVALID" if number <= 30 else "ack"
    edge = made()
    ids = edge.send_many(many(40))
    with pytest.raises(MessageRefused, match="30 of INVALID") as told:
        edge.flush()
    assert (told.value.reasons, told.value.reason, len(told.value.ids)) == ({"INVALID": 30}, "INVALID", 10)
    assert set(told.value.ids) <= set(ids)
    edge.flush()
    made().flush()  # what was refused before a producer was made is not its own
    edge.send(b"41:", queue="jobs", shard_key="t")
    edge.flush()


def test_what_was_dropped_for_newer_ones_was_not_stored(tmp_path: Path) -> None:
    with Edge(f"unix:{tmp_path}/nowhere", spool=tmp_path / "s.db", max_bytes=8 * 2**20, on_full="drop_oldest") as edge:
        first = edge.send(bytes(500_000), queue="jobs", shard_key="t")
        for _ in range(20):
            last = edge.send(bytes(500_000), queue="jobs", shard_key="t")
        with pytest.raises(MessageRefused, match="DROPPED: the spool was full"):
            first.outcome(0)
        with pytest.raises(BackendTimeout):
            last.outcome(0)
        assert edge.resend() == 0


def test_what_nobody_remembers_is_not_said_to_be_stored(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", max_refused_bytes=300)
    spool.put([(b"a", b"x" * 200), (b"b", b"y" * 200)])
    spool.refuse([(1, "INVALID", "bad")])
    spool.refuse([(2, "INVALID", "bad")])
    assert spool.fate(1).is_forgotten
    assert spool.fate(2).refused
    spool.close()


def test_ids_that_are_none_are_refused(made: Made) -> None:
    for bad in (["xyz"], [7], 7):
        with pytest.raises(ConfigError):
            made().resend(bad)  # type: ignore[arg-type]
