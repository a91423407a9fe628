"""One client and many threads, a fork, another event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardq import AsyncClient, Client, ClosedError, Empty
from tests.servers import Server

THREADS = 200


@pytest.mark.runs_in("test-all")
def test_two_hundred_threads_share_a_client(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url, timeout=60) as client, ThreadPoolExecutor(THREADS) as pool:
        queue = client.queue(queue_name, streams=16)
        begin = threading.Barrier(THREADS)

        def work(number: int) -> list[tuple[str, str]]:
            begin.wait()
            wrote: list[tuple[str, str]] = [
                (queue.write(f"{number}.{n}", shard_key=f"t{number}"), f"{number}.{n}") for n in range(5)
            ]
            wrote += [(each, f"{number}.b") for each in queue.write_many([(f"{number}.b", f"t{number}")])]
            return wrote

        def take(_: int) -> list[tuple[str, str]]:
            taken: list[tuple[str, str]] = []
            while True:
                try:
                    delivery = queue.read(block=0.5)
                except Empty:
                    return taken
                delivery.ack()
                taken.append((delivery.message_id, delivery.payload))

        wrote = [each for some in pool.map(work, range(THREADS)) for each in some]
        taken = [each for some in pool.map(take, range(THREADS)) for each in some]
        assert Counter(taken) == Counter(wrote)
        assert len(wrote) == THREADS * 6
        assert queue.stats().acked == len(wrote)


def test_first_calls_of_many_threads_at_once_create_one_queue(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client, ThreadPoolExecutor(32) as pool:
        queue = client.queue(queue_name, streams=8)
        begin = threading.Barrier(32)

        def work(number: int) -> str:
            begin.wait()
            return queue.write(number, shard_key=f"t{number}")

        assert len(set(pool.map(work, range(32)))) == 32
        assert queue.len() == 32


def child(work: object) -> str:
    """What *work* returns in a fork, as text."""
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = "nothing"
        try:
            answer = str(work())  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - told to the parent
            answer = f"{type(error).__name__}: {error}"
        finally:
            os.write(sink, answer.encode())
            os._exit(0)
    os.close(sink)
    with os.fdopen(source) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_client_is_usable_on_both_sides_of_a_fork_and_they_share_no_lane(server: Server, queue_name: str) -> None:
    """A sequence of its own: a shared one would take the child's write for a repetition of the parent's."""
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, streams=4)
        ids: list[str] = [queue.write("before", shard_key="tenant")]
        ids.append(child(lambda: queue.write("in the child", shard_key="tenant")))
        ids.append(queue.write("after", shard_key="tenant"))
        ids.append(child(lambda: queue.write("in another child", shard_key="tenant")))
        found = {delivery.message_id: delivery.payload for delivery in queue.read_many(10)}
        assert [found[each] for each in ids] == ["before", "in the child", "after", "in another child"]
        assert child(lambda: [delivery.payload for delivery in queue.read_many(10)]) == "[]"
        queue.write("for a child", shard_key="tenant")
        assert child(lambda: queue.read(block=20).payload) == "for a child"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_asynchronous_client_says_that_it_was_forked(server: Server, queue_name: str) -> None:
    async def work() -> str:
        async with AsyncClient.from_url(server.url) as client:
            queue = client.queue(queue_name, create=True)
            await queue.write("work", shard_key="tenant")
            return child(lambda: _driven(queue.len()))

    assert asyncio.run(work()).startswith("ClosedError")


def _driven(work: object) -> str:
    with asyncio.Runner() as runner:  # the child has no running loop of its own
        asyncio._set_running_loop(None)
        return str(runner.run(work))  # type: ignore[arg-type]


def test_an_asynchronous_client_says_that_it_belongs_to_another_loop(server: Server, queue_name: str) -> None:
    client = AsyncClient.from_url(server.url)
    queue = client.queue(queue_name, create=True)

    async def first() -> None:
        await queue.write("work", shard_key="tenant")
        await client._driver.aclose()

    asyncio.run(first())
    with pytest.raises(ClosedError, match="another event loop"):
        asyncio.run(queue.len())


async def test_a_closed_client_says_so(server: Server, queue_name: str) -> None:
    client, other = Client.from_url(server.url), AsyncClient.from_url(server.url)
    queue, queue_ = client.queue(queue_name, create=True), other.queue(queue_name, create=True)
    queue.len()
    await queue_.len()
    for _ in range(2):
        client.close()
        await other.aclose()
    with pytest.raises(ClosedError):
        queue.len()
    with pytest.raises(ClosedError):
        await queue_.len()
