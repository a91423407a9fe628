"""A gateway that is hostile or broken: what it says is bounded, and costs a producer as much as it has bytes."""

from __future__ import annotations

import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq.datasink.messages import AckMessage, Dictionary, Refusal, Refusals, Response, Run, ServiceMessage
from shardq.edge.answers import MAX_ANSWER_BYTES, MAX_DICTIONARIES, MAX_MESSAGES, BadAnswer, Naming, response_of
from shardq.edge.compression import Compressor
from shardq.edge.connection import ConnectionEnded
from shardq.edge.delivering import Delivering
from shardq.edge.settings import EdgeSettings
from shardq.edge.spool import Spool
from shardq.testing import ManualClock
from tests.datasink.test_frames import trained
from tests.edge.test_connection import WELCOME, served
from tests.gateway.frames import empty, inside

ROOM = MAX_ANSWER_BYTES - 16
LONGEST = 0.02
"""Seconds of processor time."""

ANSWERS: dict[str, Callable[[], bytes]] = {
    "acks": lambda: inside(Response, "ack", empty(AckMessage, "message_ids", ROOM)),
    "runs of acks": lambda: inside(Response, "ack", empty(AckMessage, "runs", ROOM)),
    "ids of a run": lambda: Response(ack=AckMessage(runs=[Run(first=b"id", count=2**32 - 1)])).SerializeToString(),
    "refusals": lambda: inside(Response, "refused", empty(Refusals, "refusals", ROOM)),
    "what was dropped": lambda: inside(Response, "info", empty(ServiceMessage, "dropped", ROOM)),
    "dictionaries that are known": lambda: inside(
        Response, "info", inside(ServiceMessage, "known_dictionaries", b"\x01" * ROOM)
    ),
    "dictionaries that are wanted": lambda: inside(
        Response, "info", inside(ServiceMessage, "wanted_dictionaries", b"\x01" * ROOM)
    ),
    "prefixes": lambda: inside(Response, "info", inside(ServiceMessage, "known_prefixes", b"\x01" * ROOM)),
    "answers in one": lambda: empty(Response, "ack", ROOM),
    "what is small": lambda: inside(Response, "ack", empty(AckMessage, "runs", 60_000)),
    "no protobuf": lambda: b"\xff\xff no protobuf",
}


def seconds_until_refused(raw: bytes) -> float:
    begun = time.thread_time()
    with pytest.raises(BadAnswer):
        response_of(raw)
    return time.thread_time() - begun


@pytest.mark.parametrize("kind", ANSWERS)
def test_what_an_answer_has_too_many_of_is_noticed_before_it_is_walked(kind: str) -> None:
    raw = ANSWERS[kind]()
    took = min(seconds_until_refused(raw) for _ in range(3))  # once a collector may run, or caches are cold
    tracemalloc.start()
    with pytest.raises(BadAnswer):
        response_of(raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took <= LONGEST, f"{took * 1000:.1f} ms"
    assert peak <= 4 * 1024 * 1024


def test_as_many_as_there_may_be_are_taken() -> None:
    ids = [b"%064d" % each for each in range(MAX_MESSAGES)]
    for response in (
        Response(version=1, ack=AckMessage(message_ids=ids)),
        Response(version=1, ack=AckMessage(runs=[Run(first=each, count=1) for each in ids])),
        Response(version=1, refused=Refusals(refusals=[Refusal(message_id=each, reason=1) for each in ids])),
        Response(version=1, info=ServiceMessage(dropped=ids, known_dictionaries=range(MAX_DICTIONARIES))),
    ):
        assert response_of(response.SerializeToString()) == (response, MAX_MESSAGES)


def test_a_gateway_names_each_message_a_few_times() -> None:
    naming = Naming()
    naming.named(MAX_MESSAGES)
    naming.sent(1000)
    naming.named(4 * 1000)
    with pytest.raises(BadAnswer, match="messages that were sent"):
        naming.named(5 * 1000)


@pytest.mark.parametrize("kind", ANSWERS)
async def test_a_call_with_such_a_gateway_ends(tmp_path: Path, kind: str) -> None:
    async def send(_requests: Any, context: Any) -> None:
        await context.write(WELCOME.SerializeToString())
        await context.write(ANSWERS[kind]())
        await context.read()
        await context.read()

    async with served(send, tmp_path, is_raw=True) as made, made as connection:
        with pytest.raises(ConnectionEnded, match="answered with"):
            await anext(connection.responses())


async def test_an_answer_beyond_all_bounds_is_not_read(tmp_path: Path) -> None:
    async def send(_requests: Any, context: Any) -> None:
        await context.write(WELCOME.SerializeToString())
        await context.write(inside(Response, "ack", bytes(2 * MAX_ANSWER_BYTES)))
        await context.read()
        await context.read()

    async with served(send, tmp_path, is_raw=True) as made, made as connection:
        with pytest.raises(ConnectionEnded, match="RESOURCE_EXHAUSTED"):
            await anext(connection.responses())


@pytest.fixture
def delivering(tmp_path: Path) -> Delivering:
    settings = EdgeSettings(gateway="127.0.0.1:1", spool=tmp_path / "spool.db")
    return Delivering(settings, Spool(tmp_path / "spool.db", max_bytes=2**24, clock=ManualClock()))


def test_a_dictionary_goes_out_once_however_often_it_is_asked_for(delivering: Delivering) -> None:
    dictionary = trained()
    compressor = Compressor()
    number = compressor.add(dictionary.dict_content)
    delivering._compressor = compressor
    for _ in range(100):
        delivering._take_info(ServiceMessage(wanted_dictionaries=[number] * 10))
    assert delivering._infos == deque([{"dictionary": Dictionary(id=number, content=dictionary.dict_content)}])
