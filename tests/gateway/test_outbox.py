"""What one client is told, and when its reading holds the gateway back."""

from __future__ import annotations

import asyncio
from typing import Any

from shardq.datasink.messages import Response, ServiceMessage
from shardq.gateway.memory import MemoryBudget
from shardq.gateway.outbox import MAX_IDS_IN_ANSWER, Outbox


class Client:
    """Notes what it is sent. While `reads` is not set, sending to it hangs."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.began, self.reads = asyncio.Event(), asyncio.Event()

    async def take(self, raw: bytes) -> None:
        self.began.set()
        await self.reads.wait()
        self.got.append(Response.FromString(raw))


def made(client: Client, most: int = 100) -> Outbox:
    return Outbox(client.take, lambda: ServiceMessage(capacity=7), most, MemoryBudget(1000).share("t"))


async def test_what_comes_while_an_answer_is_sent_shares_the_next_ones() -> None:
    client = Client()
    outbox = made(client)
    running = asyncio.create_task(outbox.run())
    outbox.ack([b"first"])
    await client.began.wait()
    for number in range(MAX_IDS_IN_ANSWER + 5):
        outbox.ack([b"%d" % number])
    outbox.refuse(b"r", 1, "x" * 1000)
    outbox.drop([b"d"])
    outbox.tell(ServiceMessage(wanted_dictionaries=[1]))
    outbox.tell(ServiceMessage(wanted_dictionaries=[2], capacity=5))
    assert not outbox.emptied.is_set()
    client.reads.set()
    await outbox.emptied.wait()
    first, news, many, rest, refused = client.got
    assert first.ack.message_ids == [b"first"]
    assert (news.info.dropped, news.info.capacity) == ([b"d"], 5)
    assert sorted(news.info.wanted_dictionaries) == [1, 2]
    assert (len(many.ack.message_ids), len(rest.ack.message_ids)) == (MAX_IDS_IN_ANSWER, 5)
    assert len(refused.refused.refusals[0].text) == 200
    outbox.drop([b"e"])
    await outbox.emptied.wait()
    assert client.got[-1].info.capacity == 7
    outbox.close()
    await running


async def test_there_is_no_room_while_a_client_does_not_read() -> None:
    client = Client()
    outbox = made(client, most=3)
    running = asyncio.create_task(outbox.run())
    outbox.ack([b"%d" % number for number in range(3)])
    await outbox.room()
    await client.began.wait()
    outbox.ack([b"%d" % number for number in range(4)])
    waiting = asyncio.create_task(outbox.room())
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    client.reads.set()
    await waiting
    outbox.close()
    await running


async def test_the_answer_under_way_is_sent_whole_before_the_end() -> None:
    client = Client()
    outbox = made(client)
    running = asyncio.create_task(outbox.run())
    outbox.ack([b"first"])
    await client.began.wait()
    outbox.ack([b"second"])
    outbox.close()
    assert not running.done()
    client.reads.set()
    await running
    assert [each.ack.message_ids for each in client.got] == [[b"first"]]
