"""A node that hangs or dies costs the partitions of other nodes nothing, and what it had comes when it is back."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shardq import AsyncClient, Client, Empty, Queue
from shardq.cli import main
from shardq.partitions.homes import home
from tests.servers import Cluster, Server
from tests.waiting import eventually

pytestmark = pytest.mark.runs_in("test-all")

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}
SETTINGS: dict[str, Any] = {"partitions": PARTITIONS, "streams": 4, "streams_per_shard": 2}
ROUNDS = 40
SOON = 60.0


@pytest.fixture
def patient_cluster() -> Iterator[Cluster]:
    """A cluster of which the rest serves for as long as a test takes while a node does not answer."""
    with Cluster(node_timeout=120_000) as cluster:
        for node in cluster.nodes:
            node.run("CONFIG", "SET", "cluster-require-full-coverage", "no")
        cluster.wait_ok()
        yield cluster


@pytest.fixture
def queue(patient_cluster: Cluster) -> Iterator[Queue]:
    """A queue with a partition on each node, which its client has read."""
    with Client.from_url(patient_cluster.url) as client:
        queue = client.queue("jobs", **SETTINGS)
        queue.declare()
        for number in range(PARTITIONS):
            queue.write(number, shard_key=TENANTS[number])
        for _ in range(PARTITIONS):
            queue.read(block=SOON).ack()
        yield queue


def node_of(cluster: Cluster, queue: Any, number: int) -> Server:
    """The node that has this partition."""
    return cluster.nodes[cluster.owner(cluster.slot_of(queue.state.parts.states[number].keys.meta))]


def asks_all(queue: Any) -> None:
    """Let the next read not look first: of what nobody knows, a large one asks all partitions."""
    queue.state.parts.turns._looked_at = math.inf


def late_threads() -> int:
    return sum(1 for each in threading.enumerate() if each.name.startswith(("shardq-late", "shardq-exchange")))


@pytest.mark.parametrize("how", ["hung", "dead"])
def test_the_others_go_on_while_a_node_does_not_answer(patient_cluster: Cluster, queue: Queue, how: str) -> None:
    """All of this is done before the node is back; what is in the background meanwhile is bounded."""
    node = node_of(patient_cluster, queue, 1)
    if how == "hung":
        node.pause()
    else:
        node.kill9()
    assert (queue.tenant(TENANTS[0]).backlog, queue.tenant(TENANTS[2]).backlog) == (0, 0)
    for number in range(ROUNDS):
        for at in (0, 2):
            queue.write((at, number), shard_key=TENANTS[at])
        found = [queue.read(), *queue.read_many(1)]
        assert sorted(each.payload[1] for each in found) == [number, number]
        assert {each.partition for each in found} == {0, 2}  # type: ignore[attr-defined]
        found[0].ack()
        assert queue.ack_many(found[1:]) == []
        assert late_threads() <= PARTITIONS
    for block in (0.0, 0.1):
        with pytest.raises(Empty, match="1 did not answer") as empty:
            queue.read(block=block)
        assert empty.value.unreachable == (1,)
    if how == "hung":
        node.resume()
    else:
        node.start()
        patient_cluster.wait_ok()
        return  # what it had was in memory
    queue.write("back", shard_key=TENANTS[1])
    assert queue.read(block=SOON).payload == "back"
    eventually(lambda: _is_empty(queue), SOON)


def _is_empty(queue: Queue) -> bool:
    with pytest.raises(Empty) as empty:
        queue.read()
    return empty.value.unreachable == ()


def test_what_comes_late_is_the_next_readers_or_goes_back(patient_cluster: Cluster, queue: Queue) -> None:
    """The node hangs while a read of all partitions is made, and is back after others have brought something."""
    node = node_of(patient_cluster, queue, 1)
    queue.write_many([(number, TENANTS[number % PARTITIONS]) for number in range(30)])
    node.pause()
    found = queue.read_many(30)
    assert {each.payload % PARTITIONS for each in found} == {0, 2}
    queue.ack_many(found)
    node.resume()
    while len(found) < 30:
        some = queue.read_many(30, block=SOON)
        queue.ack_many(some)
        found += some
    assert sorted(each.payload for each in found) == list(range(30))
    assert {each.count for each in found} == {1}
    assert queue.len() == 0


def test_a_reader_that_has_nothing_waits_for_what_is_late(patient_cluster: Cluster, queue: Queue) -> None:
    node = node_of(patient_cluster, queue, 1)
    queue.write("slow", shard_key=TENANTS[1])
    node.pause()
    timer = threading.Timer(1.0, node.resume)
    timer.start()
    delivery = queue.read()
    assert (delivery.payload, delivery.count) == ("slow", 1)
    delivery.ack()
    timer.join()


def test_nobody_wants_what_came_late_so_it_goes_back(patient_cluster: Cluster, queue: Queue) -> None:
    node = node_of(patient_cluster, queue, 1)
    queue.write_many([("here", TENANTS[0]), ("late", TENANTS[1])])
    asks_all(queue)
    node.pause()
    assert [each.payload for each in queue.read_many(30)] == ["here"]
    node.resume()
    with Client.from_url(patient_cluster.url) as other:
        delivery = other.queue("jobs", **SETTINGS).read(block=SOON)
        assert (delivery.payload, delivery.count) == ("late", 1)


def test_a_client_that_is_closed_gives_back_what_came_late(patient_cluster: Cluster, queue: Queue) -> None:
    node = node_of(patient_cluster, queue, 1)
    queue.write_many([("here", TENANTS[0]), ("late", TENANTS[1])])
    with Client.from_url(patient_cluster.url) as other:
        jobs: Any = other.queue("jobs", **SETTINGS)
        jobs.len()
        asks_all(jobs)
        node.pause()
        assert [each.payload for each in jobs.read_many(30)] == ["here"]
        node.resume()
        eventually(lambda: bool(jobs.state.parts.held), SOON)
    delivery = queue.read()
    assert (delivery.payload, delivery.count) == ("late", 1)


async def test_tasks_go_on_while_a_node_hangs(patient_cluster: Cluster, queue: Queue) -> None:
    node = node_of(patient_cluster, queue, 1)
    async with AsyncClient.from_url(patient_cluster.url) as client:
        jobs: Any = client.queue("jobs", **SETTINGS)
        await jobs.write_many([(number, TENANTS[number % PARTITIONS]) for number in range(3)])
        for _ in range(3):
            await (await jobs.read()).ack()
        await jobs.write("late", shard_key=TENANTS[1])
        node.pause()
        for number in range(ROUNDS):
            await jobs.write_many([(number, TENANTS[at]) for at in (0, 2)])
            await asyncio.gather(*[_read_and_ack(jobs) for _ in range(2)])
            assert len(client._stands) <= 4 * PARTITIONS
        ended = await asyncio.gather(*[jobs.read(block=0.3) for _ in range(4)], return_exceptions=True)
        assert [getattr(each, "unreachable", None) for each in ended] == [(1,)] * 4
        for pause in (0.0, 0.01, 0.1):
            read = asyncio.create_task(jobs.read(block=SOON))
            await asyncio.sleep(pause)
            read.cancel()
            await asyncio.gather(read, return_exceptions=True)
        node.resume()
        delivery = await jobs.read(block=SOON)
        assert (delivery.payload, delivery.count) == ("late", 1)
        await delivery.ack()
        assert await jobs.len() == 0


async def _read_and_ack(jobs: Any) -> None:
    await (await jobs.read(block=SOON)).ack()


def test_doctor_says_which_partitions_do_not_answer(
    patient_cluster: Cluster, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    node = node_of(patient_cluster, queue, 1)
    node.pause()
    others = [each for each in patient_cluster.nodes if each is not node]
    url = f"redis+cluster://127.0.0.1:{others[0].port}"
    assert main(["--url", url, "--timeout", "3", "server", "doctor", "jobs"]) == 1
    node.resume()
    assert "partitions:jobs: 1 partition of it did not answer: 1." in capsys.readouterr().out
