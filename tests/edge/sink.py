"""A small DataSink in the test's own process, which acks what it gets, or does what it is told to do instead."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from shardq.datasink.frames import zstd
from shardq.datasink.messages import (
    SEND,
    SERVICE,
    AckMessage,
    Reason,
    Refusal,
    Refusals,
    Request,
    Response,
    ServiceMessage,
)


@dataclass
class Sink:
    """What came, and what to do with it.

    `act` returns "ack", "keep" (say nothing), "lose" (store, no ack), "refuse", "drop" (as from a full FIFO) or "cut".
    """

    capacity: int = 1000
    act: Callable[[Any, int], str] = lambda request, number: "ack"
    knows_dictionaries: bool = True
    requests: list[Any] = field(default_factory=list)
    stored: dict[bytes, bytes] = field(default_factory=dict)
    released: set[bytes] = field(default_factory=set)
    dictionaries: dict[int, bytes] = field(default_factory=dict)
    infos: list[Any] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    most_unacked: int = 0
    address: str = ""

    async def send(self, requests: Any, context: Any) -> Any:
        """The method Send."""
        self.metadata.append(dict(context.invocation_metadata()))
        yield Response(version=1, info=ServiceMessage(capacity=self.capacity, max_message=2**20))
        unacked = 0
        async for request in requests:
            if request.WhichOneof("payload") == "info":
                for answer in self.inform(request.info):
                    yield answer
                continue
            self.requests.append(request)
            unacked += 1
            self.most_unacked = max(self.most_unacked, unacked)
            match self.act(request, len(self.requests)):
                case "ack":
                    self.stored[request.message_id] = self.payload(request)
                    unacked -= 1
                    yield Response(version=1, ack=AckMessage(message_ids=[request.message_id]))
                case "lose":
                    self.stored[request.message_id] = self.payload(request)
                case "refuse":
                    unacked -= 1
                    number = Reason.values_by_name["NOT_ALLOWED"].number
                    refusal = Refusal(message_id=request.message_id, reason=number, text="not for you")
                    yield Response(version=1, refused=Refusals(refusals=[refusal]))
                case "drop":
                    unacked -= 1
                    yield Response(version=1, info=ServiceMessage(capacity=self.capacity, dropped=[request.message_id]))
                case "cut":
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

    def inform(self, info: Any) -> Iterator[Any]:
        """Answer what a producer says of itself."""
        self.infos.append(info)
        self.released.update(info.released)
        if info.dictionary.content:
            self.dictionaries[info.dictionary.id] = info.dictionary.content
            yield Response(version=1, info=ServiceMessage(known_dictionaries=[info.dictionary.id]))
        for each in info.offered_dictionaries if self.knows_dictionaries else ():
            known = "known_dictionaries" if each in self.dictionaries else "wanted_dictionaries"
            yield Response(version=1, info=ServiceMessage(**{known: [each]}))

    def payload(self, request: Any) -> bytes:
        """The payload of a request, as a gateway would read it."""
        if request.WhichOneof("payload") == "plain_message":
            return bytes(request.plain_message)
        frame = request.zstd_compressed
        facts = zstd.get_frame_info(frame)
        assert facts.decompressed_size is not None
        dictionary = zstd.ZstdDict(self.dictionaries[facts.dictionary_id]) if facts.dictionary_id else None
        return bytes(zstd.decompress(frame, zstd_dict=dictionary))


@contextlib.contextmanager
def running(sink: Sink, address: str = "127.0.0.1:0") -> Iterator[Sink]:
    """Serve the sink in a thread with an event loop of its own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            sink.send, request_deserializer=Request.FromString, response_serializer=Response.SerializeToString
        )
        name = SEND.rpartition("/")[2]
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {name: handler}),))
        port = server.add_insecure_port(address)
        sink.address = f"127.0.0.1:{port}" if not address.startswith("unix:") else address
        await server.start()
        ready.set()
        await stop.wait()
        await server.stop(0)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield sink
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()
