"""A batch to several nodes goes to all of them at once, and none of them costs the others their answers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import hiredis
import pytest

from shardq import AsyncClient, Client
from shardq.clock import SystemClock
from shardq.drivers import AsyncDriver, Driver, Target
from shardq.ops.queue.steps import Batch, Call, Unanswered
from shardq.protocol.keys import QueueKeys, slot
from shardq.timing import LoopTimer
from tests.servers import Cluster

NODES = 3
SOON = 15.0
CALLS = tuple([Call.on(QueueKeys(f"batch-{number}"), "len") for number in range(NODES)])


class Node:
    """A node of a cluster that answers its *number* to each call, or nothing if it is *mute*.

    The batch it answers once *all_asked* says that the others were asked, too.
    """

    def __init__(self, number: int, all_asked: threading.Barrier, *, mute: bool) -> None:
        self._number, self._all_asked, self._mute = number, all_asked, mute
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ours: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """End all threads."""
        for each in [self._listener, *self._ours]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SOON)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._ours.append(connection)
                self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        more = object()
        reader = hiredis.Reader(notEnoughData=more)
        with connection, suppress(OSError, threading.BrokenBarrierError):
            while raw := connection.recv(65536):
                reader.feed(raw)
                while (words := reader.gets()) is not more:
                    if not words[0].startswith(b"FCALL"):
                        connection.sendall(b"+OK\r\n")
                        continue
                    if not self._mute:
                        if words[0] == b"FCALL_RO":
                            self._all_asked.wait(SOON)
                        connection.sendall(b":%d\r\n" % self._number)


@pytest.fixture
def play() -> Iterator[Callable[..., list[Node]]]:
    """Makes the nodes, which end with the test; so many of them answer, and those of these numbers are mute."""
    made: list[Node] = []
    barriers: list[threading.Barrier] = []

    def make(*mute: int, answer: int = NODES) -> list[Node]:
        barriers.append(threading.Barrier(answer))
        made.extend([Node(number, barriers[-1], mute=number in mute) for number in range(NODES)])
        return made

    yield make
    for barrier in barriers:
        barrier.abort()
    for each in made:
        each.close()


def target(nodes: list[Node]) -> Target:
    """The cluster of these nodes."""
    return Target.parse(f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in nodes)}")


def know(driver: Any, nodes: list[Node]) -> None:
    """Tell *driver* which node has which queue."""
    for call, node in zip(CALLS, nodes, strict=True):
        driver._exchanges.topology.moved(slot(call.key), ("127.0.0.1", node.port))


def batch(seconds: float = SOON) -> Batch:
    """A call of each node, whose caller has so many seconds."""
    return Batch(CALLS, SystemClock().monotonic() + seconds)


def alone(number: int) -> Call:
    """A call of one node, which answers it at once: it makes a connection."""
    call = Call.on(QueueKeys(f"batch-{number}"), "read", ("1 holder", "", "here"))
    call.until = SystemClock().monotonic() + SOON
    return call


@pytest.fixture(params=["threads", "asyncio"])
def ask(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """Connects to all nodes but those that are mute, then makes a batch with a driver of this kind; its outcomes."""
    return _ask if request.param == "threads" else _ask_async


def _ask(nodes: list[Node], seconds: float = SOON, mute: tuple[int, ...] = ()) -> list[Any]:
    driver = Driver(target(nodes), max_connections=4, block=1)
    know(driver, nodes)
    try:
        for number in range(NODES):
            if number not in mute:
                driver.call(alone(number))
        return list(driver.attempt(batch(seconds)))
    finally:
        driver.close()


def _ask_async(nodes: list[Node], seconds: float = SOON, mute: tuple[int, ...] = ()) -> list[Any]:
    async def run() -> list[Any]:
        driver = AsyncDriver(target(nodes), max_connections=4, block=1, timer=LoopTimer(asyncio.get_running_loop()))
        know(driver, nodes)
        try:
            for number in range(NODES):
                if number not in mute:
                    await driver.call(alone(number))
            return list(await driver.attempt(batch(seconds)))
        finally:
            await driver.aclose()

    return asyncio.run(run())


def said(outcome: Any) -> Any:
    """A reply as it is, a failure in short."""
    return ("lost", outcome.sent) if isinstance(outcome, Unanswered) else outcome


def test_all_nodes_are_asked_before_any_answer_is_waited_for(
    play: Callable[..., list[Node]], ask: Callable[..., list[Any]]
) -> None:
    assert ask(play()) == [0, 1, 2]


@pytest.mark.parametrize("mute", range(NODES))
def test_a_node_that_hangs_has_no_answer_and_the_others_have_theirs(
    play: Callable[..., list[Node]], ask: Callable[..., list[Any]], mute: int
) -> None:
    outcomes = [said(each) for each in ask(play(mute, answer=2), 1.0, (mute,))]
    assert outcomes == [("lost", True) if number == mute else number for number in range(NODES)]


def test_a_node_that_is_gone_was_sent_nothing(play: Callable[..., list[Node]], ask: Callable[..., list[Any]]) -> None:
    nodes = play(answer=2)
    nodes[1].close()
    assert [said(each) for each in ask(nodes, SOON, (1,))] == [0, ("lost", False), 2]


@pytest.mark.everywhere
def test_queues_of_all_nodes_answer_one_batch(cluster: Cluster, queue_name: str) -> None:
    """Whether the client knows their nodes or learns them by the batch."""
    names = [f"{queue_name}.{number}" for number in range(8)]
    until = SystemClock().monotonic() + SOON
    wanted = Batch(tuple([Call.on(QueueKeys(name), "len") for name in names]), until)
    with Client.from_url(cluster.url) as client:
        for number, name in enumerate(names):
            client.queue(name, create=True).write_many([(n, "tenant") for n in range(number + 1)])
        assert client._driver.attempt(wanted) == [*range(1, 9)]
    with Client.from_url(cluster.url) as client:
        assert client._driver.attempt(wanted) == [*range(1, 9)]

    async def run() -> list[Any]:
        async with AsyncClient.from_url(cluster.url) as client:
            return [await client._driver.attempt(wanted) for _ in range(2)]

    assert asyncio.run(run()) == [[*range(1, 9)]] * 2
