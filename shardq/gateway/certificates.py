"""The certificate of a gateway: its files are read at start and at SIGHUP; connections that are open keep theirs."""

from __future__ import annotations

import hashlib
import logging
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shardq.extras import extra

with extra("gateway"):
    import grpc

from shardq.errors import ConfigError
from shardq.files import MIB, read_file
from shardq.gateway.tokens import Token

log = logging.getLogger("shardq.gateway")


class Certificates:
    """Key and chain, and the authority of clients if they need a certificate, too. ConfigError if they are bad."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._current = self._read()

    def credentials(self) -> Any:
        """Return credentials for grpc, which asks at each handshake whether there are newer ones."""
        return grpc.dynamic_ssl_server_credentials(
            _configured(self._current), lambda: _configured(self._current), self._client_ca is not None
        )

    def reload(self) -> bool:
        """Read the files again. If they are bad, keep what was read before, log why, and return False."""
        try:
            found = self._read()
        except ConfigError as error:
            log.error("the certificate stays as it is: %s", error)
            return False
        if found != self._current:
            self._current = found
            log.info("read a new certificate")
        return True

    def _read(self) -> tuple[bytes, bytes, bytes | None]:
        try:
            authority = None if self._client_ca is None else read_file(self._client_ca, MIB, "the file of --client-ca")
            key, cert = (
                read_file(self._key, MIB, "the file of --tls-key"),
                read_file(self._cert, MIB, "the file of --tls-cert"),
            )
            found = key, cert, authority
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._cert, self._key, password=_no_password)
            if self._client_ca is not None:
                context.load_verify_locations(self._client_ca)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ConfigError(f"the files for TLS are no certificate with its key: {error}") from None
        return found


def fingerprint_of(auth_context: Mapping[str, Any]) -> bytes | None:
    """Return the SHA-256 of the certificate that a client has shown, as grpc tells it; None if it has shown none."""
    shown = auth_context.get("x509_pem_cert", ())
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown[0].decode())).digest() if shown else None


def check_bound(tokens: Iterable[Token], client_ca: Path | None) -> None:
    """Check that tokens which are bound to certificates can be used. ConfigError if clients are asked for none."""
    if client_ca is None and (bound := [token.name for token in tokens if token.certificates]):
        raise ConfigError(
            f"token {bound[0]!r} is bound to a certificate, for which no client is asked: give --client-ca"
        )


def _no_password() -> str:
    raise ValueError("the key needs a password: give one that needs none")


def _configured(found: tuple[bytes, bytes, bytes | None]) -> Any:
    key, chain, authority = found
    return grpc.ssl_server_certificate_configuration([(key, chain)], authority)
