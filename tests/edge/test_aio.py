"""`AsyncEdge` is the twin of `Edge`."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path

import pytest

from shardq.edge import AsyncEdge, Edge, EdgeMessage
from shardq.edge.compression import Compressor
from shardq.errors import BackendTimeout, ClosedError
from tests.edge.sink import Sink, running
from tests.surface import members


async def test_what_was_sent_arrives(tmp_path: Path) -> None:
    with running(Sink()) as sink:
        async with AsyncEdge(sink.address, spool=tmp_path / "s.db") as edge:
            first = await edge.send({"a": 1}, queue="jobs", shard_key="t")
            rest = await edge.send_many(EdgeMessage(b"x", "t", queue="jobs") for _ in range(50))
            await edge.flush()
            assert {each.hex() for each in sink.stored} == {first, *rest}
            assert (await edge.status()).spool.acked == 51
            sink.act = lambda request, number: "keep"
            await edge.send(b"y", queue="jobs", shard_key="t")
            with pytest.raises(BackendTimeout, match="1 messages still wait"):
                await edge.flush(0.1)
        with pytest.raises(ClosedError):
            await edge.send(b"y", queue="jobs", shard_key="t")


async def test_what_takes_long_to_compress_keeps_the_loop_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is the user's: large frames are made beside it, and go out in their order."""
    frame, begun, goes_on = Compressor.frame, asyncio.Event(), threading.Event()
    loop, threads = asyncio.get_running_loop(), set[int]()

    def waits(self: Compressor, content: bytes) -> bytes | None:
        threads.add(threading.get_ident())
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(30), "the loop does not go on while this compresses"
        return frame(self, content)

    monkeypatch.setattr(Compressor, "frame", waits)
    with running(Sink(batches=500)) as sink:
        async with AsyncEdge(sink.address, spool=tmp_path / "s.db") as edge:
            await edge.send_many(EdgeMessage(b"%04d" % each + bytes(20_000), "t", queue="jobs") for each in range(100))
            await begun.wait()
            goes_on.set()
            await edge.flush()
    assert threading.get_ident() not in threads
    assert [sink.payload(each)[:4] for each in sink.requests] == [b"%04d" % each for each in range(100)]


def test_the_twins_are_alike() -> None:
    def shape(kind: type[object], name: str) -> list[tuple[str, object, object]]:
        signature = inspect.signature(getattr(kind, name))
        return [(each.name, each.default, each.kind) for each in signature.parameters.values()]

    def said(kind: type[object], name: str) -> str:
        """Each has examples of its own."""
        return str(inspect.getdoc(getattr(kind, name))).partition("\n>>>")[0]

    names = members(Edge).keys()
    assert names == members(AsyncEdge).keys()
    for name in (*names - {"close"}, "__init__"):
        assert shape(Edge, name) == shape(AsyncEdge, name)
        assert said(Edge, name) == said(AsyncEdge, name)
