"""Check one request before it is taken in: it is well formed, within bounds, and the token allows it."""

from __future__ import annotations

import re
from typing import Any, Final

from shardq.arguments import check_name
from shardq.codec import encode_headers
from shardq.datasink import messages
from shardq.datasink.frames import BadFrame, size_of
from shardq.errors import ConfigError
from shardq.gateway.received import Incoming
from shardq.gateway.tokens import Token
from shardq.ops.write.outgoing import MAX_DELAY
from shardq.routing.topic import check_topic
from shardq.sharding import key_bytes

MAX_ID: Final = 64
CLIENT_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
TAG: Final = re.compile(r"[A-Za-z]")
REASONS: Final[dict[str, int]] = {each.name: each.number for each in messages.Reason.values}


class Refused(Exception):
    """This message can never be stored as it is."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = REASONS[reason]


class Broken(Exception):
    """The client does not speak this protocol: the call ends."""


def check_request(request: Any) -> None:
    """Check what every request must have. Broken if it does not."""
    if request.version != messages.VERSION:
        raise Broken(f"this gateway speaks version {messages.VERSION}, not {request.version}")
    kind = request.WhichOneof("payload")
    if kind == "info":
        if request.message_id:
            raise Broken("a request with info has no message_id")
        return
    if not 1 <= len(request.message_id) <= MAX_ID:
        raise Broken(f"message_id must have 1 to {MAX_ID} bytes, not {len(request.message_id)}")


def checked(request: Any, token: Token, max_message: int, *, releases: bool) -> Incoming:
    """Return the message of *request*. Refused says why it can never be stored."""
    kind = request.WhichOneof("payload")
    if kind is None:
        raise Refused("INVALID", "it has no payload")
    headers = dict(request.headers)
    try:
        _check_place(request)
        key_bytes(request.shard_key)
        encode_headers(headers)
    except ConfigError as error:
        raise Refused("INVALID", str(error)) from None
    tag = request.codec or "b"
    if not TAG.fullmatch(tag):
        raise Refused("INVALID", "codec must be one ASCII letter")
    if request.delay_ms > MAX_DELAY * 1000:
        raise Refused("INVALID", f"delay_ms may be at most {MAX_DELAY * 1000}")
    _check_rights(request, token)
    payload = getattr(request, kind)
    size = _size(payload, max_message, compressed=kind == "zstd_compressed")
    return Incoming(
        request.message_id, request.queue, request.topic, request.shard_key, tag, headers, request.delay_ms,
        payload, kind == "zstd_compressed", size, releases,
    )  # fmt: skip


def _check_place(request: Any) -> None:
    if bool(request.queue) == bool(request.topic):
        raise ConfigError("it must name a queue or a topic, and not both")
    if request.queue:
        check_name(request.queue)
    else:
        check_topic(request.topic)


def _check_rights(request: Any, token: Token) -> None:
    if request.queue and not token.queues.allow(request.queue.encode()):
        raise Refused("NOT_ALLOWED", "this token may not write to this queue")
    if request.topic and not token.topics.allow(request.topic.encode()):
        raise Refused("NOT_ALLOWED", "this token may not publish to this topic")
    if not token.shard_keys.allow(request.shard_key):
        raise Refused("NOT_ALLOWED", "this token may not write under this shard key")


def _size(payload: bytes, most: int, *, compressed: bool) -> int:
    if not compressed:
        if len(payload) > most:
            raise Refused("TOO_LARGE", f"the payload has {len(payload):,} bytes, more than {most:,}")
        return len(payload)
    try:
        return size_of(payload, most)
    except BadFrame as error:
        raise Refused("NOT_DECODABLE", str(error)) from None
