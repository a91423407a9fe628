"""Many messages in one frame: each is stored, refused or dropped by itself, and costs what it would cost alone."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import grpc
import pytest
from backports import zstd

from shardq import AsyncClient
from shardq.datasink.batches import members_of
from shardq.datasink.messages import Reason, Run
from shardq.datasink.runs import runs_of
from shardq.gateway.batches import MAX_BATCH_BYTES, MAX_MESSAGES, bounds_of
from shardq.gateway.received import OVERHEAD_BYTES
from tests.datasink.test_frames import bomb, trained, unsized
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import Producer, batch, happened, request
from tests.gateway.test_storing import contents, made
from tests.servers import Server

pytestmark = pytest.mark.once


def frame(*requests: Any, **changes: Any) -> bytes:
    """The frame of a batch of these, with some of its columns changed."""
    members = members_of(requests)
    for name, value in changes.items():
        if isinstance(value, bytes):
            setattr(members, name, value)
        else:
            members.ClearField(name)
            getattr(members, name).extend(value)
    return bytes(zstd.compress(members.SerializeToString()))


def reasons(producer: Producer) -> set[str]:
    return {Reason.values_by_number[each.reason].name for each in producer.refused.values()}


async def test_each_message_of_a_batch_arrives_as_it_was_sent(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    requests = [
        request(1, queue_name, key=b"tenant-1", plain_message=b"\x00\xff", headers={"kind": "raw"}),
        request(2, queue_name, key=b"\xff\xfe", plain_message=b'{"a": 1}', codec="j"),
        request(3, queue_name, key=b"tenant-1", plain_message=b"", headers={"kind": "raw"}),
        request(b"another", queue_name, key=b"tenant-2", plain_message=b"x" * 5000),
    ]
    async with start() as (gateway, address), Producer(address) as producer:
        await producer.send(batch(*requests), batch(*requests[:1], plain=members_of(requests[:1]).SerializeToString()))
        await producer.until(lambda: len(producer.acked) == 5)
        assert producer.acked == [each.message_id for each in (*requests, requests[0])]
        news = producer.news
        assert (news.max_batch_messages, news.max_batch_bytes) == (MAX_MESSAGES, MAX_BATCH_BYTES)
        assert gateway.totals().received == 5
    queue = redis_client.queue(queue_name, create=True)
    found = {each.body: each for each in await queue.read_many(9)}
    assert set(found) == {b"\x00\xff", b'{"a": 1}', b"", b"x" * 5000}
    assert found[b"\x00\xff"].headers == found[b""].headers == {"kind": "raw"}
    assert found[b"x" * 5000].headers == {}
    assert [found[each].shard_key for each in (b"\x00\xff", b"", b"x" * 5000)] == ["tenant-1", "tenant-1", "tenant-2"]
    assert (found[b'{"a": 1}'].payload, found[b'{"a": 1}'].shard_key) == ({"a": 1}, b"\xff\xfe")


async def test_the_outcome_of_each_of_five_hundred_is_told(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    token = tokens.add("site", shard_keys=["t"], max_message=100)
    bad: dict[int, dict[str, Any]] = {
        7: {"key": b"other"}, 100: {"codec": "??"}, 200: {"plain_message": b"x" * 101}, 300: {"headers": {"": "x"}},
        400: {"topic": "orders"}, 499: {"key": b""},
    }  # fmt: skip
    requests = [request(b"%04d" % each, queue_name, **bad.get(each, {})) for each in range(500)]
    requests[450] = request(b"0450", f"{queue_name}-none")
    async with start(tokens=tokens.path) as (gateway, address), Producer(address, token) as producer:
        for _ in range(2):
            await producer.send(batch(*requests))
        await producer.until(lambda: len(producer.acked) == 2 * 493 and len(producer.refused) == 7)
        told = {key: Reason.values_by_number[each.reason].name for key, each in producer.refused.items()}
        assert told == {
            b"0007": "NOT_ALLOWED", b"0100": "INVALID", b"0200": "TOO_LARGE", b"0300": "INVALID", b"0400": "INVALID",
            b"0450": "NO_QUEUE", b"0499": "INVALID",
        }  # fmt: skip
        assert "more than 100" in producer.refused[b"0200"].text
        totals = gateway.totals()
        assert (totals.received, totals.stored, totals.refused) == (1000, 986, 14)
    stored = {b"%04d" % each for each in range(500)} - set(told)
    assert sorted(await contents(redis_client, queue_name)) == sorted(stored)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"zstd": bomb()}, "says 1,073,741,824 bytes"),
        ({"zstd": unsized()}, "does not say its size"),
        ({"zstd": b"rubbish"}, "no zstd frame"),
        ({"zstd": zstd.compress(bytes(MAX_BATCH_BYTES + 1))}, "more than"),
        ({"plain": bytes(MAX_BATCH_BYTES + 1)}, "more than"),
        ({"plain": b"\xff"}, "no protobuf"),
        ({"zstd": zstd.compress(b"x" * 1000)[:-1]}, "cut off"),
        ({"zstd": frame(request(0), request(1))}, "has 2 messages, and 3 ids"),
        ({"zstd": frame(*[request(each) for each in range(4)])}, "has 4 messages, and 3 ids"),
        ({"zstd": frame(*[request(each) for each in range(3)], payloads=b"12")}, "have 2 bytes, and not the 3"),
        ({"zstd": frame(*[request(each) for each in range(3)], payloads=b"1234")}, "have 4 bytes, and not the 3"),
        (
            {"zstd": frame(*[request(each) for each in range(3)], payload_sizes=[1, 1, 2**32 - 1])},
            "not the 4,294,967,297",
        ),
        ({"zstd": frame(*[request(each) for each in range(3)], envelope=[0, 0, 1])}, "no envelope"),
        ({"zstd": frame(*[request(each) for each in range(3)], shard_key=[0, 2**32 - 1, 0])}, "no shard key"),
        ({"zstd": frame(*[request(each) for each in range(3)], shard_key=[0, 0])}, "not say of each"),
        ({"zstd": frame(*[request(each) for each in range(3)], shard_key_sizes=[], shard_keys=b"")}, "no shard key"),
        (
            {"zstd": frame(*[request(each) for each in range(3)], envelope_sizes=[0] * 4)},
            "more envelopes than messages",
        ),
        (
            {"zstd": frame(*[request(each) for each in range(3)], envelope_sizes=[2], envelopes=b"\xff\xff")},
            "no protobuf",
        ),
        ({"plain": None}, "has no members"),
    ],
)
async def test_a_batch_that_cannot_be_taken_apart_is_refused_for_each_of_its_ids(
    start: Start, fields: dict[str, bytes | None], text: str
) -> None:
    async with start() as (gateway, address), Producer(address) as producer:
        await producer.send(batch(**fields, ids=[Run(first=b"id-0", count=3)]))
        await producer.until(lambda: len(producer.refused) == 3)
        assert sorted(producer.refused) == [b"id-0", b"id-1", b"id-2"]
        assert reasons(producer) == {"NOT_DECODABLE"}
        assert all(text in each.text for each in producer.refused.values()), producer.refused
        assert (gateway.totals().received, gateway.totals().refused) == (3, 3)


async def test_a_bomb_in_a_batch_costs_nothing(start: Start) -> None:
    async with start() as (_, address), Producer(address) as producer:
        await producer.send(batch(request(1)))
        await producer.until(lambda: producer.refused)
        message = batch(zstd=bomb(), ids=[Run(first=b"bomb", count=1)])
        tracemalloc.start()
        try:
            await producer.send(message)
            await producer.until(lambda: b"bomb" in producer.refused)
            assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([Run(first=b"1234", count=10**6)], "names 1,000,000 ids, more than 500"),
        ([Run(first=b"1234", count=2**32 - 1)] * 1000, "ids, more than 500"),
        ([Run(first=b"%d" % each, count=1) for each in range(501)], "names 501 ids"),
        ([Run(first=b"\xff\xff", count=2)], "beyond the largest id"),
        ([Run(first=b"1234", count=0), Run(first=b"1234", count=1)], "needs a count"),
        ([Run(first=b"", count=1)], "1 to 64 bytes"),
        ([Run(first=b"x" * 65, count=1)], "1 to 64 bytes"),
        ([], "has no messages"),
    ],
)
async def test_a_batch_whose_ids_are_none_or_too_many_ends_the_call_before_it_is_decompressed(
    start: Start, ids: list[Any], text: str
) -> None:
    async with start() as (gateway, address), Producer(address) as producer:
        await producer.send(batch(zstd=bomb(), ids=ids))
        assert await producer.ended() is grpc.StatusCode.INVALID_ARGUMENT
        assert text in await producer._call.details()
        assert gateway.totals().received == 0


async def test_a_batch_has_no_id_of_its_own(start: Start) -> None:
    async with start() as (_, address), Producer(address) as producer:
        message = batch(request(1))
        message.message_id = b"x"
        await producer.send(message)
        assert await producer.ended() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_batch_waits_for_its_rates_as_so_many_messages_do(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    token = tokens.add("slow", messages_per_second=400)
    async with start(tokens=tokens.path) as (gateway, address), Producer(address, token) as producer:
        begun = gateway.clock.monotonic()
        await producer.send(batch(*[request(b"%04d" % each, queue_name) for each in range(500)]))
        await producer.send(request(b"next", queue_name))
        await producer.until(lambda: len(producer.acked) == 501)
        assert gateway.clock.monotonic() - begun >= 100 / 400
        assert gateway.totals().throttled > 0


async def test_each_message_of_a_batch_costs_a_turn_of_the_loop(
    start: Start, redis_client: AsyncClient, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So one token's batches wait behind others' messages as its single messages would."""
    await made(redis_client, queue_name)
    costs = list[float]()
    async with start() as (gateway, address), Producer(address) as producer:
        take = gateway.turns.take
        monkeypatch.setattr(gateway.turns, "take", lambda cost: costs.append(cost) or take(cost))  # type: ignore[func-returns-value]
        await producer.send(
            batch(*[request(b"%04d" % each, queue_name, plain_message=bytes(500)) for each in range(500)])
        )
        await producer.until(lambda: len(producer.acked) == 500)
    assert sum(costs) >= 500 + 250_000 / 10_000
    assert max(costs) < 30, "no step takes long"


