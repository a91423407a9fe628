"""A hostile producer as a program of its own: many connections of one token, each of which sends as fast as it can.

    python -m tests.gateway.flood ADDRESS TOKEN KIND CONNECTIONS QUEUE

KIND says what it sends: one of KINDS, or a frame of FRAMES again and again, over a new call if one was ended. It prints
one line when all connections have had an answer, and goes on until it is ended. It is nice, since a real one would not
take the time of the gateway's own machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count, repeat
from typing import Any

import grpc
from backports import zstd

from shardq.datasink.messages import ClientInfo, Members, Request, Run
from tests.gateway.frames import FRAMES
from tests.gateway.producer import Producer, batch, request


def tiny(name: str, queue: str) -> Iterator[Any]:
    """Tiny messages to a queue that exists."""
    return (request(b"%s-%d" % (name.encode(), number), queue, plain_message=b"") for number in count())


def unknown(name: str, queue: str) -> Iterator[Any]:
    """Tiny messages, each to another queue that does not exist."""
    return (request(b"%d" % number, f"{queue}.{name}.{number}", plain_message=b"") for number in count())


def refused(name: str, queue: str) -> Iterator[Any]:
    """Messages that are not allowed."""
    return (request(b"%d" % number, f"no.{queue}", plain_message=b"") for number in count())


def released(name: str, queue: str) -> Iterator[Any]:
    """As many invented ids as one request may have, again and again."""
    yield request(b"first-" + name.encode(), queue)
    some = Request(version=1, info=ClientInfo(released=[b"%d" % number for number in range(10_000)]))
    while True:
        yield some


def batched(name: str, queue: str) -> Iterator[Any]:
    """Batches of tiny messages to a queue that exists."""
    for at in count(0, 500):
        yield batch(
            *[request(b"%s-%09d" % (name.encode(), each), queue, plain_message=b"") for each in range(at, at + 500)]
        )


def hollow(_name: str, _queue: str) -> Iterator[Any]:
    """Batches of one message, with as many empty envelopes as their bytes allow."""
    frame = zstd.compress(Members(envelope_sizes=[0] * (2**18 - 10)).SerializeToString())
    while True:
        yield batch(zstd=frame, ids=[Run(first=b"id", count=1)])


KINDS: dict[str, Callable[[str, str], Iterator[Any]]] = {
    each.__name__: each for each in (tiny, unknown, refused, released, batched, hollow)
}


async def pour(address: str, token: str, requests: Iterator[Any], ready: Callable[[], None]) -> None:
    """Send *requests* over one connection, until it ends."""
    async with Producer(address, token, options=[("grpc.use_local_subchannel_pool", 1)]) as producer:
        await producer.until(lambda: producer.news or producer.code is not None)
        ready()
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            for each in requests:
                await producer.send(each)
                producer.acked.clear()
                producer.refused.clear()
                producer.all_news.clear()


async def pour_again(address: str, token: str, frame: bytes, ready: Callable[[], None]) -> None:
    """Send *frame* over one connection after the other, each until it ends."""
    while True:
        await pour(address, token, repeat(frame), ready)


async def main(address: str, token: str, kind: str, connections: int, queue: str) -> None:
    """Flood."""
    left = connections

    def ready() -> None:
        nonlocal left
        left -= 1
        if not left:
            print("ready", flush=True)

    if kind in FRAMES:
        pours = [pour_again(address, token, FRAMES[kind](), ready) for _ in range(connections)]
    else:
        pours = [pour(address, token, KINDS[kind](str(number), queue), ready) for number in range(connections)]
    await asyncio.gather(*pours)


if __name__ == "__main__":
    os.nice(10)
    _, place, secret, what, many, name_of_queue = sys.argv
    asyncio.run(main(place, secret, what, int(many), name_of_queue))
