"""The link that an asyncio client's calls share, against a server that a test plays."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from shardq.drivers.async_link import LARGE_REQUEST_BYTES, PARTS, STUCK_SECONDS, AsyncLink
from shardq.ops.queue.steps import Refused, Unanswered

SILENCE = 20.0
SOON = 15.0


class Played:
    """A shared link, and the server's end of it."""

    def __init__(self) -> None:
        self.closed: list[AsyncLink] = []
        self.ours, self.server = socket.socketpair()
        self.server.setblocking(False)

    async def link(self, silence: float = SILENCE) -> AsyncLink:
        """Make the link out of a connection such as redis-py's."""
        self.reader, self.writer = await asyncio.open_connection(sock=self.ours)
        return AsyncLink(SimpleNamespace(_writer=self.writer), silence, self.closed.append)

    async def received(self, size: int) -> bytes:
        """The next *size* bytes that the server gets."""
        got = b""
        while len(got) < size:
            got += await asyncio.get_running_loop().sock_recv(self.server, size - len(got))
        return got

    async def send(self, data: bytes) -> None:
        """Let the server say something."""
        await asyncio.get_running_loop().sock_sendall(self.server, data)


@pytest.fixture
async def played() -> AsyncIterator[Played]:
    """What a test plays."""
    played = Played()
    yield played
    played.server.close()
    played.writer.close()
    await asyncio.sleep(0)
    with contextlib.suppress(OSError):  # such as of a server that closed
        await asyncio.wait_for(played.writer.wait_closed(), SOON)


async def outcome(future: Any) -> Any:
    """The result, or the failure."""
    try:
        return await asyncio.wait_for(future, SOON)
    except (Unanswered, Refused) as failure:
        return failure


async def test_replies_go_to_the_callers_in_their_order_whatever_their_pieces_are(played: Played) -> None:
    link = await played.link()
    first, second, third = link.ask(b"a", 1, SILENCE), link.ask(b"b", 2, SILENCE), link.ask(b"c", 1, SILENCE)
    assert await played.received(3) == b"abc"
    for piece in (b":1\r\n:2", b"\r\n$3\r\nx", b"yz\r\n-OOM no\r\n"):
        await played.send(piece)
        await asyncio.sleep(0)
    assert await outcome(first) == [1]
    assert await outcome(second) == [2, b"xyz"]
    (refused,) = await outcome(third)
    assert refused.code == "OOM"
    assert link.is_free()


async def test_a_request_is_sent_at_once_where_nothing_is_under_way(played: Played) -> None:
    link = await played.link()
    link.ask(b"a", 1, SILENCE)
    assert played.server.recv(9) == b"a"  # the loop has not run since


async def test_the_reply_of_a_cancelled_caller_goes_to_nobody(played: Played) -> None:
    link = await played.link()
    first, second = link.ask(b"a", 1, SILENCE), link.ask(b"b", 1, SILENCE)
    await played.received(2)
    first.cancel()
    await played.send(b":1\r\n:2\r\n")
    assert await outcome(second) == [2]


async def test_who_is_cancelled_before_anything_was_sent_sends_nothing(played: Played) -> None:
    link = await played.link()
    first, second, third = (link.ask(word, 1, SILENCE) for word in (b"a", b"b", b"c"))
    second.cancel()
    assert await played.received(2) == b"ac"
    await played.send(b":1\r\n:3\r\n")
    assert [await outcome(first), await outcome(third)] == [[1], [3]]


async def test_whose_time_is_up_fails_alone_and_the_link_is_doubted_until_something_comes(played: Played) -> None:
    link = await played.link()
    hasty, patient = link.ask(b"a", 1, 0.05), link.ask(b"b", 1, SILENCE)
    failure = await outcome(hasty)
    assert isinstance(failure, Unanswered)
    assert failure.sent
    assert not link.closed
    assert not link.is_free()
    await played.send(b":1\r\n:2\r\n")
    assert await outcome(patient) == [2]
    assert link.is_free()


async def test_a_silent_server_is_given_up_for_all(played: Played) -> None:
    link = await played.link(silence=0.2)
    waiting = [link.ask(b"a", 1, 0.2), link.ask(b"b", 2, 0.2)]
    await played.received(2)
    failures = [await outcome(each) for each in waiting]
    assert [failure.sent for failure in failures] == [True, True]
    assert link.closed
    await asyncio.sleep(0)
    assert played.closed == [link]
    late = await outcome(link.ask(b"c", 1, SILENCE))
    assert not late.sent


