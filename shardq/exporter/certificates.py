"""The certificate of a scaler: each handshake looks whether its files are other ones, so a renewed one is shown."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any, NamedTuple

from shardq.errors import ConfigError
from shardq.files import MIB, read_file

log = logging.getLogger("shardq.exporter")


class Pem(NamedTuple):
    """The contents of the files."""

    key: bytes
    chain: bytes
    authority: bytes | None


class ServerCertificates:
    """Chain and key, and the authority of clients, if they need a certificate, too. ConfigError if they are bad.

    Files that are bad later are not taken: the former contents stay.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._seen = self._stamps()
        self._current, self._context = self._read()

    def current(self) -> Pem:
        """Return what the files have now."""
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._current, self._context = self._read()
                log.info("read a new certificate")
            except ConfigError as error:
                log.error("the certificate stays as it is: %s", error)
        return self._current

    def context(self) -> ssl.SSLContext:
        """Return a context for a server, which shows what the files have at each handshake."""
        outer = self._read()[1]

        def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: str, _context: ssl.SSLContext) -> None:
            self.current()
            connection.context = self._context

        outer.sni_callback = choose
        return outer

    def credentials(self) -> Any:
        """Return credentials for a server of grpc, which does the same."""
        import grpc

        def configured() -> Any:
            found = self.current()
            return grpc.ssl_server_certificate_configuration([(found.key, found.chain)], found.authority)

        return grpc.dynamic_ssl_server_credentials(configured(), configured, self._client_ca is not None)

    def _stamps(self) -> list[tuple[int, int]]:
        found = []
        for path in (self._cert, self._key, self._client_ca):
            try:
                known = path.stat() if path else None
            except OSError:
                known = None
            found.append((known.st_mtime_ns, known.st_ino) if known else (0, 0))
        return found

    def _read(self) -> tuple[Pem, ssl.SSLContext]:
        authority = None if self._client_ca is None else read_file(self._client_ca, MIB, "the file of --client-ca")
        key = read_file(self._key, MIB, "the file of --tls-key")
        chain = read_file(self._cert, MIB, "the file of --tls-cert")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._cert, self._key, password=_no_password)
            if authority is not None:
                context.load_verify_locations(cadata=authority.decode("ascii"))
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ConfigError(f"the files for TLS are no certificate with its key: {error}") from None
        return Pem(key, chain, authority), context


def _no_password() -> str:
    raise ValueError("the key needs a password: give one that needs none")
