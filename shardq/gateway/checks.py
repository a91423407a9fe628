"""Check one request before it is taken in: it is well formed, within bounds, and the token allows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardq.arguments import check_name
from shardq.codec import MAX_HEADERS, encode_headers
from shardq.datasink import messages
from shardq.datasink.fields import BadFields, fields_in, numbers_of
from shardq.datasink.frames import BadFrame, size_of
from shardq.datasink.runs import MAX_ID
from shardq.errors import ConfigError
from shardq.files import MIB
from shardq.gateway.received import Envelope, Incoming
from shardq.gateway.settings import EXTRA
from shardq.gateway.tokens import Token
from shardq.ops.write.outgoing import MAX_DELAY
from shardq.routing.topic import check_topic
from shardq.sharding import key_bytes
from shardq.telemetry.spans import BAGGAGE, LINK_HEADERS

MAX_IDS: Final = 10_000
"""Released ids in one request."""
MAX_FIELDS: Final = MAX_HEADERS + 16
"""Fields of a large request. Each header is one."""
MAX_RUNS: Final = 500 + 16
"""Fields of its batch. Each run of ids is one, and there are no more runs than messages."""
MAX_INFO: Final = MIB * 3 // 4 + EXTRA
"""Bytes of news: `MAX_IDS` of the longest ids, and a dictionary."""
PAYLOADS: Final = numbers_of(messages.Request, "plain_message", "zstd_compressed")
BATCH_FIELDS: Final = numbers_of(messages.Request, "batch")
INFO: Final = numbers_of(messages.Request, "info")
MEMBERS: Final = numbers_of(messages.Batch, "plain", "zstd")
KEY_HEADER: Final = "shard-key"
"""A message of a token that is one tenant has here the shard key that the client gave it."""
CLIENT_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
TAG: Final = re.compile(r"[A-Za-z]")
REASONS: Final[dict[str, int]] = {each.name: each.number for each in messages.Reason.values}


class RequestRefused(Exception):
    """This message can never be stored as it is."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = REASONS[reason]


class Broken(Exception):
    """The client does not speak this protocol: the call ends."""


def check_sizes(raw: bytes) -> None:
    """Check a request before it is parsed, since each of its fields takes time and memory then. Broken.

    Besides its payload, or the members of its batch, or news, it has `EXTRA` bytes at most. A small one needs no check.
    """
    if len(raw) <= EXTRA:
        return
    try:
        fields = fields_in(raw, MAX_FIELDS)
        payloads = [each for each in fields if each[0] in PAYLOADS | BATCH_FIELDS | INFO]
        bounded = sum(_bounded(raw, *each) for each in payloads)
    except BadFields as bad:
        raise Broken(f"a request is larger than it may be: {bad}") from None
    if len(payloads) > 1:
        raise Broken("a request has more than one payload")
    if len(raw) - bounded > EXTRA:
        raise Broken(f"a request has {len(raw) - bounded:,} bytes besides its payload, more than {EXTRA:,}")


def _bounded(raw: bytes, number: int, begin: int, end: int) -> int:
    """Return how many bytes of a payload have a bound of their own."""
    if number in BATCH_FIELDS:
        return sum(last - first for each, first, last in fields_in(raw, MAX_RUNS, begin, end) if each in MEMBERS)
    if number in INFO:
        fields_in(raw, MAX_IDS + MAX_FIELDS, begin, end)
        return min(end - begin, MAX_INFO)
    return end - begin


def check_request(request: Any) -> None:
    """Check what every request must have. Broken if it does not."""
    if request.version != messages.VERSION:
        raise Broken(f"this gateway speaks version {messages.VERSION}, not {request.version}")
    kind = request.WhichOneof("payload")
    if kind in ("info", "batch"):
        if request.message_id:
            raise Broken(f"a request with {kind} has no message_id")
        if kind == "info" and len(request.info.released) > MAX_IDS:
            raise Broken(f"a request releases at most {MAX_IDS:,} ids: send them in several")
        return
    if not 1 <= len(request.message_id) <= MAX_ID:
        raise Broken(f"message_id must have 1 to {MAX_ID} bytes, not {len(request.message_id)}")


