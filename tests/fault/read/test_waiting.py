"""Blocked reads that share one connection: how many there are, who gets what, and that nothing is lost on the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import AsyncClient, AsyncQueue, Client, ClosedError, Delivery, Empty, Queue
from shardq.client import base
from shardq.ops.read.waiting import waiting_of
from tests.fault.conftest import Open
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server
from tests.waiting import eventually

SOON = 15.0  # far below the lease time of 30 s
PROMPT = 0.2  # on a `drowsy` server what waits for its tick comes with the next one: up to a second late


@pytest.fixture
def drowsy(server: Server) -> None:
    """It looks only each second whether a wait is over."""
    server.run("CONFIG", "SET", "hz", 1)


def prompt(late: list[float]) -> bool:
    """Whether several were, which waiting for a tick never is twice in a row; a busy machine makes single ones late."""
    return sorted(late)[2] < PROMPT


def blocking(server: Server) -> int:
    """How many connections readers block on."""
    with server.client() as plain:
        return sum(1 for each in plain.client_list() if each["name"].startswith("shardq-read"))


def waiting(queue: Queue | AsyncQueue) -> int:
    """How many readers of this client wait on the queue."""
    return len(waiting_of(queue.state).waiters())


async def wait_until(condition: Callable[[], object]) -> None:
    """As `eventually`, with the loop running."""
    await asyncio.to_thread(eventually, condition)


@pytest.mark.once
def test_two_hundred_threads_that_wait_on_a_queue_share_a_connection(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client, ThreadPoolExecutor(200) as pool:
        queue = client.queue(queue_name, create=True)
        reading = [pool.submit(queue.read, block=30) for _ in range(200)]
        eventually(lambda: waiting(queue) == 200)
        assert blocking(server) == 1
        ids = queue.write_many([(n, f"t{n}") for n in range(200)])
        found = [each.result(SOON) for each in reading]
        assert sorted(each.message_id for each in found) == sorted(ids)
        assert {each.count for each in found} == {1}
        assert blocking(server) == 1


@pytest.mark.runs_in("test-all")
@pytest.mark.once
async def test_five_thousand_coroutines_on_fifty_queues_share_fifty_connections(
    server: Server, queue_name: str
) -> None:
    """And each message wakes one reader."""
    async with AsyncClient.from_url(server.url, timeout=60) as client:
        queues = [client.queue(f"{queue_name}.{n}", streams=4) for n in range(50)]
        reading = {}
        for queue in queues:  # one after the other: 5000 first looks at once need the pool for longer than it waits
            reading[queue] = [asyncio.ensure_future(queue.read(block=60)) for _ in range(100)]
            await wait_until(lambda queue=queue: waiting(queue) == 100)  # type: ignore[misc]
        assert blocking(server) <= 50
        for number in range(3):
            for queue in queues:
                await queue.write(number, shard_key="t")
            await wait_until(lambda number=number: all(waiting(queue) <= 99 - number for queue in queues))  # type: ignore[misc]
            assert [waiting(queue) for queue in queues] == [99 - number] * 50
        assert blocking(server) <= 50
        for queue in queues:
            await queue.write_many([(number, "t") for number in range(97)])
        for tasks in reading.values():
            found = await asyncio.gather(*tasks)
            assert len({each.message_id for each in found}) == 100
            assert {each.count for each in found} == {1}


@pytest.mark.everywhere
def test_who_came_first_is_served_first(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client, ThreadPoolExecutor(8) as pool:
        queue = client.queue(queue_name, create=True)
        reading = []
        for number in range(8):
            reading.append(pool.submit(queue.read, block=30))
            eventually(lambda number=number: waiting(queue) == number + 1)  # type: ignore[misc]
        for number in range(8):
            queue.write(number, shard_key="t")
            assert reading[number].result(SOON).payload == number


@pytest.mark.everywhere
@pytest.mark.runs_in("test-all")
def test_a_leader_that_leaves_hands_over_what_it_waits_on(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url, wait_slice=0.4) as client, ThreadPoolExecutor(2) as pool:
        queue = client.queue(queue_name, create=True)
        first = pool.submit(queue.read, block=2.5)
        eventually(lambda: waiting(queue) == 1)
        second = pool.submit(queue.read, block=30)
        eventually(lambda: waiting(queue) == 2)
        server.run("CONFIG", "RESETSTAT")
        with pytest.raises(Empty):
            first.result(SOON)
        assert waiting(queue) == 1
        queue.write("work", shard_key="t")
        assert second.result(SOON).payload == "work"
        assert server.info("stats")["total_connections_received"] <= 3  # of this test itself, and for the write
        assert "cmdstat_client|unblock" not in server.info("commandstats")


@pytest.mark.usefixtures("drowsy")
def test_empty_is_never_early_and_late_by_little(server: Server, open_client: Open, queue_name: str) -> None:
    queue = open_client(server.url).queue(queue_name, create=True)
    queue.read_many(1)
    late = []
    for _ in range(7):
        begun = time.monotonic()
        assert queue.read_many(1, block=0.13) == []
        late.append(time.monotonic() - begun - 0.13)
    assert min(late) > -0.002
    assert prompt(late)


@pytest.mark.runs_in("test-all")
@pytest.mark.usefixtures("drowsy")
def test_what_comes_due_is_handed_out_when_it_does(server: Server, open_client: Open, queue_name: str) -> None:
    queue = open_client(server.url).queue(queue_name, create=True)
    late = []
    for _ in range(7):
        queue.write("later", shard_key="t", delay=0.13)
        delivery = queue.read(block=SOON)
        late.append(delivery.pickup_delay)
        delivery.ack()
    assert prompt(late)


@pytest.mark.usefixtures("drowsy")
def test_a_lease_that_ends_is_handed_on_when_it_does(server: Server, open_client: Open, queue_name: str) -> None:
    queue = open_client(server.url).queue(queue_name, create=True)
    queue.write("work", shard_key="t")
    delivery, late = queue.read(visibility_timeout=0.13), []
    for _ in range(7):
        earlier, delivery = delivery, queue.read(block=SOON, visibility_timeout=0.13)
        late.append(-earlier.remaining)  # by its holder's own reckoning: the reply may have taken its time
    assert min(late) >= 0
    assert prompt(late)


@pytest.mark.runs_in("test-all")
@pytest.mark.usefixtures("drowsy")
def test_what_comes_due_wakes_who_blocked_before_it_was_written(
    server: Server, open_client: Open, queue_name: str
) -> None:
    queue, other = (open_client(server.url).queue(queue_name, create=True) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        late = []
        for _ in range(7):
            reading = pool.submit(queue.read, block=SOON)
            eventually(lambda: waiting(queue) == 1)
            other.write("later", shard_key="t", delay=0.13)
            late.append(reading.result().pickup_delay)
        assert prompt(late)


@pytest.mark.parametrize("called", [0, 1], ids=["the leader", "a follower"])
def test_a_thread_that_waits_can_be_called_back_and_the_others_wait_on(
    server: Server, queue_name: str, called: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MAX_SLICE", 60)  # no wait ends by itself
    threads: list[int] = []

    def read(queue: Queue) -> list[Delivery]:
        threads.append(threading.get_ident())
        return queue.read_many(1, block=60)

    with Client.from_url(server.url, wait_slice=60) as client, ThreadPoolExecutor(2) as pool:
        queue = client.queue(queue_name, create=True)
        reading = []
        for number in range(2):
            reading.append(pool.submit(read, queue))
            eventually(lambda number=number: waiting(queue) == number + 1)  # type: ignore[misc]
        eventually(lambda: server.info("clients")["blocked_clients"] == 1)  # before, the leader can leave by itself
        server.run("CONFIG", "RESETSTAT")

        def back() -> bool:
            client._driver.recall(threads[called])
            return reading[called].done()

        eventually(back)
        assert reading[called].result() == []
        assert waiting(queue) == 1
        assert ("cmdstat_client|unblock" in server.info("commandstats")) == (called == 0)
        queue.write("work", shard_key="t")
        assert [each.payload for each in reading[1 - called].result(SOON)] == ["work"]
        client._driver.recall(threads[0])  # waits no more


def test_to_call_a_thread_back_while_the_client_is_closed_is_no_error(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that stops does so in a thread of its own, and nobody would hear of it."""
    with Client.from_url(server.url) as client, ThreadPoolExecutor(1) as pool:
        queue = client.queue(queue_name, create=True)
        reader = pool.submit(threading.get_ident).result()
        reading = pool.submit(queue.read_many, 1, block=60)
        eventually(lambda: server.info("clients")["blocked_clients"] == 1)
        unblock = client._driver.unblock

        def closed_before(pending: Any) -> None:
            client.close()
            unblock(pending)

        monkeypatch.setattr(client._driver, "unblock", closed_before)
        client.end_wait(reader)
        with pytest.raises(ClosedError):
            reading.result(SOON)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("denied", ["-client|id", "-client|unblock"])