async def test_what_the_server_does_not_take_is_not_sent_and_says_so(played: Played) -> None:
    link = await played.link(silence=0.3)
    request = b"x" * LARGE_REQUEST_BYTES
    waiting = [link.ask(request, 1, 0.3) for _ in range(100)]
    failures = [await outcome(each) for each in waiting]
    assert failures[0].sent
    assert not failures[-1].sent
    assert sorted(failures, key=lambda each: not each.sent) == failures
    assert link.closed


async def test_no_more_is_buffered_than_the_transport_takes_and_nothing_is_lost(played: Played) -> None:
    link = await played.link()
    request = b"x" * LARGE_REQUEST_BYTES
    waiting = [link.ask(request, 1, SILENCE) for _ in range(100)]
    await asyncio.sleep(0)
    assert played.writer.transport.get_write_buffer_size() < 4 * LARGE_REQUEST_BYTES
    await played.received(100 * LARGE_REQUEST_BYTES)
    assert link.is_free()
    await played.send(b"".join(b":%d\r\n" % number for number in range(100)))
    assert [await outcome(each) for each in waiting] == [[number] for number in range(100)]


async def test_a_server_that_has_begun_to_answer_may_take_longer(played: Played) -> None:
    link = await played.link()
    waiting = link.ask(b"a", 2, SILENCE)
    await played.received(1)
    link.get_buffer(-1)[:4] = b":1\r\n"
    link.buffer_updated(4)
    assert link.begun() == [1]
    link._sent[0].until = 0.0  # the caller's time was up long ago
    link._end_waits()
    await played.send(b":2\r\n")
    assert await outcome(waiting) == [1, 2]
    assert link.begun() == []


async def test_a_large_reply_that_takes_long_to_come_is_no_silence_for_those_behind_it(played: Played) -> None:
    link = await played.link()
    large, behind = link.ask(b"a", 1, SILENCE), link.ask(b"b", 1, SILENCE)
    await played.received(2)
    for part in (b"$%d\r\n" % PARTS, *[b"x"] * PARTS):
        link.get_buffer(-1)[: len(part)] = part  # each part by itself, whatever the kernel would join
        link.buffer_updated(len(part))
    link._arriving_since -= STUCK_SECONDS
    assert not link.is_free()
    for expected in link._sent:
        expected.until = 0.0  # their time was up long ago
    link._end_waits()
    await played.send(b"\r\n:2\r\n")
    assert await outcome(large) == [b"x" * PARTS]
    assert await outcome(behind) == [2]
    assert link.is_free()


@pytest.mark.parametrize("garbage", [b"?what\r\n", b":1\r\n:2\r\n:3\r\n"], ids=["nonsense", "unasked"])
async def test_what_nobody_asked_for_closes_the_link(played: Played, garbage: bytes) -> None:
    link = await played.link()
    waiting = [link.ask(b"a", 1, SILENCE), link.ask(b"b", 1, SILENCE)]
    await played.received(2)
    await played.send(garbage)
    ends = [await outcome(each) for each in waiting]
    assert link.closed
    assert [getattr(end, "sent", end) for end in ends] in ([True, True], [[1], [2]])


async def test_a_server_that_closes_leaves_open_what_was_sent(played: Played) -> None:
    link = await played.link()
    waiting = link.ask(b"a", 1, SILENCE)
    played.server.close()
    failure = await outcome(waiting)
    assert failure.sent
    assert link.closed


async def test_a_node_that_is_no_master_any_more_answers_who_waits_and_is_left(played: Played) -> None:
    link = await played.link()
    first, second = link.ask(b"a", 1, SILENCE), link.ask(b"b", 1, SILENCE)
    await played.received(2)
    await played.send(b"-READONLY no\r\n")
    (refused,) = await outcome(first)
    assert refused.code == "READONLY"
    assert link.retired
    assert not link.is_free()
    assert not link.closed
    await played.send(b":2\r\n")
    assert await outcome(second) == [2]
    assert link.closed


async def test_in_a_flood_of_cancellations_everyone_gets_their_own_reply(played: Played) -> None:
    """The server sends back what it was asked, in pieces of any size."""
    link = await played.link()
    dice = random.Random(7)

    async def echo() -> None:
        while data := await asyncio.get_running_loop().sock_recv(played.server, dice.randint(1, 400)):
            await played.send(data)

    async def call(number: int) -> None:
        word = b"$5\r\n%05d\r\n" % number
        assert await link.ask(word, 1, SILENCE) == [b"%05d" % number]

    server = asyncio.ensure_future(echo())
    for start in range(0, 3000, 100):
        tasks = [asyncio.ensure_future(call(start + number)) for number in range(100)]
        for _ in range(dice.randint(0, 4)):
            await asyncio.sleep(0)
        for task in dice.sample(tasks, 50):
            task.cancel()
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SOON)
        assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}
        assert ends.count(None) >= 50
    server.cancel()
