"""One delivery of a message to one consumer: what Redis returned, and what a handler sees.

An object that is made for each message is a msgspec Struct, which is made ten times as fast as a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shardq.clock import Clock
from shardq.codec import Codecs
from shardq.errors import ConfigError
from shardq.model.call import called


class Received(msgspec.Struct, frozen=True):
    """A delivery as Redis returned it: the body, and the lease token.

    `deadline` is a time of the local monotonic clock; from then on do not rely on the lease. `pickup_delay` is for how
    many seconds the message could be delivered before it was, by the server's clock alone: since it was written, came
    due, was given back, or its lease ended. If it is `timed`, the time that the work on it takes is reported: others
    waited when it was delivered, so it counts, or the queue keeps a journal. `cost` is what its shard key is charged
    for that work (`shardq.ops.settle.command.spelled_cost`); "" charges nothing but the message itself.
    """

    message_id: str
    shard_key: str | bytes
    count: int
    deadline: float
    body: bytes
    tag: str
    headers: Mapping[str, str]
    last_error: str
    stream: int | None
    pickup_delay: float
    token: str
    fields: Mapping[str, bytes] | None = None
    cost: str = ""
    timed: bool = False

    def __repr__(self) -> str:
        """Show which message it is; never its payload or token."""
        return f"Received({self.message_id}, shard_key={self.shard_key!r}, count={self.count})"


class DeliveryView:
    """The attributes that `Delivery` and `AsyncDelivery` share."""

    __slots__ = ("_clock", "_codecs", "_lost", "answered", "cancelled", "dead", "received")

    received: Received
    """For the parts of shardq: what Redis returned."""

    answered: bool
    """Whether Redis has answered that the delivery is settled, or lost. Then a read does not ack it once more."""

    dead: bool
    """Whether the message has become a dead letter by this delivery's nack or reject."""

    cancelled: bool
    """Whether Redis has said that the lease is lost because the message was cancelled."""

    def __init__(self, received: Received, codecs: Codecs, clock: Clock) -> None:
        self.received = received
        self._codecs = codecs
        self._clock = clock
        self._lost = self.answered = self.cancelled = self.dead = False

    @property
    def lost(self) -> bool:
        """Whether the handler shall stop, because the result is not wanted any more."""
        return self._lost

    @lost.setter
    def lost(self, lost: bool) -> None:
        self._lost = lost

    @property
    def payload(self) -> Any:
        """The decoded payload; for a legacy entry its fields. CodecError if it cannot be decoded."""
        if self.received.fields is not None:
            return dict(self.received.fields)
        return self._codecs.decode(self.received.tag, self.received.body)

    @property
    def body(self) -> bytes:
        """The payload as it is stored."""
        return self.received.body

    @property
    def task(self) -> str:
        """The name of the task that the payload calls; '' if it is no call."""
        return called(self.received.tag, self.received.body)

    @property
    def message_id(self) -> str:
        """The id that `write` returned. Redelivery, dead-lettering and redrive do not change it."""
        return self.received.message_id

    @property
    def shard_key(self) -> str | bytes:
        """The shard key, as text if it is UTF-8."""
        return self.received.shard_key

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, including the trace context."""
        return self.received.headers

    @property
    def count(self) -> int:
        """How many times the message has been delivered, including this delivery."""
        return self.received.count

    @property
    def deadline(self) -> float:
        """When to stop relying on the lease, in seconds of the client's monotonic clock. See `remaining`."""
        return self.received.deadline

    @property
    def remaining(self) -> float:
        """Seconds until `deadline`; negative once the lease is over."""
        return self.received.deadline - self._clock.monotonic()

    @property
    def last_error(self) -> str:
        """The error with which the message was last given back; '' if there is none."""
        return self.received.last_error

    @property
    def stream(self) -> int | None:
        """The stream that holds the message; None if it was delayed, held back or redriven, or is a legacy entry."""
        return self.received.stream

    @property
    def pickup_delay(self) -> float:
        """For how many seconds the message could be delivered before this delivery, by the server's clock alone.

        A first delivery counts from the write, or from the due time. A later one counts from when the message was given
        back, after the delay of a nack, or from when the lease before ended. A requested delay is never included.
        """
        return self.received.pickup_delay

    def __repr__(self) -> str:
        """Show which message it is; never its payload or token."""
        return f"{type(self).__name__}({self.message_id}, shard_key={self.shard_key!r}, count={self.count})"


def received_of(queue: str, deliveries: Sequence[Any]) -> list[Received]:
    """Return what the deliveries received. ConfigError for anything else, also for deliveries of other queues."""
    for each in checked_deliveries(deliveries):
        if (own := each.queue.name) != queue:
            raise ConfigError(f"{each!r} is of queue {own!r}, not {queue!r}: settle it there")
    return [each.received for each in deliveries]


def checked_deliveries(deliveries: Sequence[Any]) -> Sequence[Any]:
    """Return *deliveries*. ConfigError if they are anything else than deliveries."""
    if not isinstance(deliveries, Sequence) or isinstance(deliveries, (str, bytes, bytearray, memoryview)):
        raise ConfigError(f"deliveries must be a list of Delivery; this is of type {type(deliveries).__name__}")
    for each in deliveries:
        if not isinstance(each, DeliveryView):
            raise ConfigError(f"deliveries must be what read or read_many returned, not {type(each).__name__}")
    return deliveries
