"""What a handler is given: the message, and what is known of this handing-out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardq.clock import Clock
from shardq.codec import Codecs
from shardq.model import Received


class DeliveryView:
    """The readable half of `Delivery` and `AsyncDelivery`."""

    __slots__ = ("_clock", "_codecs", "lost", "received")

    lost: bool
    """Whether the worker that runs the handler knows that the message is not yours any more: stop, nobody wants it."""

    def __init__(self, received: Received, codecs: Codecs, clock: Clock) -> None:
        self.received = received
        self._codecs = codecs
        self._clock = clock
        self.lost = False

    @property
    def payload(self) -> Any:
        """What was written, decoded (of a legacy entry: its fields); CodecError if it cannot be."""
        if self.received.fields is not None:
            return dict(self.received.fields)
        return self._codecs.decode(self.received.tag, self.received.body)

    @property
    def body(self) -> bytes:
        """The payload as it is stored."""
        return self.received.body

    @property
    def message_id(self) -> str:
        """The id that `write` returned; the same through every redelivery, dead letter and redrive."""
        return self.received.message_id

    @property
    def shard_key(self) -> str | bytes:
        """The shard key, as text if it is UTF-8."""
        return self.received.shard_key

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, trace context among them."""
        return self.received.headers

    @property
    def count(self) -> int:
        """How many times the message was delivered, this time included."""
        return self.received.count

    @property
    def deadline(self) -> float:
        """Until when to believe in the lease: seconds on the client's monotonic clock, compare with `remaining`."""
        return self.received.deadline

    @property
    def remaining(self) -> float:
        """Seconds until `deadline`; negative once the lease is over."""
        return self.received.deadline - self._clock.monotonic()

    @property
    def last_error(self) -> str:
        """Why it was given back last time, '' on a first delivery."""
        return self.received.last_error

    @property
    def stream(self) -> int | None:
        """The stream that holds the message; None for one that was delayed or redriven, or is a legacy one."""
        return self.received.stream

    @property
    def pickup_delay(self) -> float:
        """Seconds from the write (or due time) to this delivery, by the server's clock alone."""
        return self.received.pickup_delay

    def __repr__(self) -> str:
        """Which message; never its payload or token."""
        return f"{type(self).__name__}({self.message_id}, shard_key={self.shard_key!r}, count={self.count})"
