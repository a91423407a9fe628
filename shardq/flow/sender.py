"""The sender's machine: which messages are in flight, which wait for room in the window, and what to send next.

It is the client's machine of pl-rants, "Asynchronous Messaging Over gRPC" (2020). SENDER is its table, from which
docs/internals/flow.md draws the diagram. It adds what is left out there: the window's size may change at any time, so
a window may be overfull; a message that has to wait for room is kept in order; and messages that timed out go out
before those that never went.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from shardq.errors import ConfigError
from shardq.flow.limit import Limit
from shardq.flow.table import Cell, Table, stays

Id = TypeVar("Id", bound=Hashable)

IDLE: Final = "idle"
CAN_SEND: Final = "can_send"
BLOCKED: Final = "blocked"

SEND: Final = "send"
ACK_RECEIVED: Final = "ack_received"
TIMEOUT: Final = "timeout"

DO_SEND: Final = "do_send"
DO_ACK: Final = "do_ack"
ON_TIMEOUT: Final = "on_timeout"
WAIT: Final = "wait"

EMPTY: Final = "nothing in flight"
ROOM: Final = "room in the window"
FULL: Final = "window full"

_SENT: Final = Cell(DO_SEND, {ROOM: CAN_SEND, FULL: BLOCKED})
_ACKED: Final = Cell(DO_ACK, {EMPTY: IDLE, ROOM: CAN_SEND, FULL: BLOCKED})
_AGAIN_CELL: Final = Cell(ON_TIMEOUT, {EMPTY: IDLE, ROOM: CAN_SEND, FULL: BLOCKED})

SENDER: Final[Table] = {
    IDLE: {SEND: _SENT, ACK_RECEIVED: stays(IDLE), TIMEOUT: stays(IDLE)},
    CAN_SEND: {SEND: _SENT, ACK_RECEIVED: _ACKED, TIMEOUT: _AGAIN_CELL},
    BLOCKED: {SEND: stays(BLOCKED, WAIT), ACK_RECEIVED: _ACKED, TIMEOUT: _AGAIN_CELL},
}
"""IDLE: nothing is in flight. CAN_SEND: something is, and there is room. BLOCKED: the window is full, or overfull.

