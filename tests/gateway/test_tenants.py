"""A token that may make up shard keys is one tenant, or one for each parent that it names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shardq import AsyncClient, ConfigError
from shardq.gateway.tenants import check_queues
from shardq.gateway.tokens import Tokens
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import Producer, happened, request
from tests.gateway.test_storing import contents, made

pytestmark = pytest.mark.once
NOT_ALLOWED = 3


@pytest.mark.parametrize("shard_keys", [["*"], ["site-*"], ["/*"], ["a", "site-7/*", "b*"]])
def test_a_pattern_without_a_parent_needs_a_word_on_tenants(tokens: TokenFile, shard_keys: list[str]) -> None:
    tokens.add("t", shard_keys=shard_keys, one_tenant=True)
    tokens.add("u", shard_keys=shard_keys, one_tenant=False)
    Tokens.read(tokens.path)
    tokens.path.write_text(tokens.path.read_text().replace("one_tenant = false", ""))
    with pytest.raises(ConfigError, match="one_tenant"):
        Tokens.read(tokens.path)


@pytest.mark.parametrize("shard_keys", [["site-7/*"], ["a", "b"], [], ["site-7", "site-7/*", "site-8/a*"]])
def test_named_keys_and_named_parents_need_none(tokens: TokenFile, tmp_path: Path, shard_keys: list[str]) -> None:
    tokens.add("t", shard_keys=shard_keys, one_tenant=True)
    tokens.path.write_text(tokens.path.read_text().replace("one_tenant = true", ""))
    token = Tokens.read(tokens.path).by_name["t"]
    assert token.needs_parents == any("*" in each for each in shard_keys)


def add(tokens: TokenFile, name: str, queues: list[str]) -> str:
    """A token as that of the docs, which says nothing of tenants."""
    secret = tokens.add(name, queues=queues, shard_keys=["exact", "site-7/*"], one_tenant="unsaid")
    tokens._tables[name] = tokens._tables[name].replace('one_tenant = "unsaid"', "")
    tokens.write()
    return secret


async def test_a_gateway_refuses_to_start_where_each_key_would_be_a_tenant(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    add(tokens, "site-7", [queue_name])
    with pytest.raises(ConfigError, match=rf"'site-7'.*{queue_name}.*parents=1.*one_tenant"):
        async with start(tokens=tokens.path):
            pass
    await redis_client.queue(queue_name).configure(parents=1)
    async with start(tokens=tokens.path):
        pass


async def test_a_reload_keeps_the_tokens_where_each_key_would_be_a_tenant(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, caplog: pytest.LogCaptureFixture
) -> None:
    await made(redis_client, queue_name)
    tokens.add("before")
    async with start(tokens=tokens.path) as (gateway, _):
        add(tokens, "site-7", [queue_name])
        assert not await gateway.reload()
        assert "the tokens stay as they are: token 'site-7'" in caplog.text
        assert gateway.tokens is not None
        assert set(gateway.tokens.by_name) == {"before"}
        await redis_client.queue(queue_name).configure(parents=1)
        assert await gateway.reload()
        assert set(gateway.tokens.by_name) == {"before", "site-7"}


async def test_of_two_reloads_at_once_the_second_one_reads_the_file_last(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is slow: it looks queues up in Redis."""
    await made(redis_client, queue_name)
    tokens.add("first")
    async with start(tokens=tokens.path) as (gateway, _):
        goes_on, asked = asyncio.Event(), asyncio.Event()

        async def slow(*_: object) -> None:
            asked.set()
            await goes_on.wait()

        monkeypatch.setattr("shardq.gateway.server.check_queues", slow)
        first = asyncio.create_task(gateway.reload())
        await asked.wait()
        tokens.add("second")
        monkeypatch.setattr("shardq.gateway.server.check_queues", check_queues)
        second = asyncio.create_task(gateway.reload())
        await asyncio.wait([second], timeout=0.2)
        goes_on.set()
        assert await first
        assert await second
        assert gateway.tokens is not None
        assert set(gateway.tokens.by_name) == {"first", "second"}


