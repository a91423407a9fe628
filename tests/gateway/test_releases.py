"""A released id is forgotten for the token that stored it, and costs no other one anything."""

from __future__ import annotations

import grpc
import pytest

from shardq import AsyncClient
from shardq.gateway import releases
from shardq.gateway.checks import MAX_IDS
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import Producer, happened, request
from tests.gateway.test_storing import contents, made
from tests.servers import Server

pytestmark = pytest.mark.once


def remembered(server: Server, client: AsyncClient, queue: str) -> list[bytes]:
    """The ids that Redis remembers for gateways, sorted."""
    with server.client() as raw:
        keys = raw.hkeys(client.queue(queue, create=True).state.keys.dedup)
    return sorted(key for key in keys if key.startswith(b"g:"))


async def test_only_the_token_that_stored_an_id_can_release_it(
    start: Start, server: Server, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    owner, other = tokens.add("owner"), tokens.add("other")
    async with (
        start(tokens=tokens.path) as (gateway, address),
        Producer(address, owner) as mine,
        Producer(address, other) as theirs,
    ):
        for producer, number in ((mine, 1), (theirs, 2)):
            await producer.say(releases=True)
            await producer.send(request(number, queue_name))
            await producer.until(lambda: producer.acked)  # noqa: B023
        await theirs.say(released=[b"id-1", b"id-2"])
        await happened(lambda: gateway.totals().released == 1)
        assert remembered(server, redis_client, queue_name) == [b"g:owner:" + b"id-1".hex().encode()]
        await mine.send(request(1, queue_name))
        await mine.until(lambda: len(mine.acked) == 2)
    assert sorted(await contents(redis_client, queue_name)) == [b"1", b"2"]  # type: ignore[type-var]


async def test_invented_ids_push_only_the_tokens_own_out(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "MAX_WAITING", 1000)
    await made(redis_client, queue_name)
    honest, flood = tokens.add("honest"), tokens.add("flood")
    async with (
        start(tokens=tokens.path, release_after=60.0) as (gateway, address),
        Producer(address, honest) as mine,
        Producer(address, flood) as theirs,
    ):
        for producer in (mine, theirs):
            await producer.say(releases=True)
            await producer.send(request(1, queue_name))
            await producer.until(lambda: producer.acked)  # noqa: B023
        await mine.say(released=[b"id-1"])
        await theirs.say(released=[b"%d" % number for number in range(MAX_IDS)])
        await theirs.send(request(2, queue_name))
        await theirs.until(lambda: len(theirs.acked) == 2)
        waiting = {name: [each for _, each in ids] for name, ids in gateway.releases._waiting.items()}
    assert waiting == {"honest": [b"id-1"], "flood": [b"%d" % number for number in range(MAX_IDS - 1000, MAX_IDS)]}


async def test_of_a_token_that_has_written_nothing_nothing_is_kept(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start(release_after=60.0) as (gateway, address), Producer(address) as producer:
        await producer.say(released=[b"%d" % number for number in range(1000)])
        await producer.send(request(1, queue_name))
        await producer.until(lambda: producer.acked)
        assert not gateway.releases._waiting


async def test_a_request_with_more_ids_than_allowed_ends_the_call(start: Start) -> None:
    async with start() as (_, address), Producer(address) as producer:
        await producer.say(released=[b"x"] * 340_000)
        assert await producer.ended() == grpc.StatusCode.INVALID_ARGUMENT
