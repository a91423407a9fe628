"""Messages before they are spooled: they are checked and encoded as requests of the service DataSink."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

import msgspec

from shardq.arguments import check_name, of_type, seconds, text
from shardq.clock import Clock
from shardq.codec import Codecs, encode_headers
from shardq.datasink.messages import VERSION, Request
from shardq.errors import ConfigError
from shardq.routing.topic import check_topic
from shardq.sharding import key_bytes, shard

MAX_DELAY = 10 * 365 * 86_400
SPAN_SECONDS: Final = 1.0
"""Seconds in which ids follow each other."""


class EdgeMessage(msgspec.Struct, frozen=True):
    """One message for `send_many`, with its `payload`, `shard_key` and `headers`.

    It goes to a `queue`, or to the queues that its `topic` goes to. `delay` is in seconds.

    >>> EdgeMessage({"to": "ada"}, "acme", queue="mails", delay=60).queue
    'mails'
    """

    payload: Any
    shard_key: str | bytes
    queue: str = ""
    topic: str = ""
    headers: Mapping[str, str] | None = None
    delay: float = 0.0


class Ids:
    """Makes unique ids of 16 bytes, which begin with the time, so that ids sort about as they were made.

    Those of a second follow each other as numbers do, so a batch names them by the first one. Any thread may take some.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, Lock()
        self._next, self._begun = 0, -math.inf

    def take(self, count: int) -> list[bytes]:
        """Return *count* new ids."""
        with self._lock:
            now = self._clock.wall()
            if not 0 <= now - self._begun < SPAN_SECONDS:
                self._begun = now
                self._next = int.from_bytes(int(now * 1000).to_bytes(6, "big") + os.urandom(10), "big")
            first, self._next = self._next, self._next + count
        return [number.to_bytes(16, "big") for number in range(first, first + count)]


def compose(message: EdgeMessage, codecs: Codecs, max_payload: int, message_id: bytes) -> bytes:
    """Return the serialized request. ConfigError or CodecError if the message is bad: no gateway would take it."""
    of_type("a message", message, EdgeMessage, "an EdgeMessage")
    text("queue", message.queue), text("topic", message.topic)
    if bool(message.queue) == bool(message.topic):
        raise ConfigError("name the queue or the topic of a message, one of the two")
    if message.queue:
        check_name(message.queue)
    else:
        check_topic(message.topic)
    shard(message.shard_key, 1, 1)
    if message.headers is not None:
        encode_headers(message.headers)
    delay = round(seconds("delay", message.delay, 0, MAX_DELAY) * 1000)
    tag, body = codecs.encode(message.payload)
    if len(body) > max_payload:
        raise ConfigError(
            f"the payload has {len(body):,} bytes, more than max_payload = {max_payload:,}: "
            "store it elsewhere and send a reference"
        )
    request = Request(
        version=VERSION, message_id=message_id, queue=message.queue, topic=message.topic,
        shard_key=key_bytes(message.shard_key), codec=tag, delay_ms=delay, plain_message=body,
    )  # fmt: skip
    if message.headers:
        request.headers.update(message.headers)
    data: bytes = request.SerializeToString()
    return data
