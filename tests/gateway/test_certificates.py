"""A gateway takes a new certificate at SIGHUP, and drops nobody."""

from __future__ import annotations

import asyncio
import signal
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import trustme

from shardq import AsyncClient, ConfigError
from shardq.gateway.certificates import Certificates
from tests.gateway.conftest import GatewayProcess, TokenFile
from tests.gateway.producer import Producer, request
from tests.gateway.test_storing import made

pytestmark = pytest.mark.once


class Files:
    """The certificate's files, which a test replaces."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key = folder / "cert", folder / "key"

    def write(self, authority: trustme.CA) -> grpc.ChannelCredentials:
        """Write a certificate of *authority*; the credentials of a client that trusts it."""
        own = authority.issue_cert("localhost", "127.0.0.1")
        self.cert.write_bytes(b"".join(each.bytes() for each in own.cert_chain_pems))
        self.key.write_bytes(own.private_key_pem.bytes())
        return grpc.ssl_channel_credentials(authority.cert_pem.bytes())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def issuer(address: str) -> bytes:
    """The certificate that the gateway shows to a new connection."""
    host, _, port = address.rpartition(":")
    return (await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))).encode()


@pytest.mark.runs_in("test-all")
async def test_sighup_takes_a_new_certificate_and_drops_nobody(
    run_gateway: Callable[..., GatewayProcess],
    redis_client: AsyncClient,
    queue_name: str,
    tokens: TokenFile,
    files: Files,
) -> None:
    await made(redis_client, queue_name)
    secret, first, second = tokens.add("somebody"), trustme.CA(), trustme.CA()
    trusts_first = files.write(first)
    gateway = run_gateway("--tokens", str(tokens.path), "--tls-cert", str(files.cert), "--tls-key", str(files.key))
    async with Producer(gateway.address, secret, trusts_first) as early:
        await early.send(request(1, queue_name))
        await early.until(lambda: early.acked)
        before = await issuer(gateway.address)
        trusts_second = files.write(second)
        gateway.signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while await issuer(gateway.address) == before:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        async with Producer(gateway.address, secret, trusts_second) as late:
            await late.send(request(2, queue_name))
            await late.until(lambda: late.acked)
        after = await issuer(gateway.address)
        files.cert.write_text("rubbish")
        gateway.signal(signal.SIGHUP)
        async with Producer(gateway.address, secret, trusts_second) as again:
            await again.send(request(3, queue_name))
            await again.until(lambda: again.acked)
        assert await issuer(gateway.address) == after
        await early.send(request(4, queue_name))
        await early.until(lambda: len(early.acked) == 2)
        assert early.code is None
    gateway.signal(signal.SIGTERM)
    code, told = await gateway.ended()
    assert code == 0
    assert "read a new certificate" in told
    assert "the certificate stays as it is" in told


def test_files_that_do_not_belong_together_are_a_clear_error(files: Files, tmp_path: Path) -> None:
    files.write(trustme.CA())
    key = files.key.read_bytes()
    files.write(trustme.CA())
    current = Certificates(files.cert, files.key, None)
    files.key.write_bytes(key)
    assert not current.reload()
    for bad in (
        (files.cert, files.key, None),
        (files.cert, tmp_path / "none", None),
        (tmp_path / "none", files.key, None),
        (files.cert, files.key, tmp_path / "none"),
    ):
        with pytest.raises(ConfigError, match="files for TLS"):
            Certificates(*bad)


async def test_handshakes_that_fail_are_a_few_lines_in_the_log(
    run_gateway: Callable[..., GatewayProcess], tokens: TokenFile, files: Files
) -> None:
    """gRPC's library would write a line for each, as many as strangers like."""
    secret, trusts = tokens.add("somebody"), files.write(trustme.CA())
    gateway = run_gateway("--tokens", str(tokens.path), "--tls-cert", str(files.cert), "--tls-key", str(files.key))
    host, _, port = gateway.address.rpartition(":")
    for hello in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" + b"rubbish" * 99, b"") * 7:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(hello)
        writer.write_eof()
        await reader.read()
        writer.close()
    async with Producer(gateway.address, secret, trusts) as producer:
        await producer.until(lambda: producer.news)
    gateway.signal(signal.SIGTERM)
    code, told = await gateway.ended()
    lines = [each for each in told.splitlines() if "tls" in each.lower() or "ssl" in each.lower() or "no call" in each]
    assert code == 0
    assert len(lines) == 2, told
    assert "ended before a call began: its handshake of TLS may have failed" in lines[0]
    assert "no call, 127.0.0.1: 13 more within 10 seconds" in lines[1]
