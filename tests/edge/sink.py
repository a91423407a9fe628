"""A small DataSink in the test's own process, which acks what it gets, or does what it is told to do instead."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from shardq.datasink.batches import members_in
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
from shardq.datasink.runs import ids_in, runs_of


@dataclass
class Sink:
    """What came, and what to do with it. `doubled` came again after the producer had said that it would not.

    With `most_prefix` it remembers prefixes of so many bytes, those of the last call. `named` has the number of the
    prefix of each batch, 0 for none; `unknown` counts those that named one which it does not have.

    With `batches`, it says that it takes so many messages in one; without, it is an older gateway, which knows none.
    `requests` has each message of a batch by itself, `sizes` how many each request had, as long as it was.

    `act` returns "ack", "keep" (say nothing), "lose" (store, no ack), "refuse" (for good, or "refuse REASON"), "drop"
    (as from a full FIFO), "twice" (an ack, and then more answers), "babble" (an answer that is no protobuf) or "cut".
    """

    capacity: int = 1000
    batches: int = 0
    act: Callable[[Any, int], str] = lambda request, number: "ack"
    knows_dictionaries: bool = True
    most_prefix: int = 0
    prefixes: dict[int, bytes] = field(default_factory=dict)
    parts: dict[int, bytes] = field(default_factory=dict)
    end: int = 0
    named: list[int] = field(default_factory=list)
    unknown: int = 0
    requests: list[Any] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    stored: dict[bytes, bytes] = field(default_factory=dict)
    released: set[bytes] = field(default_factory=set)
    doubled: list[bytes] = field(default_factory=list)
    dictionaries: dict[int, bytes] = field(default_factory=dict)
    infos: list[Any] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    most_unacked: int = 0
    address: str = ""

    async def send(self, requests: Any, context: Any) -> Any:
        """The method Send."""
        self.metadata.append(dict(context.invocation_metadata()))
        self.prefixes.clear()
        self.parts.clear()
        self.end = 0
        bounds = {"max_batch_messages": self.batches, "max_batch_bytes": 2**18 if self.batches else 0}
        info = ServiceMessage(capacity=self.capacity, max_message=2**20, max_prefix_bytes=self.most_prefix, **bounds)
        yield Response(version=1, info=info)
        unacked = 0
        async for request in requests:
            if request.WhichOneof("payload") == "info":
                for answer in self.inform(request.info):
                    yield answer
                continue
            self.lengths.append(request.ByteSize())
            if request.batch.prefix and request.batch.prefix not in self.prefixes:
                self.unknown += 1
                yield self.news(dropped=ids_in(request.batch.ids, self.batches))
                continue
            messages = self.taken_apart(request)
            self.sizes.append(len(messages))
            unacked += len(messages)
            self.most_unacked = max(self.most_unacked, unacked)
            for each in messages:
                self.requests.append(each)
                action = self.act(each, len(self.requests))
                if action == "cut":
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
                for answer in self.answers(action, each):
                    yield answer
                unacked -= action not in ("keep", "lose", "babble")

    def answers(self, action: str, request: Any) -> Iterator[Any]:
        """What to say to a request."""
        named = {"runs": runs_of([request.message_id])} if self.batches else {"message_ids": [request.message_id]}
        ack = Response(version=1, ack=AckMessage(**named))
        if action in ("ack", "lose", "twice"):
            self.doubled += [request.message_id] if request.message_id in self.released else []
            self.stored[request.message_id] = self.payload(request)
        match action.split():
            case ["ack"]:
                yield ack
            case ["twice"]:
                yield from (ack, ack, self.refusal(request, "INVALID"), self.refusal(request, "NO_QUEUE"))
            case ["refuse", *reasons]:
                yield self.refusal(request, *reasons or ["INVALID"])
            case ["drop"]:
                yield Response(version=1, info=ServiceMessage(capacity=self.capacity, dropped=[request.message_id]))
            case ["babble"]:
                yield b"\xff\xff no protobuf"

    def refusal(self, request: Any, reason: str) -> Any:
        """A response that refuses a request."""
        number = Reason.values_by_name[reason].number
        return Response(
            version=1,
            refused=Refusals(refusals=[Refusal(message_id=request.message_id, reason=number, text="not for you")]),
        )

    def inform(self, info: Any) -> Iterator[Any]:
        """Answer what a producer says of itself."""
        self.infos.append(info)
        self.released.update(info.released)
        self.released.update(ids_in(info.released_runs, 10_000))
        if info.dictionary.content:
            self.dictionaries[info.dictionary.id] = info.dictionary.content
            yield Response(version=1, info=ServiceMessage(known_dictionaries=[info.dictionary.id]))
        if info.HasField("offered_prefix"):
            assert self.most_prefix, "an older gateway knows no prefixes"
            offered = info.offered_prefix
            content = b"".join(part for at, part in self.parts.items() if at >= offered.at)
            if offered.at in self.parts and len(content) == offered.bytes <= self.most_prefix:
                self.prefixes = dict([*self.prefixes.items(), (offered.number, content)][-2:])
            yield self.news()
        for each in info.offered_dictionaries if self.knows_dictionaries else ():
            known = "known_dictionaries" if each in self.dictionaries else "wanted_dictionaries"
            yield Response(version=1, info=ServiceMessage(**{known: [each]}))

    def news(self, **fields: Any) -> Any:
        """A response that says which prefixes are known."""
        return Response(version=1, info=ServiceMessage(known_prefixes=list(self.prefixes), **fields))

    def taken_apart(self, request: Any) -> list[Any]:
        """The messages of a batch, each as a request of its own; or the request itself."""
        if request.WhichOneof("payload") != "batch":
            return [request]
        assert self.batches, "an older gateway knows no batches"
        ids = ids_in(request.batch.ids, self.batches)
        content = request.batch.plain or self.decompressed(request.batch.zstd, request.batch.prefix)
        assert len(content) <= 2**18
        self.named.append(request.batch.prefix)
        if request.batch.HasField("part"):
            assert self.most_prefix, "an older gateway knows no prefixes"
            at = request.batch.part.at
            self.parts = {**(self.parts if at == self.end else {}), at: content}
            self.end = at + len(content)
        envelopes, keys, members = members_in(content, len(ids))
        return [
            Request(
                version=1, message_id=message_id, queue=envelope.queue, topic=envelope.topic, codec=envelope.codec,
                headers=envelope.headers, delay_ms=envelope.delay_ms, shard_key=keys[each.shard_key],
                plain_message=each.payload,
            )
            for message_id, each in zip(ids, members, strict=True)
            if (envelope := envelopes[each.envelope])
        ]  # fmt: skip

    def payload(self, request: Any) -> bytes:
        """The payload of a request, as a gateway would read it."""
        if request.WhichOneof("payload") == "plain_message":
            return bytes(request.plain_message)
        return self.decompressed(request.zstd_compressed)

    def decompressed(self, frame: bytes, prefix: int = 0) -> bytes:
        """The content of a frame."""
        if prefix:
            return bytes(zstd.decompress(frame, zstd_dict=zstd.ZstdDict(self.prefixes[prefix], is_raw=True).as_prefix))
        facts = zstd.get_frame_info(frame)
        assert facts.decompressed_size is not None
        dictionary = zstd.ZstdDict(self.dictionaries[facts.dictionary_id]) if facts.dictionary_id else None
        return bytes(zstd.decompress(frame, zstd_dict=dictionary))


def serialized(response: Any) -> bytes:
    """The bytes of a response; what is bytes already goes out as it is."""
    return response if isinstance(response, bytes) else bytes(response.SerializeToString())


@contextlib.contextmanager
def running(sink: Sink, address: str = "127.0.0.1:0") -> Iterator[Sink]:
    """Serve the sink in a thread with an event loop of its own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            sink.send, request_deserializer=Request.FromString, response_serializer=serialized
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
