"""`AsyncEdge` is the twin of `Edge`."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from shardq.edge import AsyncEdge, Edge, EdgeMessage
from shardq.errors import BackendTimeout, ClosedError
from tests.edge.sink import Sink, running


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


def test_the_twins_are_alike() -> None:
    def shape(kind: type[object], name: str) -> list[tuple[str, object, object]]:
        signature = inspect.signature(getattr(kind, name))
        return [(each.name, each.default, each.kind) for each in signature.parameters.values()]

    for name in ("send", "send_many", "flush", "status", "__init__"):
        assert shape(Edge, name) == shape(AsyncEdge, name)
        assert inspect.getdoc(getattr(Edge, name)) == inspect.getdoc(getattr(AsyncEdge, name))
