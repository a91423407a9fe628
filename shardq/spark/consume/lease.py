"""The column `lease`: text that says which delivery a row is, so that any task can settle it. It has no credentials."""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from shardq.errors import ConfigError
from shardq.model import Received
from shardq.protocol.bodies import text_or_bytes
from shardq.sharding import key_bytes


class ReaderLease(msgspec.Struct, frozen=True, array_like=True, tag="1"):
    """The fields that settling a delivery needs, in a row of a query's hold.

    Token and shard key are bytes, since a shard key may be no UTF-8.
    """

    queue: str
    token: bytes
    message_id: str
    shard_key: bytes
    count: int
    last_error: str

    @classmethod
    def of(cls, queue: str, received: Received) -> ReaderLease:
        """Make the lease of a delivery of *queue*."""
        return cls(
            queue,
            received.token.encode(errors="surrogateescape"),
            received.message_id,
            key_bytes(received.shard_key) if received.shard_key else b"",
            received.count,
            received.last_error,
        )

    @property
    def text(self) -> str:
        """The text of the column `lease`. Whether there was an error is all that an ack must know of it."""
        short = replace(self, last_error=self.last_error[:1])
        return urlsafe_b64encode(msgspec.msgpack.encode(short)).decode()

    @property
    def handle(self) -> tuple[str, str]:
        """The place where the message lies, and its entry id."""
        place, entry, _ = self.token.split(b":", 2)
        return place.decode(), entry.decode()

    @property
    def received(self) -> Received:
        """The delivery, without its body."""
        return Received(
            message_id=self.message_id,
            shard_key=text_or_bytes(self.shard_key),
            count=self.count,
            deadline=0.0,
            body=b"",
            tag="b",
            headers={},
            last_error=self.last_error,
            stream=None,
            pickup_delay=0.0,
            token=self.token.decode(errors="surrogateescape"),
        )


_DECODER = msgspec.msgpack.Decoder(ReaderLease)


def lease_of(text: str | None) -> ReaderLease:
    """Return the lease in *text*; ConfigError if it is none."""
    try:
        lease = _DECODER.decode(urlsafe_b64decode((text or "").encode()))
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        lease = None
    if lease is None or lease.token.count(b":") < 3:
        raise ConfigError("column lease has text that is no lease: keep the column as `consuming` made it")
    return lease


_RECORD = msgspec.msgpack.Decoder(list[ReaderLease])


def packed(leases: Sequence[ReaderLease]) -> bytes:
    """Return *leases* as bytes, for a record in Redis or a task. Their tokens have much in common."""
    return zlib.compress(msgspec.msgpack.encode(leases), 1)


def unpacked(record: bytes) -> list[ReaderLease]:
    """Return the leases in bytes that `packed` made."""
    return _RECORD.decode(zlib.decompress(record))
