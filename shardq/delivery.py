"""What a handler is given: the message, and what is known of this handing-out of it. And what becomes a dead letter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

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
        """For how many seconds it was deliverable before this delivery, by the server's clock alone.

        A first delivery counts from the write, or from when it was due; a later one from when the message was given
        back, after the delay of a nack, or from when its holder's lease ended. A delay that was asked for is not in it.
        """
        return self.received.pickup_delay

    def __repr__(self) -> str:
        """Which message; never its payload or token."""
        return f"{type(self).__name__}({self.message_id}, shard_key={self.shard_key!r}, count={self.count})"


_BUILT_IN = Codecs()


class _Decoded:
    """Keeps codecs out of the fields of a dataclass, which so stays plain to compare, print and pickle."""

    __slots__ = ("_codecs",)

    _codecs: Codecs

    def read_with(self, codecs: Codecs) -> Self:
        """The same letter, whose `payload` these codecs decode; for the clients."""
        object.__setattr__(self, "_codecs", codecs)
        return self


@dataclass(frozen=True, slots=True)
class DeadLetter(_Decoded):
    """A message that will not be delivered again unless it is redriven. Times are seconds since the epoch.

    `fields` are those of a legacy entry, None for others.
    """

    entry_id: str
    message_id: str
    shard_key: str | bytes
    reason: str
    count: int
    last_error: str
    written_at: float
    died_at: float
    body: bytes = field(repr=False)
    tag: str = "b"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    fields: Mapping[str, bytes] | None = field(default=None, repr=False)

    @property
    def payload(self) -> Any:
        """What was written, decoded by the client's codecs (of a legacy entry: its fields); CodecError if it cannot be.

        A letter that was copied or pickled knows the built-in codecs only.
        """
        if self.fields is not None:
            return dict(self.fields)
        return getattr(self, "_codecs", _BUILT_IN).decode(self.tag, self.body)
