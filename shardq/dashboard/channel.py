"""One scene that somebody looks at: it is made again and again, and told to all who look."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from shardq.clock import Clock
from shardq.dashboard.encoding import encoded, event
from shardq.dashboard.scene import NotThere
from shardq.errors import BackendError, BackendTimeout
from shardq.ops.queue.retry import is_denied
from shardq.ops.queue.steps import Refused

PERIOD: Final = 2.0
"""Seconds between two makings of a scene."""
SLOW_SCENE_SECONDS: Final = 10.0
"""Seconds between two makings of a scene that takes long to make."""
REST_FACTOR: Final = 50.0
"""A scene is not made again for this factor of the processor's time of its making: a busy machine makes none rare."""
RESEND_SECONDS: Final = 10.0
"""Seconds after which a scene is sent again in which nothing changed but the time."""
LOG_INTERVAL: Final = 60.0
"""Seconds between two lines of the log about a scene that fails."""
MAX_SCENE: Final = 60_000
"""Bytes of a scene; the log says which has more."""
REDIS_AWAY: Final = "Redis does not answer."
STRANGE_ANSWER: Final = "Redis does not answer as it should."
UNREADABLE: Final = "The page may not read this: its user of Redis needs the rights of an observer."
SCREEN_FAILED: Final = "This screen failed. The log of the page's process says why."

Make = Callable[[], Awaitable[Mapping[str, Any]]]
log = logging.getLogger("shardq.dashboard")


def trouble(error: BackendError) -> tuple[str, str]:
    """Return the event and the text that tell people of an error of Redis. Redis's own text may name hosts."""
    if isinstance(error.__cause__, Refused) and is_denied(error.__cause__):
        return "gone", UNREADABLE
    return "away", REDIS_AWAY if isinstance(error, BackendTimeout) else STRANGE_ANSWER


class News(NamedTuple):
    """The last news of a channel: the *kind* of event, its *data* as JSON, and its number."""

    kind: str
    data: bytes
    number: int

    def event(self) -> bytes:
        """Return it as it is sent."""
        return event(self.kind, self.data, self.number)


class Channel:
    """The result of *make*, whenever it changes. Only the last is kept: a slow reader skips those between."""

    def __init__(
        self, kind: str, make: Make, clock: Clock, changed: Callable[[], None],
        spent: Callable[[], float] = time.thread_time,
    ) -> None:  # fmt: skip
        self._kind, self._make, self._clock, self._changed, self._spent = kind, make, clock, changed, spent
        self.news: News | None = None
        self.made = 0
        """How often it was made."""
        self.lookers = 0
        self.task: asyncio.Task[None] | None = None
        self._shown: Mapping[str, Any] = {}
        self._told_at = 0.0
        self._next_line = 0.0
        self._away_since = 0.0
        self._hurry = asyncio.Event()

    @property
    def is_made(self) -> bool:
        """Whether it is made again and again."""
        return self.task is not None and not self.task.done()

    def hurry(self) -> None:
        """Make it again soon: something has just changed. It rests for what its making took in any case."""
        self._hurry.set()

    async def run(self) -> None:
        """Make it until cancelled."""
        while True:
            begun = self._spent()
            self._hurry.clear()
            try:
                self._tell(await self._make())
            except NotThere as error:
                self._say("gone", {"text": str(error)})
            except BackendError as error:
                self._complain("got no numbers", error)
                self._tell_of(error)
            except Exception as error:  # noqa: BLE001 (a screen that fails ends no other)
                self._complain("failed", error, trace=True)
                self._say("failed", {"text": SCREEN_FAILED})
            self.made += 1
            self._changed()
            await self._wait(min(REST_FACTOR * (self._spent() - begun), SLOW_SCENE_SECONDS))

    async def _wait(self, rest: float) -> None:
        """Wait for *rest* seconds whatever comes, and then until it is time, or something has changed."""
        await asyncio.sleep(rest)
        try:
            async with asyncio.timeout(PERIOD - rest):
                await self._hurry.wait()
        except TimeoutError:
            pass

    def _tell(self, made: Mapping[str, Any]) -> None:
        shown = {name: value for name, value in made.items() if name not in ("now", "age")}
        is_same = self.news is not None and self.news.kind == self._kind and shown == self._shown
        if is_same and self._clock.monotonic() - self._told_at < RESEND_SECONDS:
            return
        data = encoded(made)
        if len(data) > MAX_SCENE:
            self._complain(f"has {len(data)} bytes, more than {MAX_SCENE}", None)
        self._shown = shown
        self._put(self._kind, data)

    def _tell_of(self, error: BackendError) -> None:
        kind, text = trouble(error)
        if kind == "gone":
            self._say(kind, {"text": text})
            return
        if self.news is None or self.news.kind != kind:
            self._away_since = self._clock.wall()
        self._say(kind, {"text": text, "since": self._away_since})

    def _say(self, kind: str, text: Mapping[str, Any]) -> None:
        data = encoded(text)
        if self.news is None or (self.news.kind, self.news.data) != (kind, data):
            self._put(kind, data)

    def _put(self, kind: str, data: bytes) -> None:
        self.news = News(kind, data, 1 if self.news is None else self.news.number + 1)
        self._told_at = self._clock.monotonic()

    def _complain(self, what: str, error: Exception | None, *, trace: bool = False) -> None:
        if self._clock.monotonic() >= self._next_line:
            self._next_line = self._clock.monotonic() + LOG_INTERVAL
            log.warning("a scene of the page %s: %s", what, error or "cut it", exc_info=error if trace else None)
