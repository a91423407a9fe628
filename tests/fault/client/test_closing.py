"""close() beside threads that wait and threads that begin: no connection is left open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import pytest

from shardq import AsyncClient, AsyncQueue, Client, ClosedError, Queue, ShardqError
from tests.servers import Server
from tests.waiting import eventually

Left: TypeAlias = Callable[[], set[bytes]]
THREADS = 5
CLIENTS = 20


def connections(server: Server) -> set[bytes]:
    """The connections of shardq's clients that the server has, by number."""
    lines = server.run("CLIENT", "LIST").splitlines()
    return {line.split()[0] for line in lines if b" name=shardq-" in line}


@pytest.fixture
def left(server: Server) -> Left:
    """Tells which of the connections there are that this test's clients made."""
    others = connections(server)
    return lambda: connections(server) - others


def blocked(queue: Queue, begun: threading.Barrier) -> str:
    """How a read ends that waits, while its client is closed."""
    begun.wait(60)
    try:
        return str(queue.read_many(1, block=120))
    except ShardqError as error:
        return type(error).__name__


def test_close_beside_blocked_threads_leaves_no_connection(server: Server, left: Left, queue_name: str) -> None:
    with ThreadPoolExecutor(CLIENTS * THREADS) as pool:
        clients = [Client.from_url(server.url) for _ in range(CLIENTS)]
        begun = threading.Barrier(CLIENTS * THREADS + 1)
        readers = [
            pool.submit(blocked, client.queue(f"{queue_name}.{n}", create=True), begun)
            for client in clients
            for n in range(THREADS)
        ]
        begun.wait(60)
        for client in clients:  # some have only begun to connect, others wait already
            client.close()
        assert {reader.result(60) for reader in readers} == {"ClosedError"}
        eventually(lambda: not left(), what="no connection is left")


def test_close_ends_what_waits_at_once(server: Server, left: Left, queue_name: str) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        client = Client.from_url(server.url)
        begun = threading.Barrier(THREADS + 1)
        readers = [pool.submit(blocked, client.queue(queue_name, create=True), begun) for _ in range(THREADS)]
        begun.wait(60)
        eventually(lambda: server.info("clients")["blocked_clients"] == 1, what="they wait")
        client.close()
        assert {reader.result(60) for reader in readers} == {"ClosedError"}
        eventually(lambda: not left(), what="no connection is left")
        with pytest.raises(ClosedError):
            client.queue(queue_name, create=True).len()


def test_close_beside_threads_that_write_leaves_no_connection(server: Server, left: Left, queue_name: str) -> None:
    def write(queue: Queue) -> str:
        while True:
            try:
                queue.write("work", shard_key="tenant")
            except ShardqError as error:
                return type(error).__name__

    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(5):
            client = Client.from_url(server.url)
            # Writers of one queue share calls, and so a connection: each of these has a queue of its own.
            writers = [pool.submit(write, client.queue(f"{queue_name}.{n}", create=True)) for n in range(CLIENTS)]
            eventually(lambda: len(left()) > 1, what="they write")
            client.close()
            assert {writer.result(60) for writer in writers} <= {"ClosedError", "OutcomeUnknown", "BackendTimeout"}
            eventually(lambda: not left(), what="no connection is left")


async def test_aclose_beside_tasks_that_wait_and_write_leaves_no_connection(
    server: Server, left: Left, queue_name: str
) -> None:
    async def write(queue: AsyncQueue) -> str:
        while True:
            try:
                await queue.write("work", shard_key="tenant")
            except ShardqError as error:
                return type(error).__name__

    async def read(queue: AsyncQueue) -> str:
        try:
            return str(await queue.read_many(1, block=120))
        except ShardqError as error:
            return type(error).__name__

    for _ in range(5):
        client = AsyncClient.from_url(server.url)
        tasks = [asyncio.ensure_future(write(client.queue(queue_name, create=True))) for _ in range(CLIENTS)]
        tasks += [asyncio.ensure_future(read(client.queue(f"{queue_name}.idle", create=True))) for _ in range(THREADS)]
        await asyncio.to_thread(eventually, lambda: len(left()) > 1 and server.info("clients")["blocked_clients"])
        await client.aclose()
        ends = {await asyncio.wait_for(task, 60) for task in tasks}
        assert ends <= {"ClosedError", "OutcomeUnknown", "BackendTimeout"}
        await asyncio.to_thread(eventually, lambda: not left(), what="no connection is left")
