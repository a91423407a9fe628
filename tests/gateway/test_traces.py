"""The trace context of a client: a link for those who do not trust it, and the parent if its token says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shardq import AsyncClient
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import Producer, batch, request
from tests.gateway.test_storing import made

pytestmark = pytest.mark.once
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
GIVEN = {"traceparent": PARENT, "tracestate": "a=b", "baggage": "user=root", "own": "x"}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    found, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield found
    provider.shutdown()


async def headers_of(client: AsyncClient, queue: str) -> dict[str, str]:
    delivery = await client.queue(queue).read(timeout=10)
    await delivery.ack()
    return dict(delivery.headers)


async def stored(start: Start, tokens: TokenFile, secret: str, sent: Any) -> None:
    """A gateway stores what is sent with this token."""
    async with start(tokens=tokens.path) as (_, address), Producer(address, secret) as producer:
        await producer.send(sent)
        await producer.until(lambda: producer.acked)


@pytest.mark.parametrize("batched", [True, False])
async def test_the_context_of_a_client_is_a_link(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, batched: bool
) -> None:
    await made(redis_client, queue_name)
    secret, given = tokens.add("t"), {**GIVEN, "Baggage": "user=root"}
    sent = request(1, queue_name, headers=given)
    await stored(start, tokens, secret, batch(sent) if batched else sent)
    assert await headers_of(redis_client, queue_name) == {"trace-link": PARENT, "link-state": "a=b", "own": "x"}


async def test_a_token_may_say_that_it_is_the_parent(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    await stored(start, tokens, tokens.add("t", continues_traces=True), request(1, queue_name, headers=GIVEN))
    assert await headers_of(redis_client, queue_name) == GIVEN


async def test_spans_of_the_gateway_and_of_workers_are_linked_and_have_traces_of_their_own(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, exporter: InMemorySpanExporter
) -> None:
    await made(redis_client, queue_name)
    await stored(start, tokens, tokens.add("t"), request(1, queue_name, headers=GIVEN))
    headers = await headers_of(redis_client, queue_name)
    (write,) = (span for span in exporter.get_finished_spans() if span.name == f"write {queue_name}")
    assert [f"{link.context.trace_id:032x}" for link in write.links] == [TRACE]
    assert write.context is not None
    assert write.context.trace_id != int(TRACE, 16)
    assert headers["traceparent"].split("-")[1] == f"{write.context.trace_id:032x}"
    assert headers["trace-link"] == PARENT


async def test_without_a_trace_of_the_gateway_a_worker_is_linked_to_the_client(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(redis_client, queue_name)
    await stored(start, tokens, tokens.add("t"), request(1, queue_name, headers=GIVEN))
    found, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    await headers_of(redis_client, queue_name)
    (read,) = (span for span in found.get_finished_spans() if span.name == f"read {queue_name}")
    assert [(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in read.links] == [(TRACE, SPAN)]
    assert read.links[0].context.trace_state == {"a": "b"}
    provider.shutdown()