def test_without_the_right_to_end_a_wait_it_ends_by_itself(
    server: Server, open_client: Open, queue_name: str, denied: str
) -> None:
    server.run("ACL", "SETUSER", "meek", "reset", "on", ">PASSWORD", "~*", "&*", "+@all", denied)
    try:
        queue = open_client(server.url.replace("unix://", "unix://meek:PASSWORD@")).queue(queue_name, create=True)
        queue.write("later", shard_key="t", delay=0.2)
        assert queue.read(block=SOON).pickup_delay < SOON
        begun = time.monotonic()
        assert queue.read_many(1, block=0.2) == []
        assert 0.2 <= time.monotonic() - begun < SOON
    finally:
        server.run("ACL", "DELUSER", "meek")


def test_a_message_whose_wake_up_and_reply_are_lost_comes_back_at_once_uncounted(
    server: Server, proxy: Proxy, open_client: Open, queue_name: str
) -> None:
    """The server ran the read that waited, and its reply went down with the connection."""
    queue = open_client(proxy.url).queue(queue_name, streams=4)
    queue.read_many(1)
    cut = proxy.cut_after_request(on_the_wire("read"), skip=1)  # the first look finds nothing
    with ThreadPoolExecutor(2) as pool, Client.from_url(server.url) as other:
        reading = [pool.submit(queue.read, block=2 * SOON)]
        eventually(lambda: waiting(queue) == 1 and server.info("clients")["blocked_clients"] == 1)
        reading.append(pool.submit(queue.read, block=2 * SOON))
        eventually(lambda: waiting(queue) == 2)
        others = other.queue(queue_name, create=True)
        ids = [others.write(n, shard_key="t") for n in range(2)]
        found = [each.result(SOON) for each in reading]
        assert sorted(each.message_id for each in found) == sorted(ids)
        assert {each.count for each in found} == {1}
    assert cut.struck.wait(SOON)


