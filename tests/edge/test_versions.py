"""Producers and gateways of other versions: each pair speaks as the older one can, and each message is stored once."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from shardq import AsyncClient
from shardq.datasink import messages
from shardq.datasink.messages import FILE, PACKAGE, Request, Response
from shardq.edge import AsyncEdge, EdgeMessage
from shardq.edge import answers as edge_answers
from shardq.edge import prefixes as edge_prefixes
from shardq.edge.effort import Effort
from shardq.gateway.connection import ProducerConnection
from tests.gateway.conftest import Start, redis_client, start
from tests.gateway.test_storing import contents, made

__all__ = ["redis_client", "start"]  # pytest finds the fixtures here

pytestmark = [pytest.mark.timeout(120), pytest.mark.once, pytest.mark.runs_in("test-all")]
NEWS: Final = {
    "singles": ("max_batch_messages", "max_batch_bytes", "max_prefix_bytes", "known_prefixes"),
    "batches": ("max_prefix_bytes", "known_prefixes"),
    "prefixes": (),
}
"""What versions do not know of ServiceMessage."""
ASKED: Final = {
    "singles": {"Request": ("batch",), "ClientInfo": ("released_runs", "offered_prefix")},
    "batches": {"Batch": ("part", "prefix"), "ClientInfo": ("offered_prefix",)},
    "prefixes": {},
}
"""And of what a client sends: for such a gateway these are unknown fields."""


class Older:
    """The class of requests as a *version* had it: it passes over what it does not know."""

    def __init__(self, version: str) -> None:
        self._kind = older(version)

    def FromString(self, data: bytes) -> Any:  # noqa: N802 (protobuf's name)
        request = self._kind.FromString(data)
        request.DiscardUnknownFields()
        return Request.FromString(request.SerializeToString())


def older(version: str) -> Any:
    """The class of requests with the fields of a *version*."""
    found = descriptor_pb2.FileDescriptorSet.FromString(
        files("shardq.datasink").joinpath("shardq_edge.binpb").read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        for kind in file.message_type:
            kept = [each for each in kind.field if each.name not in ASKED[version].get(kind.name, ())]
            del kind.field[:]
            kind.field.extend(kept)
        pool.Add(file)
    return message_factory.GetMessageClassesForFiles([FILE], pool)[f"{PACKAGE}.Request"]


def without_news(info: Any, version: str) -> Any:
    for field in NEWS[version]:
        info.ClearField(field)
    return info


@pytest.mark.parametrize("gateways", NEWS)
@pytest.mark.parametrize("edges", NEWS)
async def test_any_two_versions_speak_as_the_older_one_can(
    start: Start, redis_client: AsyncClient, queue_name: str, tmp_path: Path, rng: Random,
    monkeypatch: pytest.MonkeyPatch, edges: str, gateways: str,
) -> None:  # fmt: skip
    class Heard:
        """What a producer of its version understands of an answer."""

        @staticmethod
        def FromString(data: bytes) -> Any:  # noqa: N802 (protobuf's name)
            response = Response.FromString(data)
            if response.WhichOneof("response") == "info":
                without_news(response.info, edges)
            return response

    news, unpack, named = ProducerConnection._news, ProducerConnection._unpack, list[int]()

    async def unpacked(self: ProducerConnection, given: Any) -> None:
        named.append(getattr(given, "prefix", 0))
        await unpack(self, given)

    monkeypatch.setattr(edge_answers, "Response", Heard)
    monkeypatch.setattr(edge_prefixes, "MAX_PREFIX_BYTES", 2**19)
    monkeypatch.setattr(Effort, "uses_prefix", True)
    monkeypatch.setattr(messages, "Request", Older(gateways))
    monkeypatch.setattr(ProducerConnection, "_news", lambda self, **given: without_news(news(self, **given), gateways))
    monkeypatch.setattr(ProducerConnection, "_unpack", unpacked)
    await made(redis_client, queue_name)
    common = [rng.randbytes(90) for _ in range(4500)]
    payloads = [b"%06d:" % each + b"".join(rng.choices(common, k=11)) for each in range(2500)]
    async with start() as (gateway, address), AsyncEdge(address, spool=tmp_path / "s.db") as edge:
        for at in range(0, len(payloads), 500):
            await edge.send_many(EdgeMessage(each, "t", queue_name) for each in payloads[at : at + 500])
            await edge.flush()
        status = await edge.status()
        assert (status.spool.acked, status.spool.refused, status.delivery.held) == (2500, 0, 0)
        assert status.delivery.connections == 1
        assert gateway.totals().refused == 0
    assert Counter(await contents(redis_client, queue_name)) == Counter(payloads)
    assert bool(named) == ("singles" not in (edges, gateways))
    assert any(named) == (edges == gateways == "prefixes")
