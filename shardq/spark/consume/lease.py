"""The column `lease`: text that says which delivery a row is, so that any task can settle it. It has no credentials."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from shardq.errors import ConfigError
from shardq.model import Received
from shardq.protocol.replies import text_or_bytes
from shardq.sharding import key_bytes


class Lease(msgspec.Struct, frozen=True, array_like=True, tag="1"):
    """What settling needs of a delivery. Token and shard key are bytes, since a shard key may be no UTF-8."""

    queue: str
    token: bytes
    message_id: str
    shard_key: bytes
    count: int
    last_error: str
    origin: str

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
            origin=self.origin,
        )


_DECODER = msgspec.msgpack.Decoder(Lease)


def lease_text(queue: str, received: Received) -> str:
    """Return the text of the column `lease` for a delivery of *queue*."""
    lease = Lease(
        queue,
        received.token.encode(errors="surrogateescape"),
        received.message_id,
        key_bytes(received.shard_key) if received.shard_key else b"",
        received.count,
        received.last_error[:1],  # whether there was an error is all that an ack must know
        received.origin,
    )
    return urlsafe_b64encode(msgspec.msgpack.encode(lease)).decode()


def lease_of(text: str | None) -> Lease:
    """Return the lease in *text*; ConfigError if it is none."""
    try:
        lease = _DECODER.decode(urlsafe_b64decode((text or "").encode()))
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        lease = None
    if lease is None or lease.token.count(b":") < 3:
        raise ConfigError("column lease has text that is no lease: keep the column as `consuming` made it")
    return lease
