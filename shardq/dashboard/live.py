"""All who look: which scenes are made for them, and the streams that tell them. Nobody looks: nothing is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from shardq.dashboard.channel import REDIS_AWAY, Channel
from shardq.dashboard.encoding import BEAT, HERE_EVENT, encoded, event
from shardq.dashboard.pulse import RedisPulse
from shardq.dashboard.scene import AskedScene, Scene
from shardq.dashboard.source import SceneSource

MAX_STREAMS: Final = 200
"""Streams at a time."""
MAX_STREAMS_A_PERSON: Final = 10
"""Streams of one person at a time."""
SILENCE: Final = 15.0
"""Seconds after which a stream that said nothing says that it is there."""
MAX_STREAM_SECONDS: Final = 600.0
"""Seconds after which a stream ends. The browser comes again, and is asked again who it is."""
RETRY: Final = b"retry: 1000\n\n"
"""Milliseconds after which a browser comes again when its stream ends."""

log = logging.getLogger("shardq.dashboard")
Events: TypeAlias = AsyncGenerator[bytes, None]
Side: TypeAlias = Callable[[SceneSource], Awaitable[Mapping[str, Any]]]
_Key: TypeAlias = tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]
"""The key of a channel: the name of its scene, the parts of its address, and its query, sorted."""
SIDE_CHANNEL: Final[_Key] = ("side", (), ())
"""The key of the channel of the side bar, which is shown beside each scene."""


class TooMany(Exception):
    """There are as many streams as there may be. The text is for the person."""


class Live:
    """The streams of one page."""

    def __init__(self, source: SceneSource, side: Side) -> None:
        self._source, self._clock = source, source.client.clock
        self._side = side
        self._channels: dict[_Key, Channel] = {}
        self._of_one: dict[str, int] = {}
        self._news = asyncio.Event()
        self._pulse = RedisPulse(source.client, self._beaten)
        self._beating: asyncio.Task[None] | None = None
        self.streams = 0
        self._closed = False

    def asks_nothing(self) -> bool:
        """Whether nothing is asked, since nobody looks."""
        return not self._channels and self._beating is None

    def hurry(self, queue: str) -> None:
        """Make the scenes soon that show this *queue*: an action has changed it."""
        self._source.outdate(queue)
        for key, channel in self._channels.items():
            if _shows(key, queue):
                channel.hurry()

    def _recover(self) -> None:
        self._source.recover()
        for channel in self._channels.values():
            channel.hurry()

    def close(self) -> None:
        """End all streams, and take no more."""
        self._closed = True
        self._tell()

    def place(self, who: str) -> Callable[[], None]:
        """Take the place of one stream of *who*, and return what gives it back. TooMany if there is none."""
        if self._closed or self.streams >= MAX_STREAMS:
            raise TooMany(f"{MAX_STREAMS} pages are open, as many as may be: close one.")
        if self._of_one.get(who, 0) >= MAX_STREAMS_A_PERSON:
            raise TooMany(f"You have {MAX_STREAMS_A_PERSON} pages open, as many as one may have: close one.")
        self.streams += 1
        self._of_one[who] = self._of_one.get(who, 0) + 1
        return partial(self._leave, who)

    def _leave(self, who: str) -> None:
        self.streams -= 1
        self._of_one[who] -= 1
        if not self._of_one[who]:
            del self._of_one[who]

    async def events(self, name: str, scene: Scene, asked: AskedScene, you: Mapping[str, Any]) -> Events:
        """Return the events for a person who looks at a scene, until LONGEST is over. *you* is sent beside the side."""
        key: _Key = (name, asked.parts, tuple(sorted(asked.query.items())))
        until = self._clock.monotonic() + MAX_STREAM_SECONDS
        yield RETRY
        with (
            self._look(key, "scene", lambda: scene(self._source, asked)) as channel,
            self._look(SIDE_CHANNEL, "side", lambda: self._side(self._source)) as beside,
        ):
            told = _StreamTold(encoded(you)[:-1])
            while not self._closed and self._clock.monotonic() < until and channel.is_made and beside.is_made:
                news = self._news
                for each in told.new(channel, beside, self._pulse.away_since):
                    yield each
                if news is self._news and not await _waited(news, SILENCE):
                    yield HERE_EVENT

    @contextmanager
    def _look(self, key: _Key, kind: str, make: Callable[[], Awaitable[Mapping[str, Any]]]) -> Iterator[Channel]:
        """Let a scene be made as long as somebody looks at it."""
        channel = self._channels.get(key)
        if channel is None or not channel.is_made:
            channel = self._channels[key] = Channel(kind, make, self._clock, self._tell)
            channel.task = asyncio.create_task(channel.run())
            channel.task.add_done_callback(partial(self._ended, channel))
        if self._beating is None:
            self._beating = asyncio.create_task(self._pulse.run())
        channel.lookers += 1
        try:
            yield channel
        finally:
            channel.lookers -= 1
            if not channel.lookers and channel.task is not None:
                channel.task.cancel()
                if self._channels.get(key) is channel:
                    del self._channels[key]
            if not self._channels and self._beating is not None:
                self._beating.cancel()
                self._beating, self._pulse.away_since = None, None

    def _ended(self, channel: Channel, task: asyncio.Task[None]) -> None:
        """A scene is made no more. By a defect: its streams end, so that browsers come again, and it is made again."""
        if not task.cancelled():
            log.error("a scene of the page ended", exc_info=task.exception())
            self._tell()

    def _beaten(self) -> None:
        """Redis went away, or came back: then what failed meanwhile is asked again at once."""
        if self._pulse.away_since is None:
            self._recover()
        self._tell()

    def _tell(self) -> None:
        """Wake all streams: those that have nothing new to say wait again."""
        news, self._news = self._news, asyncio.Event()
        news.set()


def _shows(key: _Key, queue: str) -> bool:
    """Whether what is looked at is of this queue, or of all queues."""
    _, parts, _ = key
    return not parts or parts[0] == queue


class _StreamTold:
    """The past of one stream, and what is new since. News between are skipped."""

    def __init__(self, mine: bytes) -> None:
        self._mine = mine
        self._scene = self._side = self._made = 0
        self._away: float | None = None

    def new(self, channel: Channel, beside: Channel, away: float | None) -> Iterator[bytes]:
        """Return the events that are new."""
        if away != self._away:
            self._away = away
            if away is not None:
                yield event("away", encoded({"text": REDIS_AWAY, "since": away}))
            else:
                self._scene = 0  # what was shown before is shown again, as that of now
        news = beside.news
        if news is not None and news.number != self._side and news.kind == "side":
            self._side = news.number
            yield event("side", self._mine + b"," + news.data[1:])
        if away is not None or channel.news is None or channel.made == self._made:
            return
        self._made = channel.made
        if channel.news.number != self._scene:
            self._scene = channel.news.number
            yield channel.news.event()
        elif channel.news.kind in ("scene", "gone"):
            yield BEAT


async def _waited(news: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return False
    return True
