"""The numbers of a queue with partitions are the sums of them, and each partition has a few of its own."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from shardq import AsyncClient, Client, Queue
from shardq.exporter import observe, watcher
from shardq.exporter.policy import Policy
from shardq.exporter.poller import FRESH_SECONDS, SLOW_FRESH_SECONDS, Poller
from shardq.exporter.queues import QueueSamples
from shardq.exporter.text import text_of
from shardq.exporter.watcher import Watchers
from shardq.model.stats import QueueStats
from shardq.partitions.homes import home
from shardq.telemetry.instruments import PARTITION_BACKLOG, PARTITION_DELIVERED, PARTITION_IN_FLIGHT, TENANT_BACKLOG
from shardq.testing import ManualClock
from tests.exporter.test_queues import numbers
from tests.exporter.test_text import families
from tests.servers import Server
from tests.telemetry.measuring import metrics_on, points

PARTITIONS = 3
TENANTS = [f"tenant-{number}" for number in range(12)]
HOMES = Counter(home(each, PARTITIONS) for each in TENANTS)


@pytest.fixture
def queue(client: Client) -> Queue:
    """A queue with two messages of each tenant, one of which is in flight."""
    queue = client.queue("jobs", partitions=PARTITIONS, streams=4)
    queue.write_many([(n, each) for each in TENANTS for n in range(2)])
    assert len(queue.read_many(len(TENANTS))) == len(TENANTS)
    return queue


def by_partition(samples: QueueSamples, name: str) -> dict[str, float]:
    return {each.labels["partition"]: each.value for each in families(text_of(samples.samples()))[name].samples}


def test_numbers_are_sums_and_partitions_have_theirs(queue: Queue, server: Server) -> None:
    with Client.from_url(server.url) as stranger:
        samples = QueueSamples(Poller(stranger), ["jobs"], tenants=20)
        found = numbers(samples)
        assert (found["shardq_queue_backlog"], found["shardq_queue_in_flight"]) == (12, 12)
        assert (found["shardq_queue_written_total"], found["shardq_queue_delivered_total"]) == (24, 12)
        whole = queue.stats()
        assert found["shardq_queue_runnable"] == whole.runnable
        in_flight = by_partition(samples, PARTITION_IN_FLIGHT.text)
        assert in_flight == by_partition(samples, "shardq_partition_delivered")
        assert sum(in_flight.values()) == 12
        backlog = by_partition(samples, PARTITION_BACKLOG.text)
        assert {each: backlog[each] + in_flight[each] for each in backlog} == {
            str(number): 2 * HOMES[number] for number in range(PARTITIONS)
        }
        tenants = families(text_of(samples.samples()))[TENANT_BACKLOG.text].samples
        assert {each.labels["tenant"]: each.value for each in tenants if each.value} == {
            str(each.shard_key): each.backlog for each in queue.tenants() if each.backlog
        }


def test_a_queue_without_partitions_has_no_numbers_of_any(client: Client, poller: Poller) -> None:
    client.queue("plain", streams=2).write("x", shard_key="a")
    assert not [each for each in QueueSamples(poller).samples() if "partition" in each.instrument.text]


def test_open_telemetry_has_them_too(queue: Queue, client: Client) -> None:
    with metrics_on() as reader, observe(client, ["jobs"]):
        found = {at["shardq.partition"]: point.value for at, point in points(reader, PARTITION_DELIVERED)}
    assert sum(found.values()) == 12
    assert sorted(found) == ["0", "1", "2"]


def test_each_partition_is_asked_once_a_second(
    queue: Queue, client: Client, clock: ManualClock, server: Server
) -> None:
    poller = Poller(client, clock=clock)
    poller.stats("jobs")
    with server.client() as raw:

        def asked() -> int:
            return int(raw.info("commandstats").get("cmdstat_fcall_ro", {"calls": 0})["calls"])

        for _ in range(3):
            clock.advance(FRESH_SECONDS)
            before = asked()
            for _ in range(5):
                assert poller.stats("jobs").backlog == 12
            assert asked() - before == PARTITIONS


def test_the_outlook_is_of_all_partitions(queue: Queue, client: Client, clock: ManualClock) -> None:
    poller = Poller(client, clock=clock)
    outlook = poller.outlook("jobs")
    assert outlook is not None
    assert (outlook.waits, outlook.is_read) == (12, True)
    assert {each.shard_key for each in outlook.tenants} <= set(TENANTS)
    clock.advance(SLOW_FRESH_SECONDS)
    queue.ack_many(queue.read_many(12))
    assert poller.numbers("jobs").load == 12


@pytest.mark.parametrize("number", range(PARTITIONS))
async def test_a_scaler_hears_at_once_of_what_comes_to_any_partition(
    server: Server, client: Client, poller: Poller, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LOOK_INTERVAL", 600.0)  # it does not look by itself
    queue = client.queue("jobs", partitions=PARTITIONS, streams=4)
    queue.declare()
    tenant = next(each for each in TENANTS if home(each, PARTITIONS) == number)

    async def ask(queue: str, *, early: bool = False) -> QueueStats:
        return await asyncio.to_thread(poller.stats, queue, early=early)

    async with AsyncClient.from_url(server.url) as waiting:
        watchers = Watchers(waiting, ask, poller.partitions)
        with watchers.listening("jobs", Policy("load", 5.0)) as listening:
            news = listening.news(60.0)
            assert await anext(news) is False
            await asyncio.to_thread(queue.write, "x", shard_key=tenant)
            assert await anext(news) is True
        await watchers.close()