async def test_what_waits_of_a_batch_counts_decompressed_and_message_by_message(
    start: Start, server: Server, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    requests = [request(b"%04d" % each, queue_name, plain_message=bytes(400)) for each in range(400)]
    async with start(timeout=1.0, capacity=300) as (gateway, address), Producer(address) as producer:
        server.pause()
        try:
            await producer.send(request(b"first", queue_name))
            await happened(lambda: [each for each in gateway.connections if each._batch])
            await producer.send(batch(*requests))
            await producer.until(lambda: len(producer.dropped) == 100)
            share = gateway.memory.share("insecure")
            assert share.used >= 300 * (400 + OVERHEAD_BYTES)
            assert len(gateway.releases._held) == 301
        finally:
            server.resume()
        await producer.until(lambda: len(producer.acked) == 301)
        await producer.send(batch(*[each for each in requests if each.message_id in producer.dropped]))
        await producer.until(lambda: len(producer.acked) == 401)
        await happened(lambda: not gateway.releases._held)
        assert producer.dropped == [each.message_id for each in requests[:100]], "the oldest"
    assert len(await contents(redis_client, queue_name)) == 401


async def test_a_batch_whose_dictionary_was_evicted_goes_again(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    dictionary = trained()
    requests = [request(each, queue_name, plain_message=b"host=%d metric=cpu" % each) for each in range(3)]
    async with start() as (_, address), Producer(address) as producer:
        await producer.send(batch(*requests, dictionary=dictionary))
        await producer.until(lambda: len(producer.dropped) == 3)
        assert list(producer.news.wanted_dictionaries) == [dictionary.dict_id]
        await producer.say(dictionary={"id": dictionary.dict_id, "content": dictionary.dict_content})
        await producer.send(batch(*requests, dictionary=dictionary))
        await producer.until(lambda: len(producer.acked) == 3)
    assert len(await contents(redis_client, queue_name)) == 3


async def test_the_ids_of_batches_are_released_in_runs(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    requests = [request(b"%04d" % each, queue_name) for each in range(300)]
    async with start() as (gateway, address), Producer(address) as producer:
        await producer.say(releases=True)
        await producer.send(batch(*requests))
        await producer.until(lambda: len(producer.acked) == 300)
        await producer.say(released_runs=runs_of(each.message_id for each in requests))
        await happened(lambda: gateway.totals().released == 300)
        await producer.say(released_runs=[Run(first=b"0000", count=10_001)])
        assert await producer.ended() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_batch_of_a_token_that_is_one_tenant_has_its_keys_in_headers(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    token = tokens.add("site-7", one_tenant=True)
    async with start(tokens=tokens.path) as (_, address), Producer(address, token) as producer:
        await producer.send(batch(*[request(each, queue_name, key=b"k%d" % (each % 2)) for each in range(4)]))
        await producer.until(lambda: len(producer.acked) == 4)
    found = await redis_client.queue(queue_name, create=True).read_many(9)
    assert {(each.shard_key, each.headers["shard-key"]) for each in found} == {("site-7", "k0"), ("site-7", "k1")}


async def test_a_batch_that_is_under_way_when_the_gateway_drains_is_stored(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start(grace=20.0) as (gateway, address), Producer(address) as producer:
        await producer.until(lambda: producer.news)
        await producer.send(batch(*[request(b"%04d" % each, queue_name) for each in range(500)]))
        await happened(lambda: gateway.totals().received)
        await asyncio.gather(gateway.stop(), producer.ended())
        assert len(producer.acked) == 500
    assert len(await contents(redis_client, queue_name)) == 500


@pytest.mark.parametrize(("max_message", "bounds"), [(10_000, (19, 10_000)), (100, (1, 100)), (2**24, (500, 2**18))])
def test_a_batch_takes_no_more_memory_than_the_largest_message(max_message: int, bounds: tuple[int, int]) -> None:
    assert bounds_of(max_message) == bounds
