"""Who was denied, refused and held back is counted, logged within bounds, and shown to the operator."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from shardq import AsyncClient, ConfigError
from shardq.datasink import messages
from shardq.gateway.notices import MAX_NOTICES, PERIOD, Notices
from shardq.testing import ManualClock
from tests.gateway.conftest import GatewayProcess, Start, TokenFile
from tests.gateway.producer import Producer, request
from tests.gateway.test_command import shardq
from tests.gateway.test_storing import made

pytestmark = pytest.mark.once


@pytest.mark.runs_in("test-all")
async def test_status_shows_each_token_and_each_stranger(
    run_gateway: Callable[..., GatewayProcess],
    redis_client: AsyncClient,
    queue_name: str,
    tokens: TokenFile,
    tmp_path: Path,
) -> None:
    await made(redis_client, queue_name)
    busy = tokens.add("busy", queues=[queue_name], messages_per_second=20)
    idle, path = tokens.add("idle"), tmp_path / "status"
    gateway = run_gateway("--tokens", str(tokens.path), "--status-socket", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with Producer(gateway.address, idle) as done:
        await done.until(lambda: done.news)
    async with Producer(gateway.address, busy) as producer, grpc.aio.insecure_channel(gateway.address) as channel:
        await producer.send(request(0, "other"), *[request(number, queue_name) for number in range(1, 40)])
        await producer.until(lambda: len(producer.acked) == 39)
        for _ in range(3):
            denied = channel.stream_stream(messages.SEND)(metadata=(("authorization", "Bearer shardq_wrong"),))
            assert await denied.code() == grpc.StatusCode.UNAUTHENTICATED
        told = await asyncio.to_thread(shardq, "serve", "gateway", "--status", str(path), "--json")
        report = json.loads(told.stdout)
        shown = (await asyncio.to_thread(shardq, "serve", "gateway", "--status", str(path))).stdout
    token = report["tokens"]["busy"]
    assert token["refused_by"] == {"NOT_ALLOWED": 1}
    assert (token["open"], token["received"], token["stored"], token["dropped"]) == (1, 40, 39, 0)
    assert token["throttled"] > 0
    assert report["tokens"]["idle"]["connections"] == 1
    assert report["tokens"]["idle"]["open"] == 0
    assert report["addresses"]["127.0.0.1"]["denied"] == 3
    assert report["ready"] is True
    for text in ("busy", "idle", "NOT_ALLOWED 1", "127.0.0.1", "ready"):
        assert text in shown
    gateway.signal(signal.SIGTERM)
    code, log = await gateway.ended()
    assert code == 0
    assert not path.exists()
    assert log.count("has no token that is known") == 1, "the others are counted only"
    assert "denied, 127.0.0.1: 2 more within 10 seconds" in log
    assert log.count("are refused") == 1
    assert log.count("is held back by its rates") == 1
    assert "shardq_wrong" not in log + shown


@pytest.mark.runs_in("test-all")
def test_without_a_gateway_there_is_no_status(tmp_path: Path) -> None:
    told = shardq("serve", "gateway", "--status", str(tmp_path / "none"))
    assert told.returncode == 2
    assert "no gateway answers" in told.stderr
    assert len(told.stderr.splitlines()) == 1


async def test_a_status_socket_is_taken_over_from_a_gateway_that_was_killed(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "status"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    async with start(status_socket=path):
        with pytest.raises(ConfigError, match="status socket"):
            async with start(status_socket=path):
                pass
        reader, writer = await asyncio.open_unix_connection(path)
        assert json.loads(await reader.read())["tokens"] == {}
        writer.close()


def test_lines_of_a_kind_are_bounded_and_say_how_many_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    notices = Notices(clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            notices.say("denied", "a", "a is denied")
        notices.say("denied", "b", "b is denied")
        assert caplog.messages == ["a is denied", "b is denied"]
        notices.sum_up(clock.monotonic())
        assert len(caplog.messages) == 2, "the period is not over"
        notices.sum_up(clock.monotonic() + PERIOD)
        assert caplog.messages[2:] == ["denied, a: 4 more within 10 seconds"]
        caplog.clear()
        for number in range(3 * MAX_NOTICES):
            notices.say("denied", str(number), f"{number} is denied")
        assert len(caplog.messages) == MAX_NOTICES + 1, "beyond, those of a kind are told as one"
