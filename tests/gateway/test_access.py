"""Who may call what, over which connections; and how a gateway ends, and reads its tokens anew."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from shardq import AsyncClient, ConfigError
from shardq.datasink import messages
from tests.gateway.conftest import GatewayProcess, Start, TokenFile
from tests.gateway.producer import Producer, happened, request
from tests.gateway.test_storing import contents, made
from tests.servers import Server

pytestmark = pytest.mark.once
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def every_method() -> list[str]:
    """All methods of all services that a gateway has, and some that it has not."""
    services = [
        messages.descriptors().FindServiceByName(messages.SERVICE),
        *health_pb2.DESCRIPTOR.services_by_name.values(),
        *reflection_pb2.DESCRIPTOR.services_by_name.values(),
    ]
    found = [f"/{service.full_name}/{method.name}" for service in services for method in service.methods]
    assert {messages.SEND, CHECK, WATCH, REFLECTION} <= set(found)
    return [*found, "/grpc.channelz.v1.Channelz/GetServers", f"/{messages.SERVICE}/Other", "/x/y"]


async def status_of(channel: Any, method: str, kind: str, token: str = "", *, streams: bool = False) -> grpc.StatusCode:
    """The status of a call with an empty request; where requests are a stream, only if it *streams*.

    A stream's request that meets a refusal is told as an internal error (https://github.com/grpc/grpc/issues/36066).
    """
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    call = getattr(channel, kind)(method)
    requests: Any = b"" if kind.startswith("unary") else iter([b""]) if streams else None
    made = call(requests, metadata=metadata, timeout=20)
    try:
        if kind.endswith("stream"):
            await made.read()
        else:
            await made
    except grpc.RpcError as error:
        return error.code()
    finally:
        made.cancel()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
@pytest.mark.parametrize("token", ["", "shardq_wrong"])
async def test_without_a_token_nothing_but_the_health_check_is_open(
    start: Start, tokens: TokenFile, kind: str, token: str
) -> None:
    tokens.add("somebody")
    async with start(tokens=tokens.path, reflection=True) as (gateway, address):
        async with grpc.aio.insecure_channel(address) as channel:
            for method in every_method():
                if method != CHECK:
                    assert await status_of(channel, method, kind, token) == grpc.StatusCode.UNAUTHENTICATED, method
            assert await status_of(channel, CHECK, "unary_unary") == grpc.StatusCode.OK
        assert gateway.totals().denied == len(every_method()) - 1


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer {} {}", "Bearer {}x"])
async def test_a_token_in_another_form_is_none(start: Start, tokens: TokenFile, value: str) -> None:
    secret = tokens.add("somebody")
    async with start(tokens=tokens.path) as (_, address), grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(messages.SEND)(metadata=(("authorization", value.replace("{}", secret)),))
        assert await call.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_health_and_reflection(start: Start, tokens: TokenFile) -> None:
    secret = tokens.add("somebody")
    for reflects in (True, False):
        async with (
            start(tokens=tokens.path, reflection=reflects) as (_, address),
            grpc.aio.insecure_channel(address) as channel,
        ):
            check = channel.unary_unary(CHECK, response_deserializer=health_pb2.HealthCheckResponse.FromString)
            asked = health_pb2.HealthCheckRequest(service=messages.SERVICE).SerializeToString()
            assert (await check(asked)).status == health_pb2.HealthCheckResponse.SERVING
            status = await status_of(channel, REFLECTION, "stream_stream", secret, streams=reflects)
            assert status == (grpc.StatusCode.OK if reflects else grpc.StatusCode.UNIMPLEMENTED)


async def serves(address: str, credentials: Any, token: str) -> bool:
    """Whether a client with these gets news from the gateway."""
    async with Producer(address, token, credentials) as producer:
        await producer.until(lambda: producer.news or producer.code is not None)
        return producer.news is not None


async def test_tls_and_client_certificates(start: Start, tokens: TokenFile, tmp_path: Path) -> None:
    secret, authority = tokens.add("somebody"), trustme.CA()
    own, client = authority.issue_cert("localhost", "127.0.0.1"), authority.issue_cert("edge@example.org")
    stranger = trustme.CA()
    paths = {name: tmp_path / name for name in ("cert", "key", "ca")}
    paths["cert"].write_bytes(b"".join(each.bytes() for each in own.cert_chain_pems))
    paths["key"].write_bytes(own.private_key_pem.bytes())
    authority.cert_pem.write_to_path(str(paths["ca"]))
    root = authority.cert_pem.bytes()
    plain = grpc.ssl_channel_credentials(root)
    known = grpc.ssl_channel_credentials(root, client.private_key_pem.bytes(), client.cert_chain_pems[0].bytes())
    foreign_cert = stranger.issue_cert("edge@example.org")
    foreign = grpc.ssl_channel_credentials(
        root, foreign_cert.private_key_pem.bytes(), foreign_cert.cert_chain_pems[0].bytes()
    )
    tls = {"tokens": tokens.path, "tls_cert": paths["cert"], "tls_key": paths["key"], "insecure": False}
    async with start(**tls) as (_, address):
        assert await serves(address, plain, secret)
        assert not await serves(address, plain, "wrong")
        assert not await serves(address, None, secret)
        assert not await serves(address, grpc.ssl_channel_credentials(stranger.cert_pem.bytes()), secret)
    async with start(client_ca=paths["ca"], **tls) as (_, address):
        assert await serves(address, known, secret)
        assert not await serves(address, known, ""), "the token is needed all the same"
        assert not await serves(address, plain, secret)
        assert not await serves(address, foreign, secret)


async def test_two_gateways_cannot_share_an_address(start: Start) -> None:
    async with start() as (_, address):
        with pytest.raises(ConfigError, match="cannot listen"):
            async with start(listen=address):
                pass


async def test_a_private_socket_serves_too(
    start: Start, tmp_path: Path, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start(listen=f"unix:{tmp_path}/s") as (_, address), Producer(address) as producer:
        await producer.send(request(1, queue_name))
        await producer.until(lambda: producer.acked)


Run = Callable[..., GatewayProcess]


@pytest.mark.runs_in("test-all")
async def test_sigterm_drains_what_was_received_and_exits_with_zero(
    run_gateway: Run, server: Server, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    gateway = run_gateway("--insecure", "--timeout", "60")
    async with Producer(gateway.address) as producer:
        await producer.send(request(0, queue_name))
        await producer.until(lambda: producer.acked)
        server.pause()
        try:
            await producer.send(*[request(number, queue_name) for number in range(1, 600)])
            await producer.say(name="edge")  # what was sent before has been received when this has
            gateway.signal(signal.SIGTERM)
            await producer.until(lambda: producer.news.draining)
            assert producer.acked == [b"id-0"]
        finally:
            server.resume()
        assert await producer.ended() == grpc.StatusCode.OK
        assert len(producer.acked) == 600
    code, told = await gateway.ended()
    assert code == 0, told
    assert "received 600" in told
    assert len(await contents(redis_client, queue_name)) == 600


@pytest.mark.runs_in("test-all")
async def test_a_second_signal_ends_it_at_once(
    run_gateway: Run, server: Server, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    gateway = run_gateway("--insecure", "--timeout", "60", "--grace", "600")
    async with Producer(gateway.address) as producer:
        await producer.send(request(0, queue_name))
        await producer.until(lambda: producer.acked)
        server.pause()
        try:
            await producer.send(request(1, queue_name))
            gateway.signal(signal.SIGTERM)
            await producer.until(lambda: producer.news.draining)
            gateway.signal(signal.SIGTERM)
            code, _ = await gateway.ended()
            assert code == 128 + signal.SIGTERM
        finally:
            server.resume()


@pytest.mark.runs_in("test-all")
async def test_sighup_reads_the_tokens_anew_and_a_bad_file_changes_nothing(
    run_gateway: Run, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    kept, gone = tokens.add("kept", queues=["other"]), tokens.add("gone")
    gateway = run_gateway("--tokens", str(tokens.path))
    async with Producer(gateway.address, kept) as keeps, Producer(gateway.address, gone) as leaves:
        await keeps.send(request(1, queue_name))
        await keeps.until(lambda: b"id-1" in keeps.refused)
        await leaves.until(lambda: leaves.news)
        tokens.path.write_text("rubbish =")
        gateway.signal(signal.SIGHUP)
        async with Producer(gateway.address, gone) as again:
            await again.until(lambda: again.news)
        tokens._tables["kept"] = tokens._tables["kept"].replace('["other"]', f'["{queue_name}"]')
        tokens.remove("gone")
        new = tokens.add("new")
        gateway.signal(signal.SIGHUP)
        assert await leaves.ended() == grpc.StatusCode.UNAUTHENTICATED
        await keeps.send(request(2, queue_name))
        await keeps.until(lambda: keeps.acked == [b"id-2"])
        async with Producer(gateway.address, new) as fresh:
            await fresh.until(lambda: fresh.news)
        async with Producer(gateway.address, gone) as again:
            assert await again.ended() == grpc.StatusCode.UNAUTHENTICATED
    gateway.signal(signal.SIGTERM)
    code, told = await gateway.ended()
    assert code == 0
    assert "the tokens stay as they are" in told
    assert "read 2 tokens" in told
    assert not any(secret in told for secret in (kept, gone, new))


@pytest.mark.runs_in("test-all")
async def test_many_connections_are_served_at_once(start: Start, redis_client: AsyncClient, queue_name: str) -> None:
    await made(redis_client, queue_name)
    async with start(max_connections=150, connections_per_token=150) as (gateway, address):

        async def one(number: int) -> None:
            async with Producer(address, options=[("grpc.use_local_subchannel_pool", 1)]) as producer:
                await producer.send(*[request(1000 * number + each, queue_name) for each in range(10)])
                await producer.until(lambda: len(producer.acked) == 10)

        await asyncio.gather(*[one(number) for number in range(100)])
        await happened(lambda: not gateway.connections)
        assert gateway.totals().connections == 100
    assert len(await contents(redis_client, queue_name)) == 1000