An ack or a time-out of a message that is not in flight changes nothing in any state.
"""

MIN_TIMEOUT, MAX_TIMEOUT = 1.0, 60.0
"""Seconds. Below is TCP, so a message gets lost only if a full queue drops it, or with the connection."""


class Sent(NamedTuple, Generic[Id]):
    """The action do_send: send message `id`. If no ack comes for `timeout` seconds, report `timeout(id, attempt)`."""

    id: Id
    attempt: int
    timeout: float


class Sender(Generic[Id]):
    """A window of messages, known by ids that are unique. Times are seconds of one monotonic clock.

    *limit* says how many may be in flight. `cap` is the receiver's own bound, which it may change at any time. After
    each event `next` says what to send, until it returns None.
    """

    def __init__(self, limit: Limit, *, cap: int = 2**31) -> None:
        self.limit, self.cap, self.state = limit, cap, IDLE
        self._flight: dict[Id, tuple[float, int]] = {}  # when it was sent, and at which attempt, oldest first
        self._fresh: deque[Id] = deque()
        self._repeats: OrderedDict[Id, None] = OrderedDict()  # late acks are taken out anywhere
        self._known: dict[Id, int] = {}  # how often each was sent, of all that are not acked
        self._mean, self._deviation = -1.0, 0.0
        self._shrunk_at, self._backoff = -math.inf, 1

    def __len__(self) -> int:
        """How many messages are not acked, in flight or waiting."""
        return len(self._known)

    def __iter__(self) -> Iterator[Id]:
        """Go through the messages that are not acked, in the order in which they came."""
        return iter(self._known)

    def __contains__(self, message: object) -> bool:
        return message in self._known

    @property
    def in_flight(self) -> int:
        """How many messages are sent and not acked."""
        return len(self._flight)

    @property
    def window(self) -> int:
        """How many messages may be in flight now."""
        return max(1, min(self.limit.size, self.cap))

    @property
    def credit(self) -> int:
        """How many more messages `send` may be given that go out at once."""
        return max(0, self.window - len(self._known))

    @property
    def timeout_after(self) -> float:
        """Seconds in which an ack should come, by the mean and deviation of round trips (RFC 6298).

        After a time-out they are twice as many, until there is a round trip of a message that was sent once.
        """
        usual = max(2 * self._mean + 4 * self._deviation, MIN_TIMEOUT)
        return min(usual * self._backoff, MAX_TIMEOUT)

    @property
    def upcoming(self) -> Id | None:
        """The message that `next` would return if the window has room; None if none waits."""
        if self._repeats:
            return next(iter(self._repeats))
        return self._fresh[0] if self._fresh else None

    def send(self, message: Id) -> None:
        """Event: a new message is to be sent. ConfigError if one with this id is not acked yet."""
        if message in self._known:
            raise ConfigError("a message with this id is on its way already: ids must be unique")
        self._known[message] = 0
        self._fresh.append(message)

    def next(self, now: float) -> Sent[Id] | None:
        """Return the next message to send; None while the window is full, or none waits."""
        self.state = self._measured()
        if not (self._repeats or self._fresh) or SENDER[self.state][SEND].action == WAIT:
            return None
        message = self._repeats.popitem(last=False)[0] if self._repeats else self._fresh.popleft()
        attempt = self._known[message] = self._known[message] + 1
        self._flight[message] = (now, attempt)
        self._enter(SEND)
        return Sent(message, attempt, self.timeout_after)

    def ack_received(self, message: Id, now: float) -> bool:
        """Event: the receiver has this message. Return False if it was not known; it may have been acked before.

        An ack may come for a message that timed out and waits to be sent again: then it is not.
        """
        attempts = self._known.get(message, 0)
        if not attempts:
            return False
        del self._known[message]
        count = len(self._flight)
        found = self._flight.pop(message, None)
        if found is None:
            del self._repeats[message]
            return True
        if attempts == 1:  # of one that was sent twice nobody knows which was acked (Karn & Partridge, SIGCOMM 1987)
            self._measure(now - found[0])
            self.limit.acked(now - found[0], count, now)
        self._enter(ACK_RECEIVED)
        return True

    def timeout(self, message: Id, attempt: int, now: float) -> bool:
        """Event: no ack came in time. The message goes out again, before all that were never sent.

        Return False if it is not in flight, or was sent again since.
        """
        found = self._flight.get(message)
        if found is None or found[1] != attempt:
            return False
        self._repeat(message)
        self._shrink(found[0], now)
        return True

    def dropped(self, message: Id) -> bool:
        """Event: the receiver says that it has dropped the message. It goes out again, as after a time-out.

        Nothing is learned of the way: the receiver says itself how much it can take. Return False if it is not in
        flight.
        """
        if message not in self._flight:
            return False
        self._repeat(message)
        return True

    def lost(self, now: float) -> None:
        """Event: the connection is lost. All that was sent and is not acked goes out again, in the order of `send`."""
        if self._flight:
            last_sent_at = max(sent_at for sent_at, _ in self._flight.values())
            self._repeats = OrderedDict.fromkeys(message for message, attempts in self._known.items() if attempts)
            self._flight.clear()
            self._shrink(last_sent_at, now)
            self.state = IDLE

    def drop(self, message: Id) -> bool:
        """Forget a message that was refused, or that nobody wants sent any more. Return whether it was known."""
        attempts = self._known.pop(message, None)
        if attempts is None:
            return False
        if self._flight.pop(message, None) is None:
            if attempts:
                del self._repeats[message]
            else:
                self._fresh.remove(message)
        self.state = self._measured()
        return True

    def _repeat(self, message: Id) -> None:
        del self._flight[message]
        self._repeats[message] = None
        self._enter(TIMEOUT)

    def _shrink(self, sent_at: float, now: float) -> None:
        """Tell the limit of a time-out, but of all that were sent before the window shrank only of the first."""
        if sent_at >= self._shrunk_at:
            self._shrunk_at, self._backoff = now, min(2 * self._backoff, 64)
            self.limit.timed_out(now)

    def _measured(self) -> str:
        """Return the state, which may have changed with the window's size alone."""
        if not self._flight:
            return IDLE
        return CAN_SEND if len(self._flight) < self.window else BLOCKED

    def _enter(self, event: str) -> None:
        then = SENDER[self.state][event].then
        condition = EMPTY if not self._flight else ROOM if len(self._flight) < self.window else FULL
        self.state = then.get(condition, self.state)

    def _measure(self, round_trip: float) -> None:
        self._backoff = 1
        if self._mean < 0:
            self._mean, self._deviation = round_trip, round_trip / 2
            return
        self._deviation += (math.fabs(self._mean - round_trip) - self._deviation) / 4
        self._mean += (round_trip - self._mean) / 8