async def test_queues_of_a_pattern_are_checked_when_they_are_written_to(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    """One pattern, one queue that was made later, and one that a topic goes to."""
    flat, nested, bound = f"{queue_name}.flat", f"{queue_name}.nested", f"{queue_name}.bound"
    secret = add(tokens, "site-7", [f"{queue_name}*"])
    async with start(tokens=tokens.path, router=queue_name) as (_, address), Producer(address, secret) as producer:
        await made(redis_client, flat)
        await made(redis_client, nested, parents=1)
        await made(redis_client, bound)
        await redis_client.bind("metrics.#", bound, router=queue_name)
        await producer.send(
            request(1, flat, key=b"site-7/a"), request(2, flat, key=b"exact"), request(3, nested, key=b"site-7/a"),
            request(4, key=b"site-7/a", topic="metrics.cpu"), request(5, key=b"exact", topic="metrics.cpu"),
        )  # fmt: skip
        await producer.until(lambda: len(producer.acked) + len(producer.refused) == 5)
        assert sorted(producer.acked) == [b"id-2", b"id-3", b"id-5"]
        assert {key: each.reason for key, each in producer.refused.items()} == {b"id-1": 3, b"id-4": NOT_ALLOWED}
        assert "parents=1" in producer.refused[b"id-1"].text
        assert await contents(redis_client, flat) == [b"2"]
        await redis_client.queue(flat).configure(parents=1)
        await producer.until_acked(request(6, flat, key=b"site-7/a"))


async def test_a_token_that_is_one_tenant_writes_under_its_name(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    secret = tokens.add("site-7", one_tenant=True, shard_keys=["host-*"])
    async with start(tokens=tokens.path) as (_, address), Producer(address, secret) as producer:
        await producer.send(
            request(1, queue_name, key=b"host-1"), request(2, queue_name, key=b"host-\xff", headers={"a": "b"}),
            request(3, queue_name, key=b"other"),
        )  # fmt: skip
        await producer.until(lambda: len(producer.acked) == 2 and producer.refused)
    found = await redis_client.queue(queue_name, create=True).read_many(9)
    assert [(each.shard_key, each.headers) for each in sorted(found, key=lambda each: each.body)] == [
        ("site-7", {"shard-key": "host-1"}), ("site-7", {"shard-key": "host-\\xff", "a": "b"}),
    ]  # fmt: skip


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("bound", ["parents", "one_tenant"])
async def test_with_twenty_thousand_invented_shard_keys_a_token_has_the_share_of_one_tenant(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, bound: str
) -> None:
    """A quiet tenant's five messages come as soon as beside one tenant, within one and a half times as many deliveries.

    Where each key counted, it would wait for 19,974.
    """
    waits = []
    for number, invented in enumerate((1, 20_000)):
        queue = f"{queue_name}.{number}"
        await made(redis_client, queue, parents=1 if bound == "parents" else 0)
        flood = add(tokens, "site-7", [queue])
        if bound == "one_tenant":
            flood = tokens.add("site-7", queues=[queue], shard_keys=["site-7/*"], one_tenant=True)
        async with (
            start(tokens=tokens.path, capacity=30_000, messages_per_second=0) as (gateway, address),
            Producer(address, flood) as producer,
        ):
            for at in range(20_000):
                await producer.send(request(at, queue, key=b"site-7/%d" % (at % invented)))
            await happened(lambda: gateway.totals().stored == 20_000, 300)
        for _ in range(5):
            await redis_client.queue(queue).write("quiet", shard_key="quiet")
        waits.append(await deliveries_until(redis_client, queue, "quiet", 5))
    assert waits[1] <= 1.5 * waits[0]


async def deliveries_until(client: AsyncClient, queue: str, shard_key: str, count: int) -> int:
    """How many deliveries it takes until *count* messages of a tenant have come, of one consumer that acks each."""
    reader, deliveries = client.queue(queue, create=True), 0
    while count:
        delivery = await reader.read()
        assert delivery is not None
        await delivery.ack()
        deliveries += 1
        count -= delivery.shard_key == shard_key
    return deliveries
