"""TLS and passwords: only a server with the right certificate is talked to, and secrets stay out of errors."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from shardq import AsyncClient, BackendError, Client
from shardq.errors import BackendError as StartFailed
from tests.parts import REDIS
from tests.servers import Server, ServerKind, available, free_ports

PASSWORD = "s3cr3t-canary"


def _start(kind: ServerKind, options: dict[str, str]) -> Server | None:
    """A server with TLS, None if this one was built without it."""
    try:
        return Server(kind, options=options).start()
    except StartFailed:
        return None


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """The TLS port of a server with a password, and the file of its authority."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    (port,) = free_ports(1)
    options = {
        "tls-port": str(port),
        "tls-cert-file": str(tmp_path / "cert.pem"),
        "tls-key-file": str(tmp_path / "key.pem"),
        "tls-ca-cert-file": str(tmp_path / "ca.pem"),
        "tls-auth-clients": "no",
    }
    for kind in available():
        if server := _start(kind, options):
            break
    else:
        pytest.skip(str(REDIS))
    with server:
        server.run("CONFIG", "SET", "requirepass", PASSWORD)
        yield port, str(tmp_path / "ca.pem")


def test_a_queue_works_over_tls(tls: tuple[int, str]) -> None:
    """rediss:// with the server's authority works, for threads and for asyncio."""
    port, authority = tls
    url = f"rediss://:{PASSWORD}@localhost:{port}/0?ssl_ca_certs={authority}"
    with Client.from_url(url) as client:
        written = client.queue("tls", create=True).write(b"hello", shard_key="a")

    async def scenario() -> str:
        async with AsyncClient.from_url(url) as twin:
            delivery = await twin.queue("tls", create=True).read(block=20)
            await delivery.ack()
            return delivery.message_id

    assert asyncio.run(scenario()) == written


def test_a_foreign_certificate_is_refused(tls: tuple[int, str]) -> None:
    """A server whose certificate nobody vouches for is not talked to, and the error shows no password."""
    port, _ = tls
    url = f"rediss://:{PASSWORD}@localhost:{port}/0?ssl_ca_certs={ssl.get_default_verify_paths().openssl_cafile}"
    with Client.from_url(url, timeout=0.2) as client, pytest.raises(BackendError) as caught:
        client.queue("tls", create=True).write(b"hello", shard_key="a")
    assert PASSWORD not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"


def test_a_wrong_password_is_a_clear_error(tls: tuple[int, str]) -> None:
    """A wrong password fails at once, names no secret, and says where to look."""
    port, authority = tls
    url = f"rediss://:wrong-canary@localhost:{port}/0?ssl_ca_certs={authority}"
    with (
        Client.from_url(url, timeout=20) as client,
        pytest.raises(BackendError, match="does not know this user") as caught,
    ):
        client.queue("tls", create=True).write(b"hello", shard_key="a")
    assert "canary" not in str(caught.value)
