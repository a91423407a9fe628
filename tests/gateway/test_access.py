"""Who may call what, over which connections; and how a gateway ends, and reads its tokens anew."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from shardq import AsyncClient, ConfigError
from shardq.clock import SystemClock
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


class Certified:
    """An authority's certificates: the settings of a gateway that trusts it, and the credentials of its clients."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        own = self._authority.issue_cert("localhost", "127.0.0.1")
        paths = {name: folder / name for name in ("cert", "key", "ca")}
        paths["cert"].write_bytes(b"".join(each.bytes() for each in own.cert_chain_pems))
        paths["key"].write_bytes(own.private_key_pem.bytes())
        self._authority.cert_pem.write_to_path(str(paths["ca"]))
        self.tls: dict[str, Any] = {"tls_cert": paths["cert"], "tls_key": paths["key"], "insecure": False}
        self.ca = paths["ca"]

    def client(self, authority: trustme.CA | None = None) -> tuple[grpc.ChannelCredentials, str]:
        """Credentials with a new certificate of this or another authority, and its fingerprint."""
        issued = (authority or self._authority).issue_cert("edge@example.org")
        pem = issued.cert_chain_pems[0].bytes()
        found = grpc.ssl_channel_credentials(self._authority.cert_pem.bytes(), issued.private_key_pem.bytes(), pem)
        return found, hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode())).hexdigest()

    @property
    def plain(self) -> grpc.ChannelCredentials:
        """Credentials without a certificate."""
        return grpc.ssl_channel_credentials(self._authority.cert_pem.bytes())


async def test_tls_and_client_certificates(start: Start, tokens: TokenFile, tmp_path: Path) -> None:
    secret, certified, stranger = tokens.add("somebody"), Certified(tmp_path), trustme.CA()
    plain, (known, _), (foreign, _) = certified.plain, certified.client(), certified.client(stranger)
    tls = {"tokens": tokens.path, **certified.tls}
    async with start(**tls) as (_, address):
        assert await serves(address, plain, secret)
        assert not await serves(address, plain, "wrong")
        assert not await serves(address, None, secret)
        assert not await serves(address, grpc.ssl_channel_credentials(stranger.cert_pem.bytes()), secret)
    async with start(client_ca=certified.ca, **tls) as (_, address):
        assert await serves(address, known, secret)
        assert not await serves(address, known, ""), "the token is needed all the same"
        assert not await serves(address, plain, secret)
        assert not await serves(address, foreign, secret)


async def test_a_token_that_is_bound_to_a_certificate_holds_with_no_other(
    start: Start, tokens: TokenFile, tmp_path: Path
) -> None:
    certified = Certified(tmp_path)
    (one, first), (two, second), (other, _) = certified.client(), certified.client(), certified.client()
    spelled = ":".join(first[at : at + 2].upper() for at in range(0, 64, 2))  # as openssl prints it
    bound, free = tokens.add("bound", certificate_sha256=[spelled, second]), tokens.add("free")
    async with start(tokens=tokens.path, client_ca=certified.ca, **certified.tls) as (gateway, address):
        assert await serves(address, one, bound)
        assert await serves(address, two, bound)
        async with Producer(address, bound, other) as producer:
            assert await producer.ended() == grpc.StatusCode.UNAUTHENTICATED
        assert await serves(address, other, free)
        await happened(lambda: not gateway.connections)
        assert gateway.totals().denied == 1
        async with Producer(address, bound, one) as producer:
            await producer.until(lambda: producer.news)
            tokens.path.write_text(tokens.path.read_text().replace(spelled, first))
            assert await gateway.reload()
            assert producer.code is None, "it is the same certificate"
            tokens.path.write_text(tokens.path.read_text().replace(first, second))
            assert await gateway.reload()
            assert await producer.ended() == grpc.StatusCode.UNAUTHENTICATED
        assert not await serves(address, one, bound)


async def test_a_token_that_is_bound_needs_a_gateway_that_asks_for_certificates(
    start: Start, tokens: TokenFile, tmp_path: Path
) -> None:
    certified, free = Certified(tmp_path), tokens.add("free")
    tls = {"tokens": tokens.path, **certified.tls}
    async with start(**tls) as (gateway, address):
        tokens.add("bound", certificate_sha256="00" * 32)
        assert not await gateway.reload()
        assert await serves(address, certified.plain, free), "the tokens stay as they were"
    with pytest.raises(ConfigError, match="'bound' is bound to a certificate"):
        async with start(**tls):
            pass


class Later(SystemClock):
    """A clock that is put forward."""

    ahead = 0.0

    def wall(self) -> float:
        return super().wall() + self.ahead


async def test_a_token_that_has_expired_is_refused_and_ends_what_is_open(
    start: Start, tokens: TokenFile, caplog: pytest.LogCaptureFixture
) -> None:
    soon = tokens.add("soon", expires=datetime.now(UTC) + timedelta(hours=1))
    never = tokens.add("never")
    tokens.add("over", expires=datetime(2020, 1, 1, tzinfo=UTC))
    async with start(tokens=tokens.path) as (gateway, address):
        gateway.clock = clock = Later()
        async with Producer(address, soon) as open_one, Producer(address, never) as other:
            await open_one.until(lambda: open_one.news)
            await other.until(lambda: other.news)
            clock.ahead = 3601
            assert await open_one.ended() == grpc.StatusCode.UNAUTHENTICATED
            assert not await serves(address, None, soon)
            assert await serves(address, None, never)
            assert other.code is None
    assert caplog.text.count("the token soon has expired, and is still used") == 1


async def test_a_token_is_used_again_after_a_later_expiry_was_read(start: Start, tokens: TokenFile) -> None:
    secret = tokens.add("t", expires=datetime(2020, 1, 1, tzinfo=UTC))
    async with start(tokens=tokens.path) as (gateway, address):
        assert not await serves(address, None, secret)
        tokens.path.write_text(tokens.path.read_text().replace("2020", "2120"))
        assert await gateway.reload()
        assert await serves(address, None, secret)


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
