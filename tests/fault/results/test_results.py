"""Results when something fails: lost replies, a full server, clients that end, cancelled tasks, failovers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import AsyncClient, BackendTimeout, Client, ClosedError, Queue, ResultPending
from shardq.ops.results.waiters import result_waiting_of
from tests.fault.client.test_processes import child
from tests.fault.conftest import Cutter, Open
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import eventually

SOON = 15.0
SETTINGS: dict[str, Any] = {"streams": 4, "result_ttl": 60}


@pytest.fixture
def queue(proxy: Proxy, open_client: Open, queue_name: str) -> Queue:
    """A queue that exists, through the proxy."""
    queue = open_client(proxy.url).queue(queue_name, **SETTINGS)
    queue.declare()
    return queue


@pytest.fixture
def other(server: Server, queue: Queue) -> Iterator[Queue]:
    """The same queue, seen by somebody with a good connection."""
    with Client.from_url(server.url) as client:
        yield client.queue(queue.name)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def waiting(queue: Queue) -> int:
    """How many wait for results."""
    return len(result_waiting_of(queue.state).waiters())


def blocked(server: Server) -> int:
    return int(server.info("clients")["blocked_clients"])


@pytest.mark.parametrize("script", ["keep", "ack"])
def test_a_result_is_kept_whichever_reply_is_lost(queue: Queue, other: Queue, lose: Cutter, script: str) -> None:
    message_id = other.write("work", shard_key="t")
    delivery = queue.read()
    cut = lose(script)
    delivery.ack(result="done")
    assert cut.struck.wait(SOON)
    assert other.result(message_id) == "done"
    stats = other.stats()
    assert (stats.acked, stats.in_flight, stats.result_count) == (1, 0, 1)


def test_progress_is_noted_though_a_reply_is_lost(queue: Queue, other: Queue, lose: Cutter) -> None:
    message_id = other.write("work", shard_key="t")
    delivery = queue.read()
    cut = lose("progress")
    assert delivery.progress(1, 2)
    assert cut.struck.wait(SOON)
    progress = other.status(message_id).progress
    assert progress is not None
    assert progress.done == 1
    delivery.ack()


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("where", [b"XREAD", "await"], ids=str)
def test_a_wait_goes_on_when_a_connection_is_lost(
    queue: Queue, other: Queue, lose: Cutter, proxy: Proxy, pool: ThreadPoolExecutor, where: Any
) -> None:
    message_id = other.write("work", shard_key="t")
    cut = lose(where) if where == "await" else proxy.cut_after_request(where)
    waits = [pool.submit(queue.result, message_id, timeout=60) for _ in range(4)]
    assert cut.struck.wait(SOON)
    eventually(lambda: waiting(queue) == 4)
    other.read().ack(result="done")
    assert [each.result(SOON) for each in waits] == ["done"] * 4


def test_a_wait_lasts_as_long_as_its_caller_said_though_the_server_is_silent_for_longer_than_a_call_may_be(
    server: Server, proxy: Proxy, open_client: Open, queue_name: str, pool: ThreadPoolExecutor
) -> None:
    queue = open_client(proxy.url, timeout=0.3).queue(queue_name, **SETTINGS)
    message_id = queue.write("work", shard_key="t", timeout=SOON)
    wait = pool.submit(queue.result, message_id, timeout=60)
    eventually(lambda: waiting(queue))
    proxy.blackhole()
    with pytest.raises(BackendTimeout):
        queue.len(timeout=2)  # longer than it may take until the wait looks, and then the client's timeout
    proxy.heal()
    with Client.from_url(server.url) as good:
        good.queue(queue_name).read(block=SOON).ack(result="done")
    assert wait.result(SOON) == "done"


def test_a_wait_that_ends_in_silence_only_looked(proxy: Proxy, open_client: Open, queue_name: str) -> None:
    queue = open_client(proxy.url, timeout=0.3).queue(queue_name, **SETTINGS)
    message_id = queue.write("work", shard_key="t", timeout=SOON)
    proxy.blackhole()
    with pytest.raises(BackendTimeout, match="it only looked for the result"):
        queue.result(message_id, timeout=1)


def test_a_full_server_keeps_no_result_and_takes_the_ack(
    server: Server, open_client: Open, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = open_client(server.url).queue(queue_name, **SETTINGS)
    message_id = queue.write("work", shard_key="t")
    delivery = queue.read()
    server.run("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(ResultPending):
            queue.result(message_id, timeout=0)
        delivery.ack(result="x" * 1000)
        assert queue.stats().acked == 1
        assert "has no room for results" in caplog.text
    finally:
        server.run("CONFIG", "SET", "maxmemory", 0)


def test_close_ends_those_who_wait(server: Server, open_client: Open, queue_name: str) -> None:
    client = open_client(server.url)
    queue = client.queue(queue_name, **SETTINGS)
    message_id = queue.write("work", shard_key="t")
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(queue.result, message_id, timeout=60) for _ in range(3)]
        eventually(lambda: waiting(queue) == 3 and blocked(server))
        client.close()
        for each in waits:
            with pytest.raises(ClosedError):
                each.result(SOON)


def test_what_a_failover_lost_delays_no_result_for_long(
    server: Server, queue: Queue, other: Queue, pool: ThreadPoolExecutor
) -> None:
    """The stream of what is finished is shorter afterwards: whoever waits goes on at its new end."""
    early = other.write("early", shard_key="t")
    wait = pool.submit(queue.result, early, timeout=60)
    eventually(lambda: waiting(queue))
    other.read().ack(result=1)
    assert wait.result(SOON) == 1
    keys = other.state.keys
    late, last = other.write_many([("late", "t"), ("last", "u")])
    waits = [pool.submit(queue.result, each, timeout=60) for each in (late, last)]
    eventually(lambda: waiting(queue) == 2)
    server.run("DEL", keys.finished)
    server.run("XADD", keys.finished, "1-1", "ids", "")
    server.run("XDEL", keys.finished, "1-1")
    for delivery in other.read_many(2):
        delivery.ack(result=2)
    assert [each.result(SOON) for each in waits] == [2, 2]


def test_a_child_process_waits_by_itself(server: Server, queue_name: str, pool: ThreadPoolExecutor) -> None:
    with Client.from_url(server.url, timeout=60) as client:
        queue = client.queue(queue_name, **SETTINGS)
        first, second = queue.write_many([("first", "t"), ("second", "t")])
        wait = pool.submit(queue.result, first, timeout=60)
        eventually(lambda: waiting(queue))

        def work() -> str:
            for _ in range(2):
                delivery = queue.read(block=SOON)
                delivery.ack(result=f"{delivery.payload}, by the child")
            return str(queue.result(second, timeout=SOON))

        assert child(work) == "second, by the child"
        assert wait.result(SOON) == "first, by the child"


def test_a_cancelled_task_disturbs_no_other(server: Server, queue_name: str) -> None:
    async def main() -> list[Any]:
        async with AsyncClient.from_url(server.url) as client:
            queue = client.queue(queue_name, **SETTINGS)
            message_id = await queue.write("work", shard_key="t")
            tasks = [asyncio.create_task(queue.result(message_id, timeout=60)) for _ in range(9)]
            while len(result_waiting_of(queue.state).waiters()) < 9:  # noqa: ASYNC110 (nothing tells of it)
                await asyncio.sleep(0.005)
            for each in tasks[::2]:
                each.cancel()
            await (await queue.read()).ack(result=7)
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert not result_waiting_of(queue.state).waiters()
            return found

    found = asyncio.run(main())
    assert found[1::2] == [7] * 4
    assert {type(each) for each in found[::2]} == {asyncio.CancelledError}