def checked(request: Any, token: Token, max_message: int, *, releases: bool) -> Incoming:
    """Return the message of *request*. Refused says why it can never be stored."""
    kind = request.WhichOneof("payload")
    if kind is None:
        raise RequestRefused("INVALID", "it has no payload")
    envelope = envelope_of(request, request.shard_key, token)
    payload = getattr(request, kind)
    size = _size(payload, max_message, compressed=kind == "zstd_compressed")
    return Incoming(request.message_id, envelope, payload, kind == "zstd_compressed", size, releases)


def envelope_of(given: Any, shard_key: bytes, token: Token) -> Envelope:
    """Return the envelope of a message, from the Request or the Envelope that the client has *given*. Refused."""
    if len(given.headers) > MAX_HEADERS:  # before anything is made of them
        raise RequestRefused("INVALID", f"a message may have at most {MAX_HEADERS} headers, not {len(given.headers):,}")
    try:
        _check_place(given)
        key_bytes(shard_key)  # before anything is made of it
        headers = dict(given.headers) if token.continues_traces else _linked(given.headers)
        if token.one_tenant:
            headers[KEY_HEADER] = shard_key.decode(errors="backslashreplace")
        encode_headers(headers)
    except ConfigError as error:
        raise RequestRefused("INVALID", str(error)) from None
    tag = given.codec or "b"
    if not TAG.fullmatch(tag):
        raise RequestRefused("INVALID", "codec must be one ASCII letter")
    if given.delay_ms > MAX_DELAY * 1000:
        raise RequestRefused("INVALID", f"delay_ms may be at most {MAX_DELAY * 1000}")
    _check_rights(given, shard_key, token)
    return Envelope(
        given.queue, given.topic, shard_key_of(shard_key, token), tag, headers, given.delay_ms,
        needs_parents=token.needs_parents and shard_key not in token.shard_keys.exact,
    )  # fmt: skip


def _linked(given: Mapping[str, str]) -> dict[str, str]:
    """Return headers in which a trace context is a link: a stranger's is not to be the parent of anybody's spans."""
    return {LINK_HEADERS.get(name.lower(), name): value for name, value in given.items() if name.lower() != BAGGAGE}


def shard_key_of(given: bytes, token: Token) -> bytes:
    """Return the shard key of what a client sends under the one that it has *given*."""
    return token.name.encode() if token.one_tenant else given


def check_released(ids: Sequence[bytes]) -> None:
    """Check some ids that a client has released. Broken if one is none."""
    if not all(1 <= len(each) <= MAX_ID for each in ids):
        raise Broken(f"a released id must have 1 to {MAX_ID} bytes")


def _check_place(given: Any) -> None:
    if bool(given.queue) == bool(given.topic):
        raise ConfigError("it must name a queue or a topic, and not both")
    if given.queue:
        check_name(given.queue)
    else:
        check_topic(given.topic)


def _check_rights(given: Any, shard_key: bytes, token: Token) -> None:
    if given.queue and not token.queues.allow(given.queue.encode()):
        raise RequestRefused("NOT_ALLOWED", "this token may not write to this queue")
    if given.topic and not token.topics.allow(given.topic.encode()):
        raise RequestRefused("NOT_ALLOWED", "this token may not publish to this topic")
    if not token.shard_keys.allow(shard_key):
        raise RequestRefused("NOT_ALLOWED", "this token may not write under this shard key")


def too_large(size: int, most: int) -> RequestRefused:
    """Return why a payload of *size* bytes is refused."""
    return RequestRefused("TOO_LARGE", f"the payload has {size:,} bytes, more than {most:,}")


def _size(payload: bytes, most: int, *, compressed: bool) -> int:
    if not compressed:
        if len(payload) > most:
            raise too_large(len(payload), most)
        return len(payload)
    try:
        return size_of(payload, most)
    except BadFrame as error:
        raise RequestRefused("NOT_DECODABLE", str(error)) from None
