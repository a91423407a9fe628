"""The waiters of one client for results of messages of one queue. No I/O.

They share one blocking connection, as blocked reads do (`shardq.ops.read.waiting`). The ids of messages that have ended
come in entries of a stream. A waiter has looked for its result before it joins, so its id may come between the two: it
is then found among those that came lately.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from shardq.clock import Clock
from shardq.ops.queue.state import QueueState
from shardq.ops.read.waiting import NO_TIME, ReadRequest, ReadWaiter, Waiting
from shardq.protocol.results import Ended
from shardq.timing import Purgatory

MAX_REMEMBERED: Final = 10_000
"""Message ids that came lately and are remembered."""

Entry: TypeAlias = tuple[str, Sequence[str]]
"""A position in the stream of what has ended, and the ids of messages."""

_NO_REQUEST: Final = ReadRequest(0, 0.0, None)


def order(position: str) -> tuple[int, int]:
    """Return what positions in a stream are compared by."""
    ms, _, number = position.partition("-")
    return int(ms), int(number)


class ResultWaiter(ReadWaiter):
    """Somebody who waits for the result of a message, and has seen what had ended up to the entry *position*.

    Once it is `done`, `ended` is how the message ended. None means that it must look for itself.
    """

    __slots__ = ("ended", "message_id", "position")

    def __init__(self, waiting: ResultWaiting, message_id: str, *, until: float, position: str) -> None:
        super().__init__(waiting, _NO_REQUEST, until=until, read_at=-NO_TIME, wake_at=NO_TIME)
        self.message_id = message_id
        self.position = position
        self.ended: Ended | None = None


class ResultWaiting(Waiting):
    """The waiters of one queue."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._lately: OrderedDict[str, str] = OrderedDict()
        """By message id the last entry that told of it."""
        self.position = "0-0"  # the last entry that this client has passed on to all who wait
        self.looked_at = 0.0  # local time at which some of the waiters looked for themselves

    def join(self, waiter: ReadWaiter, purgatory: Purgatory, timeout: float | None) -> None:
        """Add *waiter*, and let it look at once if its message ended since it looked."""
        if not self.waiters():
            self.looked_at = self.clock.monotonic()
        super().join(waiter, purgatory, timeout)
        if not isinstance(waiter, ResultWaiter):
            return
        told = self._lately.get(waiter.message_id, "0-0")
        if order(told) > order(waiter.position):
            waiter.position = told  # once is enough: a dead letter may have been redriven since
            waiter.finish(None)

    def note(self, entries: Iterable[Entry]) -> list[ResultWaiter]:
        """Note which messages *entries* tell of. Return those who wait for one of them."""
        ids: set[str] = set()
        for position, message_ids in entries:
            for each in message_ids:
                self._lately[each] = position
                self._lately.move_to_end(each)
            ids.update(message_ids)
        while len(self._lately) > MAX_REMEMBERED:
            self._lately.popitem(last=False)
        return [waiter for waiter in self.result_waiters() if waiter.message_id in ids]

    def result_waiters(self) -> list[ResultWaiter]:
        """Return the waiters, the one that has waited longest first."""
        return [waiter for waiter in self.waiters() if isinstance(waiter, ResultWaiter)]


def result_waiting_of(state: QueueState) -> ResultWaiting:
    """Return those who wait for results of messages of this queue."""
    waiting: ResultWaiting | None = state.waiting.get("results")
    return waiting or state.waiting.setdefault("results", ResultWaiting(state.clock))
