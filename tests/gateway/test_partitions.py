"""A gateway stores each message of a queue with partitions in the home of its shard key, once, as in any queue."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shardq import AsyncClient
from shardq.partitions.homes import home
from shardq.protocol.ids import split
from tests.gateway.conftest import Start
from tests.gateway.producer import Producer, happened, request
from tests.gateway.test_storing import made

pytestmark = pytest.mark.once
PARTITIONS = 3
TENANTS = [f"tenant-{number}" for number in range(12)]
HOMES = [home(each, PARTITIONS) for each in TENANTS]


async def found(client: AsyncClient, name: str) -> list[Any]:
    """The deliveries of a queue, which is emptied."""
    queue, every = client.queue(name), list[Any]()
    while deliveries := await queue.read_many(100):
        every += deliveries
        await queue.ack_many(deliveries)
    return sorted(every, key=lambda each: int(each.body))


async def test_a_gateway_stores_each_message_in_its_home_once(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name, partitions=PARTITIONS)
    await redis_client.bind("news", queue_name)
    async with start() as (_, address), Producer(address) as producer:
        for _ in range(2):
            for number, tenant in enumerate(TENANTS):
                await producer.send(request(number, queue_name, key=tenant.encode()))
                await producer.send(request(100 + number, topic="news", key=tenant.encode()))
        await producer.until(lambda: len(producer.acked) == 4 * len(TENANTS))
    every = await found(redis_client, queue_name)
    assert [(int(each.body), each.shard_key, split(each.message_id)[1]) for each in every] == [
        (base + number, tenant, HOMES[number]) for base in (0, 100) for number, tenant in enumerate(TENANTS)
    ]


async def test_what_a_client_releases_is_forgotten_in_each_partition(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name, partitions=PARTITIONS)
    async with start() as (gateway, address), Producer(address) as producer:
        await producer.say(releases=True)
        for number, tenant in enumerate(TENANTS):
            await producer.send(request(number, queue_name, key=tenant.encode()))
        await producer.until(lambda: len(producer.acked) == len(TENANTS))
        await producer.say(released=[b"id-%d" % number for number in range(len(TENANTS))])
        await happened(lambda: gateway.totals().released == len(TENANTS))
        for number, tenant in enumerate(TENANTS):
            await producer.send(request(number, queue_name, key=tenant.encode()))
        await producer.until(lambda: len(producer.acked) == 2 * len(TENANTS))
    counts = Counter(each.shard_key for each in await found(redis_client, queue_name))
    assert counts == dict.fromkeys(TENANTS, 2)
