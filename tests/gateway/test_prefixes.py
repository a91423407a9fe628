"""Frames that are made with what a client has sent before: what is remembered is bounded, and may be forgotten."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from random import Random
from typing import Any, Final

import pytest
from backports import zstd

from shardq import AsyncClient
from shardq.datasink.batches import members_of
from shardq.datasink.messages import Part, Prefix, Reason, Run
from shardq.files import MIB
from shardq.gateway.memory import MemoryBudget
from shardq.gateway.prefixes import IDLE_SECONDS, MAX_PREFIX_BYTES, MIN_PART, Prefixes, PrefixRoom
from shardq.testing import ManualClock
from tests.datasink.test_frames import bomb
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import Producer, batch, happened, request
from tests.gateway.test_storing import contents, made

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all")]
CHECKSUM: Final[dict[int, int]] = {zstd.CompressionParameter.checksum_flag: 1}


def members(*requests: Any) -> bytes:
    return bytes(members_of(requests).SerializeToString())


def part(at: int, *requests: Any) -> Any:
    """A batch that is to be remembered."""
    return batch(*requests, zstd=zstd.compress(members(*requests)), part=Part(at=at))


def framed(number: int, prefix: bytes, *requests: Any) -> Any:
    """A batch whose frame needs a prefix."""
    dictionary = zstd.ZstdDict(prefix, is_raw=True).as_prefix
    frame = zstd.compress(members(*requests), options=CHECKSUM, zstd_dict=dictionary)
    return batch(*requests, zstd=frame, prefix=number)


def offered(number: int, at: int, size: int) -> dict[str, Any]:
    return {"offered_prefix": Prefix(number=number, at=at, bytes=size)}


async def know(producer: Producer, number: int, *batches: list[Any]) -> bytes:
    """Let a gateway know a prefix of the messages of *batches*; its content. What was sent before is forgotten."""
    content, at = b"", 1_000_000 * number
    for each in batches:
        await producer.send(part(at + len(content), *each))
        content += members(*each)
    await producer.say(**offered(number, at, len(content)))
    await producer.until(lambda: producer.news and number in producer.news.known_prefixes)
    return content


def some(queue: str, rng: Random, *numbers: int, size: int = 3000) -> list[Any]:
    return [request(each, queue, plain_message=b"%d:" % each + rng.randbytes(size)) for each in numbers]


async def test_a_frame_of_what_was_sent_before_is_small_and_arrives(
    start: Start, redis_client: AsyncClient, queue_name: str, rng: Random
) -> None:
    await made(redis_client, queue_name)
    first, second = some(queue_name, rng, 1, 2), some(queue_name, rng, 3, 4)
    again = [
        request(10 + at, queue_name, plain_message=each.plain_message) for at, each in enumerate([*first, *second])
    ]
    async with start() as (_, address), Producer(address) as producer:
        await producer.until(lambda: producer.news)
        assert producer.news.max_prefix_bytes == MAX_PREFIX_BYTES
        message = framed(1, await know(producer, 1, first, second), *again)
        assert message.ByteSize() < 500
        await producer.send(message)
        await producer.until(lambda: len(producer.acked) == 8)
    wanted = [each.plain_message for each in (*first, *second)]
    assert Counter(await contents(redis_client, queue_name)) == Counter(wanted * 2)


@pytest.mark.runs_in("test", "test-all")
async def test_a_prefix_that_is_not_known_is_said_and_nothing_is_lost_or_doubled(
    start: Start, redis_client: AsyncClient, queue_name: str, rng: Random
) -> None:
    """One that was never sent, one of another call, and one that has given way to a third."""
    await made(redis_client, queue_name)
    messages = some(queue_name, rng, 1, 2)
    async with start() as (gateway, address), Producer(address) as producer, Producer(address) as other:
        content = await know(other, 7, some(queue_name, rng, 8, 9))
        await other.until(lambda: len(other.acked) == 2)
        for number in (1, 7, 2**32 - 1):
            await producer.send(framed(number, content, *messages))
        await producer.until(lambda: len(producer.dropped) == 6)
        assert list(producer.news.known_prefixes) == []
        for number in (1, 2, 3):
            await know(producer, number, some(queue_name, rng, 20 + number, 30 + number))
        await producer.send(framed(1, content, *messages))
        await producer.until(lambda: len(producer.dropped) == 8)
        assert list(producer.news.known_prefixes) == [2, 3]
        await producer.send(batch(*messages))
        await producer.until(lambda: len(producer.acked) == 8)
        assert gateway.totals().dropped == 8
        assert producer.code is None, "the call goes on"
    assert len(await contents(redis_client, queue_name)) == 10


@pytest.mark.parametrize(
    ("parts", "number", "at", "size"),
    [
        ((0, 0), 1, 0, 2),
        ((0, 2), 1, 0, 2),
        ((0, 1), 1, 0, 3),
        ((0, 1), 1, 1, 2),
        ((0, 1), 1, 2, 1),
        ((0, 1), 1, 0.5, 1),
        ((0, 1), 1, 0, 0.5),
        ((0, 1), 1, 0, 0),
        ((0, 1), 0, 0, 2),
        ((), 1, 0, 0),
        ((), 1, 0, 1),
    ],
)
async def test_a_prefix_with_a_hole_or_another_size_is_none(
    start: Start, redis_client: AsyncClient, queue_name: str, rng: Random,
    parts: tuple[int, ...], number: int, at: float, size: float,
) -> None:  # fmt: skip
    """Places and sizes are in parts here."""
    await made(redis_client, queue_name)
    messages = some(queue_name, rng, 1, 2)
    long = len(members(*messages))
    async with start() as (_, address), Producer(address) as producer:
        for each in parts:
            await producer.send(part(each * long, *messages))
        await producer.until(lambda: producer.news)
        await producer.say(**offered(number, int(at * long), int(size * long)))
        await producer.until(lambda: len(producer.all_news) == 2)
        assert list(producer.news.known_prefixes) == []
        await producer.send(batch(*messages))
        await producer.until(lambda: len(producer.acked) == 2 * (len(parts) + 1))


async def test_a_frame_of_another_prefix_than_it_says_is_refused_and_stored_by_no_one(
    start: Start, redis_client: AsyncClient, queue_name: str, rng: Random
) -> None:
    await made(redis_client, queue_name)
    messages = some(queue_name, rng, 1, 2)
    async with start() as (_, address), Producer(address) as producer:
        content = await know(producer, 1, messages)
        wrong = content[3000:] + content[:3000]
        await producer.send(framed(1, wrong, *[request(10 + at, queue_name, plain_message=each.plain_message)
                                               for at, each in enumerate(messages)]))  # fmt: skip
        await producer.until(lambda: len(producer.refused) == len(producer.acked) == 2)
        assert {each.reason for each in producer.refused.values()} == {Reason.values_by_name["NOT_DECODABLE"].number}
    assert len(await contents(redis_client, queue_name)) == 2


async def test_a_bomb_with_a_prefix_costs_nothing(
    start: Start, redis_client: AsyncClient, queue_name: str, rng: Random
) -> None:
    await made(redis_client, queue_name)
    async with start() as (_, address), Producer(address) as producer:
        await know(producer, 1, some(queue_name, rng, 1, 2))
        message = batch(zstd=bomb(), ids=[Run(first=b"bomb", count=1)], prefix=1)
        tracemalloc.start()
        try:
            await producer.send(message)
            await producer.until(lambda: b"bomb" in producer.refused)
            assert tracemalloc.get_traced_memory()[1] < MIB
        finally:
            tracemalloc.stop()


async def test_what_a_client_wants_remembered_is_bounded_and_given_back(
    start: Start, redis_client: AsyncClient, queue_name: str, rng: Random, tokens: TokenFile
) -> None:
    """A hostile one begins prefixes without end, and completes none, or too many."""
    await made(redis_client, queue_name)
    token = tokens.add("site", messages_per_second=0, bytes_per_second=0)
    async with start(tokens=tokens.path) as (gateway, address):
        async with Producer(address, token) as producer:
            await producer.send(*some(queue_name, rng, 0))
            await producer.until(lambda: producer.acked)
            (connection,), most, number = gateway.connections, 0, 0
            for turn in range(60):
                message = request(b"%02d" % turn, queue_name, plain_message=rng.randbytes(200_000))
                size = len(members(message))
                await producer.send(part(size * turn, message))
                await producer.until(lambda turn=turn: len(producer.acked) == turn + 2)
                if turn % 5 == 4:
                    number += 1
                    first = max(0, turn + 1 - MAX_PREFIX_BYTES // size)
                    await producer.say(**offered(number, size * first, size * (turn + 1 - first)))
                    await producer.until(lambda number=number: number in producer.news.known_prefixes)
                most = max(most, connection._prefixes.bytes)
            assert 2 * MAX_PREFIX_BYTES < most <= 3 * MAX_PREFIX_BYTES
            assert gateway.memory.used >= connection._prefixes.bytes
            await producer.send(framed(number, bytes(8), request(99, queue_name)))
            await producer.until(lambda: producer.acked[-1] == b"id-99" or producer.refused)
            assert connection._prefixes.known == [number]
            assert connection._prefixes.bytes <= 2 * MAX_PREFIX_BYTES
        await happened(lambda: not gateway.connections)
        await happened(lambda: not gateway.memory.used)
        assert gateway.prefixes._own.used == 0


def filled(prefixes: Prefixes, size: int = MAX_PREFIX_BYTES) -> Prefixes:
    """These with a prefix of *size* bytes, if there is room."""
    for at in range(0, size, 65536):
        prefixes.add(at, bytes(65536))
    prefixes.offered(1, 0, size)
    return prefixes


def untold() -> None:
    """Nobody is told."""


def test_a_token_with_many_calls_leaves_room_for_another() -> None:
    memory = MemoryBudget(128 * MIB)
    room = PrefixRoom(memory, ManualClock())
    hoards = [filled(room.of("hoards", untold)) for _ in range(64)]
    assert sum(each.bytes for each in hoards) <= 128 * MIB / 3 / 4 + MAX_PREFIX_BYTES
    others = [filled(room.of(f"other-{each}", untold)) for each in range(300)]
    assert others[0].known == [1]
    assert 128 * MIB / 4 < memory.used <= 128 * MIB / 3


def test_prefixes_that_nobody_uses_give_way_to_others() -> None:
    clock, told = ManualClock(), list[str]()
    room = PrefixRoom(MemoryBudget(48 * MIB), clock)
    first = filled(room.of("t", lambda: told.append("first")), 1 * MIB)
    second = filled(room.of("t", lambda: told.append("second")), 1 * MIB)
    assert (first.known, second.known) == ([1], [1])
    assert filled(room.of("t", untold), MIB).known == []
    clock.advance(IDLE_SECONDS + 1)
    assert second.find(1) is not None
    assert filled(room.of("t", untold), MIB).known == [1]
    assert (told, first.known, second.known) == (["first"], [], [1])


def test_small_parts_are_not_remembered() -> None:
    """So what each of them takes besides its bytes is little."""
    prefixes = PrefixRoom(MemoryBudget(64 * MIB), ManualClock()).of("t", untold)
    prefixes.add(0, bytes(MIN_PART - 1))
    assert prefixes.bytes == 0
    prefixes.add(MIN_PART - 1, bytes(MIN_PART))
    assert prefixes.bytes == MIN_PART
    prefixes.forget()
    assert prefixes.bytes == 0


class Counted(bytes):
    """A part that counts how often anybody asks how large it is."""

    asked = 0

    def __len__(self) -> int:
        Counted.asked += 1
        return super().__len__()


def test_a_prefix_of_few_of_many_parts_costs_as_much_as_these() -> None:
    prefixes = PrefixRoom(MemoryBudget(64 * MIB), ManualClock()).of("t", untold)
    for at in range(0, MAX_PREFIX_BYTES // 2, MIN_PART):
        prefixes.add(at, Counted(MIN_PART))
    Counted.asked = 0
    prefixes.offered(1, 0, 1)
    assert not prefixes.known
    assert Counted.asked < 10, f"{MAX_PREFIX_BYTES // 2 // MIN_PART} parts are remembered"
