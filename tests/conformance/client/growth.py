"""`python -m tests.conformance.client.growth URL KIND N`: by how many bytes a client grows by N names of others.

The first thousand names are not counted: some caches keep something of each name until they are full.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from shardq import AsyncClient, Client, ShardqError
from shardq.gateway.tokens import Tokens

FIRST: Final = 1000
Ask = Callable[[range], object]


@contextmanager
def queues(url: str) -> Iterator[Ask]:
    """An end point that tells of the queue in its path."""
    with Client.from_url(url) as client:

        def ask(numbers: range) -> None:
            for number in numbers:
                with contextlib.suppress(ShardqError):
                    client.queue(f"missing-{number}").stats()

        yield ask


@contextmanager
def async_queues(url: str) -> Iterator[Ask]:
    """The same, with asyncio."""
    with asyncio.Runner() as runner:
        client = AsyncClient.from_url(url)

        async def ask(numbers: range) -> None:
            for number in numbers:
                with contextlib.suppress(ShardqError):
                    await client.queue(f"missing-{number}").stats()

        yield lambda numbers: runner.run(ask(numbers))
        runner.run(client.aclose())


@contextmanager
def writer(url: str) -> Iterator[Ask]:
    """One that writes to them."""
    with Client.from_url(url) as client, contextlib.suppress(ShardqError), client.writer() as open_writer:

        def ask(numbers: range) -> None:
            for number in numbers:
                written = open_writer.write(f"missing-{number}", b"x", shard_key="t")
                with contextlib.suppress(ShardqError):
                    written.result(10)
            open_writer._failed.clear()  # the last 1,000 errors, which `close` raises: no names

        yield ask


@contextmanager
def routers(url: str) -> Iterator[Ask]:
    """One that publishes to routers of their choice."""
    with Client.from_url(url) as client:

        def ask(numbers: range) -> None:
            for number in numbers:
                client.publish("topic", b"x", shard_key="t", router=f"missing-{number}")

        yield ask


@contextmanager
def topics(url: str) -> Iterator[Ask]:
    """One that publishes topics of their choice."""
    with Client.from_url(url) as client:
        client.bind("orders.*", client.queue("orders", create=True))

        def ask(numbers: range) -> None:
            for number in numbers:
                client.publish(f"topic.{number}", b"x", shard_key="t")

        yield ask


@contextmanager
def shard_keys(url: str) -> Iterator[Ask]:
    """A producer whose tenants each bring a shard key of their own."""
    with Client.from_url(url) as client:
        queue = client.queue("shard-keys", streams=64, streams_per_shard=4)

        def ask(numbers: range) -> None:
            for begin in range(numbers.start, numbers.stop, 500):
                queue.write_many([(b"x", f"tenant-{number}") for number in range(begin, begin + 500)])

        yield ask


@contextmanager
def tokens(_: str) -> Iterator[Ask]:
    """A gateway that is shown tokens which it does not know."""
    known = Tokens(())

    def ask(numbers: range) -> None:
        for number in numbers:
            assert known.find(f"token-{number}") is None

    yield ask


KINDS: Final = {each.__name__: each for each in (queues, async_queues, writer, routers, shard_keys, topics, tokens)}


def grown(url: str, kind: str, count: int) -> int:
    """What stays allocated of so many names."""
    with KINDS[kind](url) as ask:
        ask(range(FIRST))
        gc.collect()
        tracemalloc.start()
        ask(range(FIRST, FIRST + count))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]


if __name__ == "__main__":
    print(grown(sys.argv[1], sys.argv[2], int(sys.argv[3])))
