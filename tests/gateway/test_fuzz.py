"""Requests at random: mutations of good ones, and noise. Each is refused or stored, or ends its call, and no more."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from backports import zstd

from shardq import AsyncClient
from shardq.datasink import messages
from shardq.datasink.batches import members_of
from tests.datasink.test_frames import bomb, trained, unsized
from tests.gateway.conftest import GatewayProcess, TokenFile
from tests.gateway.producer import Producer, batch, request
from tests.gateway.test_storing import made
from tests.selection import SOAK

REQUESTS: Final = 1_000_000 if SOAK else 20_000
CALLS: Final = 4
"""Hostile calls at once."""

LONGEST: Final = 500
"""Requests of one call, unless one of them ends it."""

HONEST: Final = 50
"""Messages of the honest producer that are on their way at once."""

MAX_GROWTH: Final = 150
"""MiB that the gateway may grow by once it is warm."""

OK: Final = grpc.StatusCode.OK
CUT_OFF: Final = (grpc.StatusCode.INTERNAL, "Internal error from Core")
"""What grpcio itself says where a call was ended while it wrote."""

TEXTS: Final = ("", "a{b}", "a..b", "#", "x" * 300, "\u0663", "a b", "%s", "\x1b[31m", "none")
DICTIONARY: Final = trained().dict_content
UNSIZED, BOMB = unsized(), bomb()
BYTES: Final = (b"", b"\0", b"\xff\xfe", b"x" * 65, b"x" * 1_025, b"t/u", b"\x1b[31m", bytes(16))


def mutated(rng: random.Random, queue: str) -> bytes:
    """One request: a good one with one to three fields changed, or its bytes damaged, or nothing but noise."""
    found = request(rng.randbytes(8), rng.choice((queue, queue, "none")))
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        _change(rng, found)
    if rng.random() < 0.3:
        found = _batch(rng, found, queue)
    raw = bytearray(found.SerializeToString())
    chance = rng.random()
    if chance < 0.01:
        return rng.randbytes(rng.randrange(200))
    if chance < 0.03 and raw:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif chance < 0.05:
        del raw[rng.randrange(len(raw) + 1) :]
    elif chance < 0.10:
        raw += bytes([rng.choice((0x7A, 0xFA, 0x0A)), rng.choice((0x07, 0x01, 0x7F))]) + rng.randbytes(rng.randrange(9))
    elif chance < 0.15:
        raw += found.SerializeToString()  # each field twice: the last one counts
    return bytes(raw)


def _batch(rng: random.Random, one: Any, queue: str) -> Any:
    """A batch with *one* and some good messages, of which something may be changed in a column, a frame or an id."""
    first = int.from_bytes(rng.randbytes(7), "big")
    requests = [request((first + each).to_bytes(8, "big"), queue) for each in range(rng.choice((0, 1, 5, 60)))]
    one.message_id = one.message_id[:64] or b"x"
    members = members_of([one, *requests])
    chance, content = rng.random(), bytearray()
    if chance < 0.3:
        column = getattr(
            members, rng.choice(("envelope", "shard_key", "payload_sizes", "envelope_sizes", "shard_key_sizes"))
        )
        column.extend([rng.choice((0, 1, 2**32 - 1))] * (not column or rng.random() < 0.2))
        column[rng.randrange(len(column))] = rng.choice((0, 1, 7, 2**31, 2**32 - 1))
    elif chance < 0.4:
        members.ClearField(rng.choice(("envelopes", "shard_keys", "payload_sizes", "payloads")))
    content += members.SerializeToString()
    if 0.4 <= chance < 0.6:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif 0.6 <= chance < 0.7:
        del content[rng.randrange(len(content)) :]
    frame = rng.choice((UNSIZED, BOMB, b"", b"rubbish")) if chance > 0.95 else zstd.compress(content)
    made = batch(one, *requests, zstd=frame) if rng.random() < 0.7 else batch(one, *requests, plain=bytes(content))
    if rng.random() < 0.02:
        made.batch.ids[0].count = rng.choice((0, 2, 1_000_000, 2**32 - 1))
    return made


def _change(rng: random.Random, found: Any) -> None:
    changes = (
        lambda: setattr(found, "queue", rng.choice(TEXTS)), lambda: setattr(found, "topic", rng.choice(TEXTS)),
        lambda: setattr(found, "shard_key", rng.choice(BYTES)), lambda: setattr(found, "codec", rng.choice(TEXTS)),
        lambda: setattr(found, "delay_ms", rng.choice((1, 2**31, 2**63))),
        lambda: setattr(found, "plain_message", rng.randbytes(rng.randrange(2_000))),
        lambda: setattr(found, "zstd_compressed", rng.choice((b"", b"rubbish", UNSIZED, BOMB, rng.randbytes(100)))),
        lambda: found.headers.update({rng.choice(TEXTS): rng.choice(TEXTS) for _ in range(3)}),
        lambda: found.headers.update({f"h{number}": "x" * 90 for number in range(rng.choice((64, 65, 200)))}),
        lambda: found.ClearField("plain_message"),
    )  # fmt: skip
    rare = (
        lambda: setattr(found, "version", rng.choice((0, 2, 2**31))), lambda: setattr(found, "message_id", b""),
        lambda: setattr(found, "message_id", b"x" * 65), lambda: found.info.released.extend([rng.randbytes(8)] * 300),
        lambda: setattr(found.info, "name", rng.choice(TEXTS)),
        lambda: setattr(found.info.dictionary, "content", rng.randbytes(50)),
        lambda: found.info.dictionary.MergeFrom(messages.Dictionary(id=rng.randrange(2**32), content=DICTIONARY)),
    )  # fmt: skip
    with contextlib.suppress(ValueError, TypeError):  # a field that cannot hold that
        rng.choice(rare if rng.random() < 0.02 else changes)()


class Attackers:
    """Calls with fuzzed requests. `ends` are how calls ended, `sent` is how many requests went out."""

    def __init__(self, address: str, secret: str, queue: str, rng: random.Random) -> None:
        self._address, self._queue, self._rng = address, queue, rng
        self._metadata = (("authorization", f"Bearer {secret}"),)
        self.ends: set[tuple[grpc.StatusCode, str]] = set()
        self.sent = 0

    async def attack(self, requests: int) -> None:
        """Go on until all attacks have sent so many more, over calls that end by themselves or by the gateway."""
        async with grpc.aio.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            send, before = channel.stream_stream(messages.SEND), self.sent
            while self.sent < before + requests:
                call = send(self._some(), metadata=self._metadata, timeout=60)
                with contextlib.suppress(grpc.RpcError, asyncio.CancelledError):
                    async for _ in call:
                        pass
                self.ends.add((await call.code(), await call.details() or ""))

    async def _some(self) -> AsyncIterator[bytes]:
        for _ in range(LONGEST):
            self.sent += 1
            yield mutated(self._rng, self._queue)


async def ping(producer: Producer, queue: str, over: asyncio.Event) -> int:
    """Send as an honest producer, each when the one before is acked, until it is *over*; how many were acked."""
    number = 0
    while not over.is_set():
        await producer.send(*[request(each, queue, key=b"honest") for each in range(number, number + HONEST)])
        number += HONEST
        await producer.until(lambda: len(producer.acked) >= number)  # noqa: B023
    return number


def memory(process: int) -> int:
    """The MiB that a process has in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize() // 2**20


