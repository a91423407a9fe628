"""A link of an asyncio client, which several callers may share. Replies come in the order of the requests.

redis-py connects, and says hello. Then its transport is taken over: a connection of its own for each call, a task that
reads from a stream and a timeout for each call would take three quarters of a client's time.

A reply stays expected when its caller is cancelled or gives up, so that it goes to nobody else.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from redis.exceptions import ConnectionError as LinkLost
from redis.exceptions import TimeoutError as LinkSilent

from shardq.drivers.failures import CONNECTION_ERRORS, answer_of, demoted, unanswered, unsent
from shardq.drivers.resp import INCOMPLETE, new_parser
from shardq.ops.queue.steps import Refused

RECEIVED: Final = 64 * 1024
"""Bytes that are received at once."""

LARGE_REQUEST_BYTES: Final = 64 * 1024
"""Bytes. A longer request goes over a link of its own, so that short ones need not wait for it."""

STUCK_SECONDS: Final = 0.02
"""Seconds in which one reply has been arriving after which other calls go elsewhere."""

PARTS: Final = 4
"""A reply that takes longer than `STUCK_SECONDS` only because the event loop is busy has arrived in fewer parts."""


class Expected:
    """The *count* answers to a request, which its caller awaits until the time *until* of the event loop."""

    __slots__ = ("answers", "count", "future", "until")

    def __init__(self, future: asyncio.Future[list[Any]], count: int, until: float) -> None:
        self.future, self.count, self.until = future, count, until
        self.answers: list[Any] = []


class AsyncLink(asyncio.BufferedProtocol):
    """A connection of redis-py whose transport was taken over. `peer` is the address of its other end.

    `number` is the id that the server gave the connection, None as long as nobody has asked.

    It is closed if the server owes an answer and is silent for *silence* seconds. Then, or when it is lost otherwise,
    *on_closed* is called. A link is `retired` if its node is no longer a master: it closes when nobody waits any more.
    """

    def __init__(self, connection: Any, silence: float, on_closed: Callable[[AsyncLink], None]) -> None:
        self.connection, self.peer = connection, connection._writer.get_extra_info("peername")
        self.number: int | None = None
        self.closed = self.retired = False
        self.silence, self._on_closed = silence, on_closed
        self._loop = asyncio.get_running_loop()
        self._parser = new_parser()
        self._buffer = bytearray(RECEIVED)
        self._sent: deque[Expected] = deque()
        self._unsent: deque[tuple[bytes, Expected]] = deque()
        self._paused = self._flushing = False
        self._heard_at = self._loop.time()  # when data arrived, or a request was sent while no answer was owed
        self._doubtful = False  # somebody waited in vain since data arrived
        self._arriving_since, self._parts = math.inf, 0  # since then parts of one reply have been arriving
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._transport = connection._writer.transport
        self._former = self._transport.get_protocol()
        self._transport.set_protocol(self)
        if self._transport.is_closing():
            self.closed = True

    def is_free(self) -> bool:
        """Return whether a request that is made now will be answered soon, as far as one can know."""
        unfit = self.closed or self.retired or self._doubtful
        return not unfit and (self._parts < PARTS or not self._is_arriving(self._loop.time()))

    def is_idle(self) -> bool:
        """Return whether the link works, and nothing is under way on it."""
        return not (self.closed or self.retired or self._sent or self._unsent or self._parts)

    def was_idle(self, seconds: float) -> bool:
        """Return whether the link has been idle for so long."""
        return self.is_idle() and self._loop.time() >= self._heard_at + seconds

    def begun(self) -> list[Any]:
        """Return those answers to the first of the requests under way that have come."""
        return self._sent[0].answers if self._sent else []

    def ask(self, request: bytes, count: int, limit: float) -> asyncio.Future[list[Any]]:
        """Send *request*. Return the future of its *count* answers; a refusal is one, too.

        `Unanswered` is raised when the server was silent for *limit* seconds, or after it has begun to answer, for
        `silence` seconds. While a large reply arrives, which may be another caller's, it is not silent.
        """
        now = self._loop.time()
        expected = Expected(self._loop.create_future(), count, now + limit)
        if self.closed:
            expected.future.set_exception(unsent(LinkLost("the connection was closed")))
            return expected.future
        if self._sent or self._unsent or self._paused:
            self._unsent.append((request, expected))  # what is asked in one turn of the loop is sent together
            if not self._flushing:
                self._flushing = True
                self._loop.call_soon(self._flush)
        else:
            self._heard_at = now
            self._sent.append(expected)
            self._transport.write(request)
        if expected.until < self._alarm_at:
            self._wake_at(expected.until)
        return expected.future

    def retire(self) -> None:
        """Close the link when all who wait for answers have them."""
        self.retired = True
        if not self._sent and not self._unsent:
            self.close(LinkLost("the node is no longer a master"))

    def close(self, error: Exception) -> None:
        """Close the link because of *error*. Calls that were sent may have been executed."""
        if self.closed:
            return
        self.closed = True
        self._transport.abort()
        if self._alarm is not None:
            self._alarm.cancel()
        for expected in self._sent:
            _fail(expected, unanswered(error))
        for _, expected in self._unsent:
            _fail(expected, unsent(error))
        self._sent.clear()
        self._unsent.clear()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return where the transport shall put what arrives."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Give out the replies that have arrived."""
        self._heard_at = now = self._loop.time()
        self._doubtful = False
        parser, sent = self._parser, self._sent
        parser.feed(self._buffer, 0, nbytes)
        try:
            while (reply := parser.gets()) is not INCOMPLETE:
                if not sent:
                    raise LinkLost("a reply came that nobody had asked for")
                self._give(sent[0], answer_of(reply) if isinstance(reply, Exception) else reply)
                self._arriving_since, self._parts = math.inf, 0
        except CONNECTION_ERRORS as error:
            self.close(error)
            return
        if parser.has_data():
            self._arriving_since, self._parts = min(self._arriving_since, now), self._parts + 1
        if self.retired:
            self.retire()

    def eof_received(self) -> None:
        """Let the transport close: the server has closed the connection."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all who wait."""
        self.close(exc if isinstance(exc, OSError) else LinkLost("the server closed the connection"))
        self._former.connection_lost(exc)  # else redis-py would wait for it when it closes the connection
        self._on_closed(self)

    def pause_writing(self) -> None:
        """Send nothing more for now: the server does not take what was sent."""
        self._paused = True

    def resume_writing(self) -> None:
        """Send what waits."""
        self._paused = False
        self._flush()

    def _give(self, expected: Expected, answer: Any) -> None:
        expected.answers.append(answer)
        if len(expected.answers) < expected.count:
            return
        self._sent.popleft()
        if Refused in map(type, expected.answers) and demoted(expected.answers):
            self.retired = True
        if not expected.future.done():
            expected.future.set_result(expected.answers)

    def _is_arriving(self, now: float) -> bool:
        """Return whether a reply has been arriving for long, which ends the silence for all."""
        return self._parts >= PARTS and now >= self._arriving_since + STUCK_SECONDS

    def _flush(self) -> None:
        """Send what waits, but not what nobody waits for any more, and no more than the transport takes."""
        self._flushing = False
        if not self._sent:
            self._heard_at = self._loop.time()
        while self._unsent and not self._paused and not self.closed:
            requests, size = [], 0
            while self._unsent and size < LARGE_REQUEST_BYTES:
                request, expected = self._unsent.popleft()
                if not expected.future.done():
                    self._sent.append(expected)
                    requests.append(request)
                    size += len(request)
            self._transport.write(b"".join(requests))

    def _wake_at(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = self._loop.call_at(when, self._end_waits), when

    def _end_waits(self) -> None:
        """Fail those whose time is up, or close the link if the server is silent. Look again when that may be so."""
        self._alarm, self._alarm_at, now = None, math.inf, self._loop.time()
        silent_at = self._heard_at + self.silence
        if self._sent and now >= silent_at:
            self.close(LinkSilent(f"no answer for {self.silence:.3g} s"))
            return
        arrives = self._is_arriving(now)
        for at, expected in enumerate(self._sent):
            if arrives or (at == 0 and (self._parts or expected.answers)):
                expected.until = max(expected.until, silent_at)
            elif now >= expected.until and _fail(expected, unanswered(LinkSilent("no answer in time"))):
                self._doubtful = True
        for _, expected in self._unsent:
            if now >= expected.until:
                _fail(expected, unsent(LinkSilent("nothing could be sent in time")))
        waiting = [*self._sent, *(expected for _, expected in self._unsent)]
        times = [expected.until for expected in waiting if not expected.future.done()]
        if times or self._sent:
            self._wake_at(min([*times, silent_at] if self._sent else times))


def _fail(expected: Expected, failure: Exception) -> bool:
    """Tell the caller of *expected* that it failed. Return False if it does not wait any more."""
    if expected.future.done():
        return False
    expected.future.set_exception(failure)
    return True
