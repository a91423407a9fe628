"""Those of one client who wait for results of messages of one queue. No I/O.

They share one blocking connection, as blocked reads do (`shardq.ops.waiting`). What is finished comes to it by message
id. A waiter has looked for its result before it joins, so its id may come between the two: whoever joins finds it among
those that came lately.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from shardq.clock import Clock
from shardq.ops.waiting import NEVER, Request, Waiter, Waiting
from shardq.protocol.results import Ended
from shardq.timing import Purgatory

REMEMBERED: Final = 10_000
"""So many message ids that came lately are remembered."""

_NO_REQUEST: Final = Request(0, 0.0, None)


class ResultWaiter(Waiter):
    """Somebody who waits for the result of a message, and has seen what was finished up to the entry *position*.

    Once it is `done`, `ended` is how the message ended. None means that it must look for itself.
    """

    __slots__ = ("ended", "message_id", "position")

    def __init__(self, waiting: ResultWaiting, message_id: str, *, until: float, position: str) -> None:
        super().__init__(waiting, _NO_REQUEST, until=until, read_at=-NEVER, wake_at=NEVER)
        self.message_id = message_id
        self.position = position
        self.ended: Ended | None = None


class ResultWaiting(Waiting):
    """The waiters of one queue."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._lately: OrderedDict[str, None] = OrderedDict()

    def join(self, waiter: Waiter, purgatory: Purgatory, timeout: float | None) -> None:
        """Add *waiter*, and let it look at once if its message was finished lately."""
        super().join(waiter, purgatory, timeout)
        if isinstance(waiter, ResultWaiter) and waiter.message_id in self._lately:
            waiter.finish(None)

    def note(self, message_ids: Iterable[str]) -> list[ResultWaiter]:
        """Note that messages were finished. Return those who wait for one of them."""
        ids = set(message_ids)
        for each in ids:
            self._lately[each] = None
        while len(self._lately) > REMEMBERED:
            self._lately.popitem(last=False)
        return [waiter for waiter in self.result_waiters() if waiter.message_id in ids]

    def result_waiters(self) -> list[ResultWaiter]:
        """Return the waiters, the one that has waited longest first."""
        return [waiter for waiter in self.waiters() if isinstance(waiter, ResultWaiter)]