@pytest.mark.once
@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(3_600 if SOAK else 180)
async def test_fuzzed_requests_harm_nobody(
    redis_client: AsyncClient, run_gateway: Callable[..., GatewayProcess], queue_name: str, tokens: TokenFile, seed: int
) -> None:
    quiet = f"{queue_name}.honest"
    await made(redis_client, queue_name)
    await made(redis_client, quiet)
    hostile, honest = tokens.add("hostile"), tokens.add("honest")
    gateway = run_gateway("--tokens", str(tokens.path))
    log = asyncio.create_task(asyncio.to_thread(gateway.end, 3_600))  # it is read all the time, so that it never blocks
    over = asyncio.Event()
    async with Producer(gateway.address, honest) as producer:
        pinging = asyncio.create_task(ping(producer, quiet, over))
        attackers = Attackers(gateway.address, hostile, queue_name, random.Random(seed))
        await attackers.attack(2_000)
        before = memory(gateway.process.pid)
        await asyncio.gather(*(attackers.attack(REQUESTS) for _ in range(CALLS)))
        grown = memory(gateway.process.pid) - before
        over.set()
        assert await pinging > 0
        assert not producer.refused
    gateway.signal(signal.SIGTERM)
    code, told = await log
    assert "Traceback" not in told, told[-3_000:]
    assert code == 0
    others = [each for each in attackers.ends - {CUT_OFF} if each[0] not in (OK, grpc.StatusCode.INVALID_ARGUMENT)]
    assert not others
    assert grown < MAX_GROWTH, f"the gateway grew by {grown} MiB"
