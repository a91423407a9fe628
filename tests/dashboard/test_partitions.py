"""The page tells of a queue with partitions as of any other, and changes it in all of them."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import AsyncIterator

import pytest

from shardq import Client, Limits, Queue
from shardq.dashboard.partitions import row_of
from shardq.model.partitions import Partition
from shardq.partitions.homes import home
from tests.dashboard import counter as at
from tests.dashboard.counter import Counter
from tests.dashboard.scenery import look_at
from tests.servers import Cluster, Server

pytestmark = pytest.mark.once
PARTITIONS = 3
TENANTS = [f"tenant-{number}" for number in range(12)]


@pytest.fixture
def mails(client: Client) -> Queue:
    """A queue with dead letters, messages that wait for their next try, in flight and in line in each partition."""
    queue = client.queue("mails", partitions=PARTITIONS, streams=4, journal=1000)
    queue.write_many([(n, each) for each in TENANTS for n in range(4)])
    for each in queue.read_many(100):
        if each.payload == 0:
            each.reject("broken")
        elif each.payload == 1:
            each.nack(delay=600, error="later")
        elif each.payload == 2:
            each.nack()
    return queue


@pytest.fixture
async def counter(server: Server) -> AsyncIterator[Counter]:
    async with at.counter(server.url) as found:
        yield found


def test_screens_have_the_sums(server: Server, mails: Queue) -> None:
    now = mails.stats()
    found = look_at(server.url, "queue", "mails")
    assert (now.dead, now.delayed, now.in_flight) == (12, 12, 12)
    figures = found["figures"]
    assert (figures["waiting"], figures["in_flight"], figures["dead"]) == (now.backlog, 12, 12)
    each = {row["number"]: row["waiting"] + row["in_flight"] for row in found["partitions"]}
    assert each == {number: 2 * count for number, count in Counts(home(name, PARTITIONS) for name in TENANTS).items()}
    assert not any(row["draining"] for row in found["partitions"])
    tenants = look_at(server.url, "tenants", "mails")
    assert {row["name"] for row in tenants["rows"]} == set(TENANTS)
    assert sum(row["dead"] for row in look_at(server.url, "failures", "mails")["groups"]) == 12
    assert look_at(server.url, "overview")["queues"][0]["waiting"] == now.backlog
    for name in TENANTS:
        assert look_at(server.url, "tenant", "mails", name)["figures"]["waiting"] == 1


def test_a_queue_without_partitions_tells_of_none(server: Server, client: Client) -> None:
    client.queue("plain", streams=1).write("x", shard_key="a")
    assert look_at(server.url, "queue", "plain")["partitions"] == []


def test_each_partition_has_its_node(cluster: Cluster) -> None:
    with Client.from_url(cluster.url) as client:
        queue = client.queue("spread", partitions=PARTITIONS, streams=2)
        queue.write_many([("x", each) for each in TENANTS])
        rows = look_at(cluster.url, "queue", "spread")["partitions"]
        assert [row["node"] for row in rows] == [each.node for each in queue.partitions()]
    assert len({row["node"] for row in rows}) == PARTITIONS
    assert not any(row["silent"] for row in rows)


def test_a_partition_that_does_not_answer_has_no_numbers() -> None:
    row = row_of(Partition(2, "10.0.0.3:6379", True, None))
    assert (row["silent"], row["draining"], row["waiting"], row["in_flight"]) == (True, False, None, None)


def test_a_message_is_found_in_any_partition(server: Server, mails: Queue) -> None:
    for each in mails.dead():
        found = look_at(server.url, "message", "mails", each.message_id)
        assert (found["id"], found["state"], found["can_redrive"]) == (each.message_id, "dead", True)


async def test_a_pause_and_limits_are_set_in_all(counter: Counter, mails: Queue) -> None:
    jonas = counter.visitor()
    for tenant in TENANTS[:6]:
        asked = await jonas.ask("pause", queue="mails", shard_key=tenant, seconds="900")
        await jonas.act("pause", asked["ticket"], note="x")
    assert set(mails.paused()) == set(TENANTS[:6])
    assert {each.shard_key for each in mails.read_many(100)} == set(TENANTS[6:])
    for tenant in TENANTS[:6]:
        asked = await jonas.ask("resume", queue="mails", shard_key=tenant)
        await jonas.act("resume", asked["ticket"])
    asked = await jonas.ask("limit", queue="mails", shard_key=TENANTS[0], max_in_flight="7", seconds="")
    await jonas.act("limit", asked["ticket"])
    assert mails.limits() == {TENANTS[0]: Limits(max_in_flight=7)}


async def test_dead_letters_of_all_partitions_go_back_by_one_action(counter: Counter, mails: Queue) -> None:
    jonas = counter.visitor()
    asked = await jonas.ask("redrive", queue="mails")
    assert "12 dead letters" in asked["title"] + asked.text
    for each in mails.read_many(100):
        each.reject("came after the dialog was opened")
    beside = mails.stats().dead - 12
    done = await jonas.act("redrive", asked["ticket"])
    assert done.status == 200
    await counter.handles.quiet()
    assert beside > 0
    assert (mails.stats().dead, [each.done for each in mails.actions()]) == (beside, [12])


async def test_one_message_of_any_partition_is_tried_at_once(counter: Counter, mails: Queue) -> None:
    jonas = counter.visitor()
    retrying = mails.peek(500, state="delayed").messages
    assert {home(each.shard_key, PARTITIONS) for each in retrying} == {0, 1, 2}
    for each in retrying:
        asked = await jonas.ask("retry_now", queue="mails", message_id=each.message_id)
        await jonas.act("retry_now", asked["ticket"])
    assert mails.stats().delayed == 0
