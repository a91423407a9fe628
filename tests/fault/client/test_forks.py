"""A child process shares nothing with its parent but the settings: no sequence, no leader, no connection, no lock."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from shardq import AsyncClient, Client, Queue
from shardq.ops.read.waiting import waiting_of
from shardq.routing import atomic
from shardq.routing.ctrie import Ctrie
from tests.fault.client.test_processes import child
from tests.servers import Server
from tests.waiting import eventually

SOON = 20.0

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def bounded(work: Any) -> Any:
    """*work* for a child that a lock of its parent would stop for ever."""

    def run() -> object:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        return work()

    return run


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client that is there on both sides of the forks."""
    with Client.from_url(server.url, timeout=60) as client:
        yield client


@pytest.fixture
def older(client: Client, queue_name: str) -> Queue:
    """A queue object that the client does not give out any more: another one, with other settings, took its place."""
    older = client.queue(queue_name, streams=4)
    older.write("known", shard_key="tenant")
    assert client.queue(queue_name, streams=4, visibility_timeout=60).state is not older.state
    return older


def test_every_queue_object_has_lanes_of_its_own_in_the_child(older: Queue) -> None:
    parents = older.state.producer
    ids = [child(bounded(lambda: older.write("the child's", shard_key="tenant")))]
    ids.append(older.write("the parent's", shard_key="tenant"))
    found = {each.message_id: each.payload for each in older.read_many(10)}
    assert [found.get(each) for each in ids] == ["the child's", "the parent's"]
    assert child(lambda: older.state.producer) not in (parents, "nothing")


def test_no_thread_of_the_parent_leads_in_the_child(server: Server, older: Queue) -> None:
    older.read().ack()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(older.read, block=120)
        eventually(lambda: b"cmd=xreadgroup" in server.run("CLIENT", "LIST"), what="a blocked read of the parent")
        assert child(bounded(lambda: older.read_many(1, block=0.5))) == "[]"
        older.write("work", shard_key="tenant")
        assert reading.result(SOON).payload == "work"


def test_an_ack_with_a_read_is_the_childs_own_after_the_parent_made_one(older: Queue) -> None:
    """The parent's link, and what it knows of the server's clock, are there at the fork."""
    older.write_many([(f"{number}", f"tenant-{number}") for number in range(4)])
    first = older.read(ack=older.read())

    def work() -> str:
        second = older.read(ack=first)
        return f"{second.payload} {older.read(ack=second).payload}"

    childs = child(bounded(work)).split()
    last = older.read(ack=first)  # the child has acked it, so this lease is lost
    assert len({first.payload, *childs, last.payload}) == 4
    assert (first.lost, older.stats().acked) == (True, 3)


def test_a_fork_of_a_fork_is_as_good(older: Queue) -> None:
    def grandchild() -> str:
        own = older.write("the child's", shard_key="tenant")
        return f"{own} {child(lambda: older.write('its child', shard_key='tenant'))}"

    ids = [*child(bounded(grandchild)).split(), older.write("the parent's", shard_key="tenant")]
    assert len({*ids}) == 3
    assert older.len() == 4


@contextmanager
def held(locks: list[Any]) -> Iterator[None]:
    """Another thread holds these locks."""
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            taken.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_lock_that_another_thread_holds_at_the_fork_is_free_in_the_child(client: Client, older: Queue) -> None:
    client.bind("a.*", older)
    driver, router = client._driver, client.router_state()
    links = [each._lock for each in driver._links.values()]
    waits = [waiting_of(older.state)._lock, driver._leading._purgatory._lock]

    def work() -> str:
        with Client.beside(client) as fresh:
            fresh.queue("another", create=True).len()
        client.publish("a.b", "published", shard_key="tenant")
        found = client.queue(older.name, create=True).read_many(10, block=SOON)
        assert Ctrie(form="lock").insert("a", "q")
        return ",".join(each.payload for each in found)

    with held([client._lock, router.lock, *links, *waits, atomic._lock]):
        assert child(bounded(work)) == "known,published"


async def test_an_asynchronous_client_that_a_child_closes_stays_open_in_the_parent(
    server: Server, queue_name: str
) -> None:
    async with AsyncClient.from_url(server.url) as client:
        queue = client.queue(queue_name, create=True)
        await queue.write("work", shard_key="tenant")

        def close() -> object:
            work = client.aclose()
            with pytest.raises(StopIteration):  # it does nothing that a loop would be needed for
                work.send(None)
            return "closed"

        assert child(bounded(close)) == "closed"
        assert await queue.len() == 1
        assert os.getpid() == client._pid