@pytest.mark.everywhere
def test_a_client_that_is_closed_ends_its_waits(server: Server, queue_name: str) -> None:
    client = Client.from_url(server.url)
    queue = client.queue(queue_name, create=True)
    with ThreadPoolExecutor(3) as pool:
        reading = [pool.submit(queue.read, block=30) for _ in range(3)]
        eventually(lambda: waiting(queue) == 3)
        client.close()
        for each in reading:
            with pytest.raises(ClosedError):
                each.result(SOON)


def test_a_client_that_is_closed_just_before_a_wait_is_sent_ends_it(server: Server, queue_name: str) -> None:
    client = Client.from_url(server.url)
    queue = client.queue(queue_name, create=True)
    queue.read_many(1)
    driver = client._driver
    arm = driver.arm

    def late(step: Any) -> Any:
        client.close()
        return arm(step)

    driver.arm = late  # type: ignore[method-assign]
    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(queue.read, block=30) for _ in range(3)]:
            with pytest.raises(ClosedError):
                each.result(SOON)
    eventually(lambda: blocking(server) == 0)


async def test_an_asyncio_client_that_is_closed_ends_its_waits(server: Server, queue_name: str) -> None:
    client = AsyncClient.from_url(server.url)
    queue = client.queue(queue_name, create=True)
    reading = [asyncio.ensure_future(queue.read(block=30)) for _ in range(3)]
    await wait_until(lambda: waiting(queue) == 3)
    await client.aclose()
    for each in reading:
        with pytest.raises(ClosedError):
            await asyncio.wait_for(each, SOON)
    await wait_until(lambda: blocking(server) == 0)


