"""Clients that are wrong, greedy or evil: each gets its answer, and the others are served."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import grpc
import pytest
from backports import zstd

from shardq import AsyncClient
from shardq.datasink import messages
from shardq.datasink.messages import Request
from tests.datasink.test_frames import bomb, trained, unsized
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import Producer, happened, pouring, request
from tests.gateway.test_storing import contents, made
from tests.servers import Server

pytestmark = pytest.mark.once
INVALID, TOO_LARGE, NOT_ALLOWED, NO_QUEUE, NOT_DECODABLE = 1, 2, 3, 4, 5


async def test_each_refusal_has_its_reason_and_the_others_are_stored(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    await redis_client.bind("open.#", f"{queue_name}.missing")
    secret = tokens.add("t", queues=[f"{queue_name}*"], topics=["open.*"], shard_keys=["t", "u/*"], max_message=50_000)
    bad: dict[int, list[Any]] = {
        INVALID: [
            request(b"i0"), request(b"i1", queue_name, topic="open.x"), request(b"i2", queue_name, key=b""),
            request(b"i3", queue_name, key=b"u/" + b"x" * 2000), request(b"i4", queue_name, codec="jj"),
            request(b"i5", queue_name, codec="\u00e4"), request(b"i6", queue_name, headers={"": "x"}),
            request(b"i7", queue_name, headers={"x": "y" * 9000}), request(b"i8", "a{b}"),
            request(b"i9", topic="open..x"), request(b"i10", queue_name, delay_ms=1 << 60),
            Request(version=1, message_id=b"i11", queue=queue_name, shard_key=b"t"),
        ],
        TOO_LARGE: [request(b"l0", queue_name, plain_message=bytes(50_001))],
        NOT_ALLOWED: [
            request(b"a0", "another"), request(b"a1", topic="closed.x"), request(b"a2", queue_name, key=b"tt"),
            request(b"a3", queue_name, key=b"u"),
        ],
        NO_QUEUE: [
            request(b"q0", f"{queue_name}.none"), request(b"q1", topic="open.x"),
        ],
        NOT_DECODABLE: [
            request(b"d0", queue_name, zstd_compressed=b""), request(b"d1", queue_name, zstd_compressed=b"rubbish"),
            request(b"d2", queue_name, zstd_compressed=unsized()), request(b"d3", queue_name, zstd_compressed=bomb()),
            request(b"d4", queue_name, zstd_compressed=zstd.compress(b"x" * 1000)[:-2]),
            request(b"d5", queue_name, zstd_compressed=zstd.compress(b"x") + b"y"),
            request(b"d6", queue_name, zstd_compressed=zstd.compress(bytes(50_001))),
        ],
    }  # fmt: skip
    every = [each for group in bad.values() for each in group]
    async with start(tokens=tokens.path) as (_, address), Producer(address, secret) as producer:
        for number, each in enumerate(every):
            await producer.send(request(number, queue_name), each)
        await producer.done()
        assert await producer.ended() == grpc.StatusCode.OK
    expected = {each.message_id: reason for reason, group in bad.items() for each in group}
    assert {key: each.reason for key, each in producer.refused.items()} == expected
    assert producer.acked == [b"id-%d" % number for number in range(len(every))]
    assert len(await contents(redis_client, queue_name)) == len(every)


@pytest.mark.parametrize(
    "wrong",
    [
        Request(version=2, message_id=b"x", queue="q", shard_key=b"t", plain_message=b"x"),
        Request(message_id=b"x", queue="q", shard_key=b"t", plain_message=b"x"),
        Request(version=1, queue="q", shard_key=b"t", plain_message=b"x"),
        Request(version=1, message_id=b"x" * 65, queue="q", shard_key=b"t", plain_message=b"x"),
        Request(version=1, message_id=b"x", info=messages.ClientInfo(name="a")),
        Request(version=1, info=messages.ClientInfo(name="a b")),
        Request(version=1, info=messages.ClientInfo(released=[b""])),
        Request(version=1, info=messages.ClientInfo(dictionary=messages.Dictionary(id=7, content=b"none"))),
    ],
)
async def test_who_does_not_speak_the_protocol_is_cut_off(start: Start, wrong: Any) -> None:
    async with start() as (_, address), Producer(address) as producer:
        await producer.send(wrong)
        assert await producer.ended() == grpc.StatusCode.INVALID_ARGUMENT


async def test_rubbish_is_no_request(start: Start) -> None:
    async with start() as (gateway, address), grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(messages.SEND)()
        await call.write(b"\xff\xff\xff rubbish")
        with pytest.raises(grpc.RpcError):
            async for _ in call:
                pass
        assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
        await happened(lambda: not gateway.connections)


async def test_a_request_beyond_all_bounds_is_not_read(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start(max_message=100_000) as (_, address), Producer(address) as other:
        async with Producer(address) as producer:
            await producer.send(request(1, queue_name, plain_message=bytes(170_000)))
            assert await producer.ended() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await other.send(request(2, queue_name))
        await other.until(lambda: other.acked)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_call_with_compressed_messages_is_refused_before_one_is_inflated(
    start: Start, compression: Any
) -> None:
    async with start() as (_, address), grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(messages.SEND)(compression=compression)
        assert await call.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_large_metadata_is_refused(start: Start) -> None:
    async with start() as (_, address), Producer(address, "x" * 40_000) as producer:
        assert await producer.ended() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_full_fifo_drops_the_oldest_and_tells(
    start: Start, server: Server, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start(capacity=300, timeout=60.0) as (_, address), Producer(address) as producer:
        await producer.send(request(0, queue_name))
        await producer.until(lambda: producer.acked)
        server.pause()
        try:
            await producer.send(*[request(number, queue_name) for number in range(1, 1001)])
            await producer.until(lambda: len(producer.dropped) >= 1000 - 300 - 250)
        finally:
            server.resume()
        await producer.until(lambda: len(producer.acked) + len(producer.dropped) == 1001)
        assert producer.news.capacity == 300
        number = [int(each.removeprefix(b"id-")) for each in producer.dropped]
        assert number == sorted(number), "the oldest first"
        await producer.send(*[request(each, queue_name) for each in number[:300]])
        await producer.until(lambda: len(producer.acked) == 1001 - len(number) + 300)


async def test_a_fifo_that_is_full_by_bytes_tells_a_smaller_capacity_and_grows_again(
    start: Start, server: Server, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    settings = {"capacity": 500, "max_message": 100_000, "fifo_bytes": 1_000_000, "timeout": 60.0}
    async with start(**settings) as (_, address), Producer(address) as producer:
        await producer.send(request(0, queue_name))
        await producer.until(lambda: producer.acked)
        server.pause()
        try:
            await producer.send(*[request(n, queue_name, plain_message=bytes(90_000)) for n in range(1, 80)])
            await producer.until(lambda: producer.dropped)
            await producer.until(lambda: producer.news.capacity <= 11)
        finally:
            server.resume()
        await producer.until(lambda: len(producer.acked) + len(producer.dropped) == 80)
        for number in range(100, 120):
            await producer.send(request(number, queue_name))
            await producer.until(lambda: b"id-%d" % number in producer.acked)  # noqa: B023
        await producer.until(lambda: producer.news.capacity == 500)


async def test_a_flood_of_one_client_leaves_room_for_others(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    flood, quiet = tokens.add("flood"), tokens.add("quiet")
    async with (
        start(tokens=tokens.path) as (_, address),
        Producer(address, flood) as noisy,
        Producer(address, quiet) as other,
        pouring(noisy, queue_name, plain_message=bytes(1000)),
    ):
        for number in range(20):
            await other.send(request(number, queue_name, key=b"quiet"))
            await other.until(lambda: len(other.acked) == number + 1, timeout=30)  # noqa: B023
        assert noisy.acked


@pytest.mark.runs_in("test-all")
async def test_a_client_that_reads_nothing_is_not_read_from_either(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start(capacity=10) as (gateway, address), grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(messages.SEND, request_serializer=Request.SerializeToString)()
        await call.write(request(b"x" * 64, queue_name))

        async def pour() -> None:
            for number in range(1 << 30):
                await call.write(request(b"%064d" % number, "none", plain_message=b""))

        pouring = asyncio.create_task(pour())
        await asyncio.wait([pouring], timeout=2)
        before = gateway.totals().received
        await asyncio.wait([pouring], timeout=1)
        assert gateway.totals().received <= before + 10_000, "it is bounded by what the outbox and HTTP/2 windows hold"
        pouring.cancel()
        call.cancel()
        await asyncio.gather(pouring, return_exceptions=True)


@pytest.mark.runs_in("test-all")
async def test_rates_hold_back_and_refuse_nothing(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    secret = tokens.add("slow", messages_per_second=100)
    async with start(tokens=tokens.path) as (gateway, address), Producer(address, secret) as producer:
        began = gateway.clock.monotonic()
        await producer.send(*[request(number, queue_name) for number in range(250)])
        await producer.until(lambda: len(producer.acked) == 250)
        assert gateway.clock.monotonic() - began >= 1.4
        assert not producer.dropped


@pytest.mark.runs_in("test-all")
async def test_who_is_held_back_is_not_cut_off_though_answers_to_pings_come_late(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    """They wait behind messages that are not read yet, for longer than a client may take to answer."""
    await made(redis_client, queue_name)
    secret = tokens.add("slow", messages_per_second=20)
    async with (
        start(tokens=tokens.path, keepalive=1.0) as (_, address),
        Producer(address, secret) as producer,
        pouring(producer, queue_name) as task,
    ):
        await producer.until(lambda: len(producer.acked) >= 100 or task.done())
        assert not task.done()


async def test_connections_are_bounded_by_token_and_in_all(start: Start, tokens: TokenFile) -> None:
    one, two = tokens.add("one"), tokens.add("two")
    async with start(tokens=tokens.path, max_connections=3, connections_per_token=2) as (gateway, address):
        async with Producer(address, one) as first, Producer(address, one) as second:
            await first.until(lambda: first.news)
            await second.until(lambda: second.news)
            async with Producer(address, one) as third:
                assert await third.ended() == grpc.StatusCode.RESOURCE_EXHAUSTED
            async with Producer(address, two) as other:
                await other.until(lambda: other.news)
                async with Producer(address, two) as beyond:
                    assert await beyond.ended() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await happened(lambda: not gateway.connections)
        async with Producer(address, one) as again:
            await again.until(lambda: again.news)


@pytest.mark.runs_in("test-all")
async def test_a_half_open_connection_is_noticed(start: Start, redis_client: AsyncClient, queue_name: str) -> None:
    """The link falls silent: nothing is forwarded any more, and no end is told."""
    await made(redis_client, queue_name)
    async with start(keepalive=1.0) as (gateway, address):
        host, port = address.split(":")
        link = await Link.open(host, int(port))
        async with Producer(f"127.0.0.1:{link.port}") as producer:
            await producer.send(request(1, queue_name))
            await producer.until(lambda: producer.acked)
            assert len(gateway.connections) == 1
            link.silent = True
            await happened(lambda: not gateway.connections)
        await link.close()


class Link:
    """A proxy that can fall silent."""

    def __init__(self) -> None:
        self.silent, self.port = False, 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @classmethod
    async def open(cls, host: str, port: int) -> Link:
        link = cls()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(host, port)
            link._writers += [writer, back]
            for source, target in ((reader, back), (there, writer)):
                link._tasks.add(asyncio.create_task(link._forward(source, target)))

        link._server = await asyncio.start_server(connected, "127.0.0.1", 0, family=socket.AF_INET)
        link.port = link._server.sockets[0].getsockname()[1]
        return link

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if not self.silent:
                    target.write(data)
                    await target.drain()
        except OSError:
            pass

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()


async def test_dictionaries_are_asked_for_and_used(start: Start, redis_client: AsyncClient, queue_name: str) -> None:
    await made(redis_client, queue_name)
    dictionary = trained()
    frame = zstd.compress(b"host=1 metric=cpu value=5", zstd_dict=dictionary)
    async with start() as (_, address):
        async with Producer(address) as producer:
            await producer.say(name="edge", offered_dictionaries=[dictionary.dict_id])
            await producer.until(lambda: producer.news and producer.news.wanted_dictionaries == [dictionary.dict_id])
            await producer.send(request(1, queue_name, zstd_compressed=frame))  # too early
            await producer.until(lambda: producer.dropped == [b"id-1"])
            content = messages.Dictionary(id=dictionary.dict_id, content=dictionary.dict_content)
            await producer.say(dictionary=content)
            await producer.until(lambda: producer.news.known_dictionaries == [dictionary.dict_id])
            await producer.send(request(1, queue_name, zstd_compressed=frame))
            await producer.until(lambda: producer.acked)
        async with Producer(address) as later:
            await later.say(name="edge", offered_dictionaries=[dictionary.dict_id])
            await later.until(lambda: later.news and later.news.known_dictionaries == [dictionary.dict_id])
    assert await contents(redis_client, queue_name) == [b"host=1 metric=cpu value=5"]


async def test_a_third_dictionary_takes_the_place_of_the_oldest(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    made_dictionaries = [zstd.train_dict([b"%d %d" % (seed, n) * 3 for n in range(900)], 1024) for seed in (1, 22, 333)]
    async with start() as (_, address), Producer(address) as producer:
        for number, each in enumerate(made_dictionaries):
            await producer.say(dictionary=messages.Dictionary(id=each.dict_id, content=each.dict_content))
            await producer.until(lambda: producer.news and each.dict_id in producer.news.known_dictionaries)  # noqa: B023
            frame = zstd.compress(b"%d" % number, zstd_dict=each)
            await producer.send(*[request(10 * number + n, queue_name, zstd_compressed=frame) for n in range(10)])
        await producer.until(lambda: len(producer.acked) == 30)
        assert list(producer.news.known_dictionaries) == [each.dict_id for each in made_dictionaries[1:]]


async def test_logs_name_clients_and_never_what_is_secret(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, caplog: pytest.LogCaptureFixture
) -> None:
    await made(redis_client, queue_name)
    secret = tokens.add("named", queues=[queue_name])
    with caplog.at_level(logging.DEBUG):
        async with start(tokens=tokens.path) as (gateway, address):
            async with Producer(address, secret) as producer:
                await producer.say(name="edge-7")
                await producer.send(request(1, queue_name, plain_message=b"CANARY", headers={"h": "CANARY"}))
                await producer.send(request(2, "other", plain_message=b"CANARY"))
                await producer.until(lambda: producer.acked and producer.refused)
                await producer.done()
                await producer.ended()
            async with Producer(address, secret + "x") as stranger:
                await stranger.ended()
            await happened(lambda: not gateway.connections)
    assert "named connected from 127.0.0.1:" in caplog.text
    assert "named (edge-7) left" in caplog.text
    assert "stored 1, dropped 0, refused 1" in caplog.text
    assert "CANARY" not in caplog.text
    assert secret not in caplog.text
