"""A wait is ended on the server that it is on: on another, the connection's number is a stranger's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import Client
from shardq.ops.queue.steps import Armed
from shardq.ops.read import pump
from shardq.protocol.keys import slot
from tests.clients import CLIENT_KINDS, opened
from tests.servers import Cluster, Server, ServerKind
from tests.waiting import eventually

SOON = 20.0


def unblocks(server: Server) -> int:
    """How often a client ended the wait of a connection of *server*."""
    told: dict[str, Any] = server.info("commandstats").get("cmdstat_client|unblock", {})
    return int(told.get("calls", 0))


def waits(server: Server) -> Callable[[], bool]:
    """Whether a read waits on *server*."""
    return lambda: bool(server.info("clients")["blocked_clients"])


@pytest.fixture
def only_clients_end_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pump asks the server to end a wait at the same time at which it does so itself, and either may be first.

    Here the server would let it last for a minute.
    """

    def arm(key: str, count: int, block_ms: int, *rest: Any) -> Armed:
        return Armed(key, count, 60_000, *rest)

    monkeypatch.setattr(pump, "Armed", arm)


@pytest.mark.runs_in("test-all")
@pytest.mark.usefixtures("only_clients_end_waits")
@pytest.mark.parametrize("client_kind", CLIENT_KINDS)
def test_after_a_failover_a_wait_is_ended_on_the_node_that_it_is_on(
    cluster: Cluster, queue_name: str, client_kind: Any
) -> None:
    with opened(client_kind, cluster.url, timeout=30, wait_slice=5.0) as client, ThreadPoolExecutor(1) as pool:
        queue = client.queue(queue_name, create=True)
        assert queue.read_many(1) == []
        number = slot(queue.state.keys.meta)
        topology = client._driver._exchanges.topology
        assert topology is not None
        address = topology.owner(number)
        (owner,) = (node for node in cluster.members if node.address == address)
        other = next(node for node in cluster.members if node is not owner)
        before = unblocks(owner), unblocks(other)
        reading = pool.submit(queue.read_many, 1, block=4.0)  # on a busy machine it begins to wait later than at once
        eventually(lambda: waits(owner)() or reading.done(), what="a read that waits")
        assert not reading.done(), "it was over before it could wait"
        topology.moved(number, other.address)  # the client learnt of a new owner, while the old one has its wait
        assert reading.result(SOON) == []
        assert unblocks(owner) > before[0]
        assert unblocks(other) == before[1]


@pytest.mark.runs_in("test-all")
def test_a_server_that_took_the_place_of_another_is_not_asked_to_end_its_waits(
    kind: ServerKind, queue_name: str
) -> None:
    with (
        Server(kind, port=0) as first,
        Server(kind, port=0) as second,
        Client.from_url(first.url, wait_slice=1.0) as client,
        Client.from_url(second.url) as stranger,
        ThreadPoolExecutor(1) as pool,
    ):
        queue = client.queue(queue_name, create=True)
        assert queue.read_many(1) == stranger.queue(queue_name, create=True).read_many(1) == []
        reading = pool.submit(queue.read_many, 1, block=0.8)
        eventually(waits(first))
        client._driver._pools[None, False] = stranger._driver._pools[None, False]  # its name leads elsewhere now
        reading.result(SOON)
        assert unblocks(second) == 0