def test_a_fork_while_a_thread_waits_leaves_both_processes_able_to_wait(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client, ThreadPoolExecutor(1) as pool:
        queue = client.queue(queue_name, create=True)
        reading = pool.submit(queue.read, block=30)
        eventually(lambda: waiting(queue) == 1 and blocking(server) == 1)
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                os._exit(7 if queue.read(block=SOON, visibility_timeout=60).payload == "child's" else 1)
            os._exit(2)
        queue.write("parent's", shard_key="t")
        assert reading.result(SOON).payload == "parent's"
        queue.write("child's", shard_key="t")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


class Ledger:
    """What was written and what was handed out; every message once, to one reader, as its first delivery."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.taken: list[tuple[str, int]] = []

    def check(self) -> None:
        assert Counter(message_id for message_id, _ in self.taken) == Counter(self.written)
        assert {count for _, count in self.taken} == {1}


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_no_wake_up_is_lost_while_threads_come_and_go(server: Server, queue_name: str, rng: random.Random) -> None:
    """Two clients, 40 threads with waits of all lengths, writes one by one and in batches; leases outlast it all."""
    ledger, stop = Ledger(), threading.Event()
    seeds = [rng.random() for _ in range(42)]

    def read(queue: Queue, seed: float) -> None:
        dice = random.Random(seed)
        while not (stop.is_set() and len(ledger.taken) >= len(ledger.written)):
            lasts = dice.choice((120.0, 130.0))
            for each in queue.read_many(dice.choice((1, 1, 3)), block=dice.uniform(0, 0.05), visibility_timeout=lasts):
                ledger.taken.append((each.message_id, each.count))
                each.ack()

    def write(queue: Queue, seed: float) -> None:
        dice = random.Random(seed)
        for number in range(150):
            if dice.random() < 0.5:
                ledger.written.append(queue.write(number, shard_key=f"t{number}"))
            else:
                ledger.written += queue.write_many([(number, f"t{n}") for n in range(dice.randint(2, 9))])
            time.sleep(dice.expovariate(100))

    with (
        Client.from_url(server.url, timeout=30) as one,
        Client.from_url(server.url, timeout=30) as two,
        ThreadPoolExecutor(42) as pool,
    ):
        queues = [client.queue(queue_name, streams=8, visibility_timeout=120) for client in (one, two)]
        work = [pool.submit(read, queues[n % 2], seeds[n]) for n in range(40)]
        try:
            for each in [pool.submit(write, queues[n], seeds[40 + n]) for n in range(2)]:
                each.result(60)
        finally:
            stop.set()
        for each in work:
            each.result(60)  # less than a lease lasts: nothing was left with nobody
        ledger.check()
        assert queues[0].stats().in_flight == 0


@pytest.mark.runs_in("test-all")
@pytest.mark.once
async def test_no_message_is_lost_while_tasks_are_cancelled(
    server: Server, queue_name: str, rng: random.Random
) -> None:
    """Readers are cancelled at any moment, also in the tick in which their message arrives; leases outlast it all."""
    ledger, stop = Ledger(), asyncio.Event()

    async def read(queue: AsyncQueue) -> None:
        for each in await queue.read_many(rng.choice((1, 1, 3)), block=rng.uniform(0, 0.1)):
            ledger.taken.append((each.message_id, each.count))
            held.append(each)

    async def readers(queue: AsyncQueue) -> None:
        while not (stop.is_set() and len(ledger.taken) >= len(ledger.written)):
            task = asyncio.ensure_future(read(queue))
            if rng.random() < 0.5:
                asyncio.get_running_loop().call_later(rng.expovariate(50), task.cancel)
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    held: list[Any] = []
    async with (
        AsyncClient.from_url(server.url, timeout=30) as one,
        AsyncClient.from_url(server.url, timeout=30) as two,
    ):
        queues = [client.queue(queue_name, streams=8, visibility_timeout=120) for client in (one, two)]
        work = [asyncio.ensure_future(readers(queues[n % 2])) for n in range(30)]
        for number in range(400):
            ledger.written += await queues[0].write_many([(number, f"t{n}") for n in range(rng.choice((1, 1, 1, 5)))])
            await asyncio.sleep(rng.expovariate(300))
        stop.set()
        await asyncio.wait_for(asyncio.gather(*work), 60)
        ledger.check()
        assert await queues[0].ack_many(held) == []
        assert (await queues[0].stats()).in_flight == 0
