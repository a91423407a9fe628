"""A journal's record of one message. It is read in pieces, so that a long one costs a look no more than a short one."""

from __future__ import annotations

from typing import Final

from shardq.client import AsyncQueue
from shardq.dashboard.source import FRESH_SECONDS, SceneSource
from shardq.model import JournalPage
from shardq.model.event import Event
from shardq.model.message import MessageId
from shardq.ops.inspect.journal import journal
from shardq.outlook.story import LAST_KINDS
from shardq.partitions.over import of_message
from shardq.protocol.ids import split

EVENTS_A_PAGE: Final = 1000
PAGES: Final = 5
"""Pages of events that one look at a message reads: the next look continues where this one ended."""
CLOCK_SLACK: Final = 5.0
"""Seconds before the write from which on its journal is read, since clocks are set."""
MAX_STEPS: Final = 40
"""Looks that a search for the time of the write takes at most."""
MAX_EVENTS: Final = 1000
"""Events of one message that are kept: the first ones."""


class Story:
    """The events of one message that were found so far."""

    def __init__(self, queue: AsyncQueue, message_id: str) -> None:
        self._queue, self._id = queue, message_id
        self._inner = split(message_id)[0]
        self._written = MessageId.parse(self._inner).written_ms / 1000
        self._position: int | None = None
        self._life = ""
        self.events: list[Event] = []
        self.is_kept = True
        """Whether the queue keeps a journal, or has one yet."""
        self.looked_until: float | None = None
        """Until when the journal was looked through; None: to its end."""

    @property
    def begins_late(self) -> bool:
        """Whether events are missing that were before the oldest one that is kept."""
        return self.is_kept and self.looked_until is None and not any(each.kind == "written" for each in self.events)

    async def go_on(self) -> Story:
        """Read on."""
        if self._position is None:
            self._position = await self._begin()
        for _ in range(PAGES):
            page = await self._page(EVENTS_A_PAGE, self._position)
            if page.queue_id != self._life:  # the queue was deleted and recreated, with another journal
                self._life = page.queue_id
                self.events.clear()
            self.events += [each for each in page.events if each.message_id == self._inner]
            del self.events[MAX_EVENTS:]
            self._position = page.position
            is_over = page.position >= page.latest or (self.events and self.events[-1].kind in LAST_KINDS)
            self.looked_until = None if is_over or not page.events else page.events[-1].time
            if is_over:
                break
        return self

    async def _page(self, count: int, after: int = 0) -> JournalPage:
        """Return a page of the journal, where the queue has partitions of that one which has the message."""
        op = of_message(self._queue.state, self._id, lambda state, _: journal(state, count, after))
        return await self._queue.client.run(op)

    async def _begin(self) -> int:
        """Return the position before the events of the time in which the message was written."""
        first = await self._page(1)
        self._life = first.queue_id
        if not first.events:
            self.is_kept = bool((await self._queue.settings()).journal)
            return first.latest
        oldest = first.events[0]
        since = self._written - CLOCK_SLACK
        low, high = oldest.number - 1, first.latest
        for _ in range(MAX_STEPS):
            if high - low <= EVENTS_A_PAGE:
                break
            middle = (low + high) // 2
            events = (await self._page(1, middle)).events
            if events and events[0].time < since:
                low = middle
            else:
                high = middle
        return low


async def story(source: SceneSource, queue: str, message_id: str) -> Story:
    """Return the events of a message that were found by now. Each call looks further, as long as somebody looks."""
    question = ("story", queue, message_id)
    known: Story | None = source.last(question)

    async def ask() -> Story:
        return await (known or Story(source.client.queue(queue, create=False), message_id)).go_on()

    return await source.shared(question, ask, fresh=FRESH_SECONDS)
