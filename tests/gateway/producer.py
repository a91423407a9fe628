"""A client of the service DataSink for tests, which does as little by itself as it can."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Self

import grpc

from shardq.datasink import messages
from shardq.datasink.batches import members_of
from shardq.datasink.frames import zstd
from shardq.datasink.messages import Batch, ClientInfo, Request, Response
from shardq.datasink.runs import ids_in, runs_of

PATIENCE = 60.0


def request(number: int | bytes, queue: str = "", *, key: bytes = b"t", **fields: Any) -> Any:
    """A request with one message, whose payload is its number unless said otherwise."""
    message_id = number if isinstance(number, bytes) else b"id-%d" % number
    if "zstd_compressed" not in fields:
        fields.setdefault("plain_message", b"%d" % number if isinstance(number, int) else number)
    return Request(version=1, message_id=message_id, queue=queue, shard_key=key, **fields)


def batch(*requests: Any, dictionary: Any = None, **fields: Any) -> Any:
    """One request with all of these, as one frame unless *fields* of the Batch say otherwise."""
    if not fields:
        content = members_of(requests).SerializeToString()
        fields = {"zstd": zstd.compress(content, zstd_dict=dictionary)}
    fields.setdefault("ids", runs_of(each.message_id for each in requests))
    return Request(version=1, batch=Batch(**fields))


def serialized(request: Any) -> bytes:
    """The bytes of a request; what is bytes already goes out as it is."""
    return request if isinstance(request, bytes) else bytes(request.SerializeToString())


@asynccontextmanager
async def pouring(producer: Producer, queue: str, **fields: Any) -> AsyncIterator[asyncio.Task[None]]:
    """While *producer* sends one message after the other, as fast as it may. The task ends if it may no more."""

    async def pour() -> None:
        for number in count():
            await producer.send(request(number, queue, **fields))

    task = asyncio.create_task(pour())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Producer:
    """One call of Send. What came is in `acked` (in order), `refused` (by id), `dropped` and `news` (the last one)."""

    def __init__(self, address: str, token: str = "", credentials: Any = None, options: Any = None) -> None:
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options=options)
        else:
            self.channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.acked: list[bytes] = []
        self.refused: dict[bytes, Any] = {}
        self.dropped: list[bytes] = []
        self.news: Any = None
        self.all_news: list[Any] = []
        self.code: grpc.StatusCode | None = None
        self._changed = asyncio.Event()
        self._call: Any = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        send = self.channel.stream_stream(
            messages.SEND, request_serializer=serialized, response_deserializer=Response.FromString
        )
        self._call = send(metadata=self._metadata)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self.channel.close()

    async def _read(self) -> None:
        try:
            async for response in self._call:
                self._note(response)
                self._changed.set()
        except (grpc.RpcError, asyncio.CancelledError):
            pass
        if self._call.done():
            self.code = await self._call.code()
        self._changed.set()

    def _note(self, response: Any) -> None:
        match response.WhichOneof("response"):
            case "ack":
                self.acked += response.ack.message_ids
                self.acked += ids_in(response.ack.runs, 2**20)
            case "refused":
                self.refused |= {each.message_id: each for each in response.refused.refusals}
            case "info":
                self.news = response.info
                self.all_news.append(response.info)
                self.dropped += response.info.dropped

    async def send(self, *requests: Any) -> None:
        for each in requests:
            await self._call.write(each)

    async def until_acked(self, message: Any) -> None:
        """Send one message again and again while it is refused."""
        while message.message_id not in self.acked:
            self.refused.pop(message.message_id, None)
            await self.send(message)
            await self.until(lambda: message.message_id in self.acked or message.message_id in self.refused)

    async def say(self, **fields: Any) -> None:
        """Send news of this client."""
        await self.send(Request(version=1, info=ClientInfo(**fields)))

    async def done(self) -> None:
        """Say that nothing more comes."""
        await self._call.done_writing()

    async def until(self, condition: Any, timeout: float = PATIENCE) -> None:
        """Wait until *condition* holds, which is looked at whenever something came."""
        async with asyncio.timeout(timeout):
            while not condition():
                self._changed.clear()
                if condition():
                    return
                await self._changed.wait()

    async def ended(self, timeout: float = PATIENCE) -> grpc.StatusCode:
        """Wait for the end of the call; its status."""
        await self.until(lambda: self.code is not None, timeout)
        assert self.code is not None
        return self.code


async def happened(condition: Callable[[], Any], timeout: float = PATIENCE) -> None:
    """Wait for something within this event loop that tells nobody."""
    deadline = time.monotonic() + timeout
    while True:
        if condition():
            return
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.005)
