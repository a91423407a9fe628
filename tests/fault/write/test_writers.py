"""Writers on bad connections and slow servers: each message once and in order, a bounded window, the truth for each."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import (
    AsyncClient,
    BackendError,
    BackendTimeout,
    Client,
    ClosedError,
    OutcomeUnknown,
    PartlyWritten,
    Queue,
)
from shardq.client.writing import MIN_AHEAD
from tests.clients import ClientKind
from tests.conformance.world import drained
from tests.fault.client.test_forks import bounded
from tests.fault.client.test_processes import child
from tests.fault.conftest import Open
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import answered, eventually

COUNT = 4000
KEYS = 12
Put = tuple[str, int, str | BackendError]
"""A shard key, a payload, and what its future said."""


def put_all(kind: ClientKind, url: str, name: str, **settings: Any) -> list[Put]:
    """Write `COUNT` messages as fast as one thread or task can, and return what became of each."""
    return _put_all(url, name, **settings) if kind == "sync" else asyncio.run(_aput_all(url, name, **settings))


def _put_all(url: str, name: str, **settings: Any) -> list[Put]:
    with Client.from_url(url, timeout=60) as client, client.writer(**settings) as writer:
        queue = client.queue(name, create=True)
        keys = [f"t{number * number % KEYS}" for number in range(COUNT)]
        written = [(key, at, writer.write(queue, at, shard_key=key)) for at, key in enumerate(keys)]
        return [(key, at, _outcome(each.result)) for key, at, each in written]


async def _aput_all(url: str, name: str, **settings: Any) -> list[Put]:
    async with AsyncClient.from_url(url, timeout=60) as client, client.writer(**settings) as writer:
        queue = client.queue(name, create=True)
        keys = [f"t{number * number % KEYS}" for number in range(COUNT)]
        written = [(key, at, await writer.write(queue, at, shard_key=key)) for at, key in enumerate(keys)]
        return [(key, at, await _aoutcome(each)) for key, at, each in written]


def _outcome(result: Callable[[], str]) -> str | BackendError:
    try:
        return result()
    except BackendError as error:
        return error


async def _aoutcome(future: Awaitable[str]) -> str | BackendError:
    try:
        return await future
    except BackendError as error:
        return error


def check(queue: Queue, put: list[Put]) -> None:
    """Each message is there once, and those of a shard key got their numbers in the order of the writes."""
    orders: dict[str, list[int]] = defaultdict(list)
    for key, _, result in put:
        assert isinstance(result, str), result
        orders[key].append(int(result.split("-")[1]))
    assert all(order == sorted(order) for order in orders.values())
    assert len(orders) > 3
    found = drained(queue)
    assert Counter(each.payload for each in found) == Counter(range(COUNT))
    assert {each.message_id: each.payload for each in found} == {result: at for _, at, result in put}


@pytest.fixture
def plain(server: Server, queue_name: str) -> Any:
    """The queue, seen by somebody with a good connection."""
    with Client.from_url(server.url) as client:
        yield client.queue(queue_name, streams=8, streams_per_shard=2)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("settings", [{}, {"max_in_flight": 16}, {"max_bytes": 2000}], ids=str)
def test_order_is_kept_however_small_the_window_is(
    client_kind: ClientKind, server: Server, plain: Queue, settings: dict[str, int]
) -> None:
    plain.len()
    check(plain, put_all(client_kind, server.url, plain.name, **settings))


@pytest.mark.runs_in("test-all")
def test_connections_that_break_lose_double_and_disorder_nothing(
    client_kind: ClientKind, proxy: Proxy, plain: Queue, rng: random.Random
) -> None:
    plain.len()
    over = threading.Event()

    def cut() -> None:
        while not over.wait(rng.uniform(0.005, 0.05)):
            proxy.drop()

    with ThreadPoolExecutor(1) as pool:
        cutting = pool.submit(cut)
        try:
            put = put_all(client_kind, proxy.url, plain.name)
        finally:
            over.set()
        cutting.result(30)
    check(plain, put)


@pytest.mark.runs_in("test-all")
def test_a_server_that_does_not_answer_fills_the_window_and_no_memory(
    proxy: Proxy, open_client: Open, plain: Queue
) -> None:
    queue = open_client(proxy.url, timeout=2.0).queue(plain.name, create=True)
    answered(queue.declare)  # its client has opened it
    writer = queue.client.writer()
    proxy.blackhole()
    written = [writer.write(queue, number, shard_key=f"t{number}") for number in range(MIN_AHEAD)]
    for _ in range(3):
        with pytest.raises(BackendTimeout, match="window stayed full"):
            writer.write(queue, "never", shard_key="t", timeout=0.1)
    assert len(writer) == MIN_AHEAD
    with pytest.raises(PartlyWritten, match=f"{MIN_AHEAD} of a writer's {MIN_AHEAD} messages"):
        writer.flush()
    results = [_outcome(each.result) for each in written]
    assert {type(each) for each in results} <= {OutcomeUnknown, BackendTimeout}
    proxy.heal()
    assert _outcome(writer.write(queue, "after", shard_key="t", timeout=30).result)
    writer.close()
    stored = {each.payload for each in drained(plain)}
    assert "after" in stored
    assert "never" not in stored
    nothing = {at for at, each in enumerate(results) if isinstance(each, BackendTimeout)}
    assert not nothing & stored


@pytest.mark.runs_in("test-all")
def test_a_server_that_pauses_costs_time_only(client_kind: ClientKind, server: Server, plain: Queue) -> None:
    plain.len()
    with server.client() as raw, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(put_all, client_kind, server.url, plain.name)
        eventually(lambda: plain.len() > 50)
        raw.execute_command("CLIENT", "PAUSE", 1500, "ALL")
        put = writing.result(60)
    check(plain, put)


def test_a_client_that_is_closed_ends_what_is_under_way(proxy: Proxy, open_client: Open, plain: Queue) -> None:
    client = open_client(proxy.url, timeout=30)
    queue = client.queue(plain.name, create=True)
    answered(queue.len)
    writer = client.writer()
    proxy.blackhole()
    written = [writer.write(queue, number, shard_key="t") for number in range(5)]
    closing = threading.Thread(target=client.close)
    closing.start()
    for each in written:
        with pytest.raises((ClosedError, OutcomeUnknown, BackendTimeout)):
            each.result(20)
    proxy.heal()
    closing.join(30)
    assert not closing.is_alive()


def test_threads_share_a_writer_and_its_calls_with_single_writers(server: Server, plain: Queue) -> None:
    plain.len()
    with Client.from_url(server.url, timeout=60) as client, client.writer(max_in_flight=40) as writer:
        queue = client.queue(plain.name, create=True)

        def put(thread: int) -> list[Put]:
            key = f"t{thread}"
            if thread % 3 == 0:
                return [(key, at, queue.write(at, shard_key=key)) for at in range(thread, COUNT // 4, 12)]
            written = [(at, writer.write(queue, at, shard_key=key)) for at in range(thread, COUNT // 4, 12)]
            return [(key, at, _outcome(each.result)) for at, each in written]

        with ThreadPoolExecutor(12) as pool:
            put_by_all = [each for part in pool.map(put, range(12)) for each in part]
    found = {each.message_id: each.payload for each in drained(plain)}
    assert found == {result: at for _, at, result in put_by_all}
    assert sorted(found.values()) == list(range(COUNT // 4))


def test_a_task_that_is_cancelled_while_it_waits_for_room_leaves_none_taken(proxy: Proxy, plain: Queue) -> None:
    plain.len()

    async def run() -> None:
        async with AsyncClient.from_url(proxy.url, timeout=60) as client:
            queue = client.queue(plain.name, create=True)
            await queue.len()
            async with client.writer(max_in_flight=16) as writer:
                proxy.blackhole()
                for number in range(16):
                    await writer.write(queue, number, shard_key="t")
                blocked = [asyncio.ensure_future(writer.write(queue, "never", shard_key="t")) for _ in range(9)]
                await asyncio.sleep(0)
                assert (len(writer), [each.done() for each in blocked]) == (16, [False] * 9)
                for each in blocked[:5]:
                    each.cancel()
                proxy.heal()
                await asyncio.wait(blocked)
                assert [each.cancelled() for each in blocked] == [True] * 5 + [False] * 4
            assert len(writer) == 0

    asyncio.run(run())
    assert len(drained(plain)) == 20


def test_a_future_that_is_cancelled_takes_no_message_back(server: Server, plain: Queue) -> None:
    plain.len()

    async def run() -> None:
        async with AsyncClient.from_url(server.url) as client, client.writer() as writer:
            written = await writer.write(client.queue(plain.name, create=True), "stays", shard_key="t")
            written.cancel()

    asyncio.run(run())
    assert [each.payload for each in drained(plain)] == ["stays"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_needs_a_writer_of_its_own(server: Server, plain: Queue) -> None:
    with Client.from_url(server.url) as client, client.writer() as writer:
        queue = client.queue(plain.name, create=True)
        writer.write(queue, "the parent's", shard_key="t").result(30)
        told = child(bounded(lambda: writer.write(queue, "none", shard_key="t")))
        assert "ClosedError" in told
        assert "made before a fork" in told

        def own() -> str:
            with client.writer() as mine:
                return mine.write(queue, "the child's", shard_key="t").result(20)

        assert "-" in child(bounded(own))
    assert sorted(each.payload for each in drained(plain)) == ["the child's", "the parent's"]
