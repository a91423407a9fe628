"""A slow link is no silence: what takes long to come is read to its end, by both clients."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardq import BackendTimeout, OutcomeUnknown
from tests.fault.conftest import Open
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import eventually

SIZE, COUNT, RATE = 100_000, 20, 330_000  # six seconds: a try gives up after five without an answer


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_a_batch_that_takes_longer_than_a_try_may_be_silent_is_read(
    server: Server, proxy: Proxy, open_client: Open, queue_name: str
) -> None:
    queue = open_client(proxy.url, timeout=30).queue(queue_name, streams=4)
    queue.write_many([(b"x" * SIZE, f"tenant-{n}") for n in range(COUNT)])
    before = server.info("commandstats").get("cmdstat_fcall", {}).get("calls", 0)
    proxy.throttle(RATE)
    begun = time.monotonic()
    found = queue.read_many(COUNT)
    assert time.monotonic() - begun > 5.5
    assert sorted(len(each.payload) for each in found) == [SIZE] * COUNT
    assert {each.count for each in found} == {1}
    proxy.heal()
    assert queue.ack_many(found) == []
    assert server.info("commandstats")["cmdstat_fcall"]["calls"] - before == 2  # one read, one ack: no try was given up


@pytest.mark.runs_in("test-all")
def test_what_a_blocked_read_is_woken_for_may_come_slowly_too(
    server: Server, proxy: Proxy, open_client: Open, queue_name: str
) -> None:
    """It comes on the connection for blocking reads, where the wait of 0.5 s may be followed by 3 s of silence."""
    writer = open_client(server.url).queue(queue_name, streams=4)
    writer.write("first", shard_key="tenant-1")
    queue = open_client(proxy.url, timeout=30, wait_slice=0.5).queue(queue_name, streams=4)
    queue.read().ack()
    proxy.throttle(RATE)
    with ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        reading = pool.submit(queue.read_many, COUNT, block=60)
        eventually(lambda: server.info("clients")["blocked_clients"] == 1)
        writer.write_many([(b"x" * SIZE, f"tenant-{n}") for n in range(COUNT)])
        found = reading.result(60)
    assert time.monotonic() - begun > 5.5
    assert [len(each.payload) for each in found] == [SIZE] * COUNT
    assert {each.count for each in found} == {1}


def test_silence_is_given_up_after_the_callers_time(proxy: Proxy, open_client: Open, queue_name: str) -> None:
    queue = open_client(proxy.url, timeout=30).queue(queue_name, streams=4)
    queue.write("work", shard_key="tenant")
    proxy.blackhole()
    begun = time.monotonic()
    with pytest.raises((BackendTimeout, OutcomeUnknown)):
        queue.write("lost", shard_key="tenant", timeout=0.3)
    assert time.monotonic() - begun < 4.5
    proxy.heal()
