"""Who looks is told what changes; nobody looks: nothing is asked. Redis is away: that is said, and it goes on."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any
from unittest.mock import ANY

import pytest

from shardq import AsyncClient
from shardq.dashboard import live as live_module
from shardq.dashboard.channel import PERIOD, REST_FACTOR, SCREEN_FAILED, SLOW_SCENE_SECONDS, Channel
from shardq.dashboard.live import MAX_STREAMS, MAX_STREAMS_A_PERSON, Live, TooMany
from shardq.dashboard.numbers import MAX_FRESH_SECONDS
from shardq.dashboard.pulse import BEAT, PATIENCE, RedisPulse
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.dashboard.source import SceneSource
from shardq.dashboard.stream import Stream
from shardq.errors import BackendError
from shardq.protocol.beats import GONE_AFTER
from shardq.testing import ManualClock
from tests.dashboard.asking import said
from tests.servers import Server

pytestmark = pytest.mark.once
YOU = {"you": {"name": "jonas", "role": "view"}, "actions": False}


class Shown:
    """A scene that a test changes. It counts how often it is made."""

    def __init__(self, source: SceneSource) -> None:
        self.source = source
        self.made = 0
        self.value: Any = 1
        self.error: Exception | None = None

    async def __call__(self, source: SceneSource, asked: AskedScene) -> dict[str, Any]:
        self.made += 1
        if self.error is not None:
            raise self.error
        names = await source.shared("names", source.client.queues)
        return {"value": self.value, "names": names, "now": self.made}


async def side(source: SceneSource) -> dict[str, Any]:
    return {"queues": []}


class Looker:
    """One who looks."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self._events = events

    async def next(self, *kinds: str) -> tuple[str, Any]:
        """The next event of one of these kinds."""
        async with asyncio.timeout(60):
            async for each in self._events:
                lines = dict(line.split(": ", 1) for line in each.decode().splitlines() if line)
                if lines.get("event") in kinds:
                    return lines["event"], json.loads(lines["data"])
        raise AssertionError("the stream has ended")

    async def scene(self) -> Any:
        return (await self.next("scene"))[1]["value"]

    async def rest(self) -> list[bytes]:
        async with asyncio.timeout(60):
            return [each async for each in self._events]


@asynccontextmanager
async def looking(live: Live, shown: Shown, *parts: str) -> AsyncIterator[Looker]:
    async with aclosing(live.events("shown", shown, AskedScene(parts), YOU)) as events:
        yield Looker(events)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient.from_url(server.url, timeout=1.0) as client:
        yield client


@pytest.fixture
def live(client: AsyncClient) -> Live:
    return Live(SceneSource(client), side)


@pytest.fixture
def shown(live: Live) -> Shown:
    return Shown(live._source)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (what is waited for tells nobody)
            await asyncio.sleep(0.005)


async def test_what_changes_is_told_to_all_who_look_and_made_once(live: Live, shown: Shown) -> None:
    async with looking(live, shown) as first, looking(live, shown) as second:
        assert (await first.scene(), await second.scene()) == (1, 1)
        made = shown.made
        shown.value = 2
        live.hurry("jobs")
        assert (await first.scene(), await second.scene()) == (2, 2)
        assert shown.made == made + 1


async def test_an_action_hurries_the_screens_of_its_queue_alone(live: Live, shown: Shown) -> None:
    others = Shown(shown.source)
    async with (
        looking(live, shown, "jobs") as mine,
        aclosing(live.events("other", others, AskedScene(("mails",)), YOU)) as events,
    ):
        await mine.scene()
        await Looker(events).scene()
        hurried = {key[1] for key, channel in live._channels.items() if not channel._hurry.is_set()}
        live.hurry("jobs")
        assert hurried == {(), ("jobs",), ("mails",)}
        assert {key[1] for key, channel in live._channels.items() if not channel._hurry.is_set()} == {("mails",)}


async def test_what_does_not_change_is_only_said_to_be_as_it_was(live: Live, shown: Shown) -> None:
    async with looking(live, shown) as looker:
        await looker.scene()
        live.hurry("jobs")
        assert await looker.next("scene", "beat") == ("beat", {})


async def test_each_is_told_who_they_are_beside_the_queues(live: Live, shown: Shown) -> None:
    async with looking(live, shown) as looker:
        assert (await looker.next("side"))[1] == {**YOU, "queues": []}


async def test_each_question_about_a_screen_is_made_for_itself(live: Live) -> None:
    async def echo(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
        return {"value": [*asked.parts, *asked.query.items()]}

    async with (
        aclosing(live.events("echo", echo, AskedScene(("jobs",)), YOU)) as first,
        aclosing(live.events("echo", echo, AskedScene(("jobs",), {"order": "dead"}), YOU)) as second,
    ):
        assert await Looker(first).scene() == ["jobs"]
        assert await Looker(second).scene() == ["jobs", ["order", "dead"]]


async def test_nobody_looks_and_nothing_is_asked(live: Live, shown: Shown, server: Server) -> None:
    assert live.asks_nothing()
    async with looking(live, shown) as first:
        async with looking(live, shown, "jobs") as second:
            await first.scene()
            await second.scene()
            assert not live.asks_nothing()
        assert not live.asks_nothing()
    assert live.asks_nothing()
    await asyncio.sleep(0)
    assert [each for each in asyncio.all_tasks() if "shardq/dashboard" in str(each)] == []


async def test_an_answer_that_comes_when_nobody_looks_any_more_is_kept(live: Live) -> None:
    begun, may = asyncio.Event(), asyncio.Event()

    async def slow(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
        async def ask() -> int:
            begun.set()
            await may.wait()
            return 1

        return {"value": await source.shared("slow", ask)}

    async with aclosing(live.events("slow", slow, AskedScene(), YOU)) as events:
        waiting = asyncio.create_task(Looker(events).scene())
        await begun.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
    may.set()
    async with aclosing(live.events("slow", slow, AskedScene(), YOU)) as events:
        assert await Looker(events).scene() == 1


async def test_who_reads_slowly_skips_what_was_between(live: Live, shown: Shown) -> None:
    async with looking(live, shown) as quick, looking(live, shown) as slow:
        assert (await quick.scene(), await slow.scene()) == (1, 1)
        for value in range(2, 50):
            shown.value = value
            live.hurry("jobs")
            assert await quick.scene() == value
        assert await slow.scene() == 49


async def test_what_is_not_there_is_said_until_it_is(live: Live, shown: Shown) -> None:
    shown.error = NotThere("There is no queue jobs.")
    async with looking(live, shown) as looker:
        assert await looker.next("scene", "gone") == ("gone", {"text": "There is no queue jobs."})
        shown.error = None
        live.hurry("jobs")
        assert await looker.scene() == 1


async def test_a_screen_that_fails_says_no_more_than_that(
    live: Live, shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    shown.error = RuntimeError("redis://:secret@10.1.2.3")
    async with looking(live, shown) as looker:
        assert await looker.next("scene", "failed") == ("failed", {"text": SCREEN_FAILED})
        made = shown.made
        live.hurry("jobs")
        await until(lambda: shown.made > made)
        shown.error = None
        live.hurry("jobs")
        assert await looker.scene() == 1
    assert len(said(caplog).splitlines()) == 1  # not a line each time


async def test_a_screen_that_no_json_can_say_fails_and_goes_on(live: Live, shown: Shown) -> None:
    shown.value = object()
    async with looking(live, shown) as looker:
        assert await looker.next("scene", "failed") == ("failed", {"text": SCREEN_FAILED})
        shown.value = 2
        live.hurry("jobs")
        assert await looker.scene() == 2


async def test_a_screen_that_still_fails_is_not_said_to_be_as_it_was(live: Live, shown: Shown) -> None:
    async with looking(live, shown) as looker:
        await looker.scene()
        shown.error = RuntimeError("it broke")
        live.hurry("jobs")
        await looker.next("failed", "gone")
        made = shown.made
        live.hurry("jobs")
        await until(lambda: shown.made > made)
        shown.error = None
        live.hurry("jobs")
        assert await looker.next("scene", "beat") == ("scene", ANY)


async def test_a_scene_that_ends_by_a_defect_is_made_again_for_those_who_come_again(
    live: Live, shown: Shown, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those who look would see no more changes, and no word of that."""
    async with looking(live, shown) as looker:
        await looker.scene()
        with monkeypatch.context() as broken:
            broken.setattr(Channel, "_tell", None)
            broken.setattr(Channel, "_say", None)
            live.hurry("jobs")
            await looker.rest()
        assert "a scene of the page ended" in said(caplog)
        async with looking(live, shown) as again:
            assert await again.scene() == 1
    assert live.asks_nothing()


async def test_a_pulse_goes_on_after_a_defect(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float | None] = []
    pulse = RedisPulse(client, lambda: told.append(pulse.away_since))
    with monkeypatch.context() as broken:
        broken.setattr(client, "run", None)
        task = asyncio.create_task(pulse.run())
        await until(lambda: told)
    await until(lambda: len(told) == 2)
    assert (told[0] is not None, told[1]) == (True, None)
    task.cancel()


async def test_an_error_of_redis_is_told_without_its_text(live: Live, shown: Shown) -> None:
    shown.error = BackendError("10.1.2.3 refused the user ops")
    async with looking(live, shown) as looker:
        kind, told = await looker.next("scene", "away")
        assert (kind, told["text"]) == ("away", "Redis does not answer as it should.")


async def test_a_redis_that_is_away_is_told_to_all_and_they_go_on(
    live: Live, shown: Shown, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardq.dashboard")
    async with looking(live, shown) as first, looking(live, shown, "jobs") as second:
        await first.scene()
        await second.scene()
        server.pause()
        try:
            for looker in (first, second):
                kind, told = await looker.next("away")
                assert (kind, told["text"]) == ("away", "Redis does not answer.")
                assert told["since"] > 0
            await until(lambda: live._pulse.away_since)  # a scene may have said it before
        finally:
            server.resume()
        assert (await first.scene(), await second.scene()) == (1, 1)
    assert "Redis answers the page again" in said(caplog)


async def test_a_redis_that_is_restarted_is_told_and_they_go_on(live: Live, shown: Shown, server: Server) -> None:
    async with looking(live, shown) as looker:
        await looker.scene()
        server.kill9()
        await looker.next("away")
        server.start()
        assert await looker.scene() == 1


def test_redis_away_is_said_within_five_seconds() -> None:
    assert BEAT + PATIENCE < 5


def test_the_death_of_all_workers_is_said_within_35_seconds() -> None:
    """Scenes are made each 2 s, of numbers that rest for at most 4 s; the first ones of 30 s later say it."""
    assert PERIOD <= MAX_FRESH_SECONDS
    assert GONE_AFTER + MAX_FRESH_SECONDS < 35


@pytest.mark.runs_in("test-all")
async def test_what_changes_for_ten_minutes_leaves_nothing_in_memory(live: Live, shown: Shown) -> None:
    async def change(looker: Looker, times: int) -> int:
        """Tell so many scenes, each of 20 kB; return the bytes that are held after that."""
        for _ in range(times):
            shown.value = [str(shown.made)] * 5_000
            live.hurry("jobs")
            await looker.scene()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        async with looking(live, shown) as looker:
            before = await change(looker, 100)
            assert await change(looker, 300) <= before + 300_000
    finally:
        tracemalloc.stop()


async def test_streams_are_bounded_in_all_and_for_each(live: Live) -> None:
    mine = [live.place("mara") for _ in range(MAX_STREAMS_A_PERSON)]
    with pytest.raises(TooMany, match=f"You have {MAX_STREAMS_A_PERSON} pages open"):
        live.place("mara")
    mine.pop()()
    mine.append(live.place("mara"))
    others = [live.place(f"person {number}") for number in range(MAX_STREAMS - MAX_STREAMS_A_PERSON)]
    with pytest.raises(TooMany, match=f"{MAX_STREAMS} pages are open"):
        live.place("ada")
    for leave in (*mine, *others):
        leave()
    assert (live.streams, live._of_one) == (0, {})


async def test_an_end_ends_all_streams(live: Live, shown: Shown) -> None:
    async with looking(live, shown) as first, looking(live, shown) as second:
        await first.scene()
        await second.scene()
        live.close()
        await first.rest()
        await second.rest()
    with pytest.raises(TooMany):
        live.place("mara")


async def test_a_stream_ends_by_and_by_so_that_its_reader_is_asked_again_who_it_is(
    live: Live, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "MAX_STREAM_SECONDS", 0.0)
    async with looking(live, shown) as looker:
        assert await looker.rest() == [live_module.RETRY]


# How often a scene is made


async def test_a_scene_that_takes_long_is_made_less_often(clock: ManualClock) -> None:
    rests: list[float] = []
    takes = 0.0

    async def make() -> dict[str, Any]:
        clock.advance(takes)
        return {}

    channel = Channel("scene", make, clock, lambda: None, clock.monotonic)

    async def wait(rest: float) -> None:
        nonlocal takes
        rests.append(rest)
        takes = {0.0: 0.1, 0.1: 3.0}.get(takes, -1)
        if takes < 0:
            raise asyncio.CancelledError

    channel._wait = wait  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await channel.run()
    assert rests == [0.0, pytest.approx(5.0), SLOW_SCENE_SECONDS]


async def test_a_scene_rests_however_often_something_is_done(clock: ManualClock) -> None:
    """Else one who acts all the time would make it all the time, for all who look."""
    made, may = 0, asyncio.Event()

    async def make() -> dict[str, Any]:
        nonlocal made
        made += 1
        clock.advance(0.01)
        channel.hurry()
        if made == 3:
            may.set()
        return {}

    channel = Channel("scene", make, clock, lambda: None, clock.monotonic)
    began = asyncio.get_running_loop().time()
    task = asyncio.create_task(channel.run())
    await may.wait()
    task.cancel()
    assert asyncio.get_running_loop().time() - began >= 2 * REST_FACTOR * 0.01


async def test_a_scene_is_not_larger_than_it_may_be_without_a_word(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    channel = Channel("scene", _never, clock, lambda: None)
    channel._tell({"rows": ["x" * 100] * 1000})
    assert "more than 60000" in said(caplog)


async def _never() -> dict[str, Any]:
    raise AssertionError


async def test_a_pulse_says_when_redis_goes_and_when_it_comes(client: AsyncClient, server: Server) -> None:
    told: list[float | None] = []
    pulse = RedisPulse(client, lambda: told.append(pulse.away_since))
    await pulse._ask()
    server.kill9()
    await pulse._ask()
    await pulse._ask()
    server.start()
    await until_asked(pulse, lambda: pulse.away_since is None)
    assert [each is None for each in told] == [False, True]


async def until_asked(pulse: RedisPulse, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await pulse._ask()


# One stream


class Wire:
    """The server's side of a connection: what was sent, and when its browser goes away."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.may_send = asyncio.Event()
        self.may_send.set()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.may_send.wait()
        self.sent.append(message)


async def endless(ended: list[bool]) -> AsyncGenerator[bytes, None]:
    try:
        while True:
            yield b": x\n\n"
            await asyncio.sleep(0)
    finally:
        ended.append(True)


def served(wire: Wire, ended: list[bool], clock: ManualClock, may_look: Callable[[], bool]) -> Awaitable[None]:
    stream = Stream(lambda: ended.append(False), endless(ended), may_look, clock)
    return stream({"type": "http"}, wire.receive, wire.send)


async def test_a_stream_ends_when_its_browser_goes_away(clock: ManualClock) -> None:
    wire, ended = Wire(), list[bool]()
    task = asyncio.ensure_future(served(wire, ended, clock, lambda: True))
    await until(lambda: len(wire.sent) > 10)
    wire.gone.set()
    await task
    assert ended == [True, False]


async def test_a_stream_ends_when_who_reads_may_look_no_more(clock: ManualClock) -> None:
    wire, ended, may = Wire(), list[bool](), True
    task = asyncio.ensure_future(served(wire, ended, clock, lambda: may))
    await until(lambda: len(wire.sent) > 10)
    clock.advance(15)
    sent = len(wire.sent)
    await until(lambda: len(wire.sent) > sent + 1)
    may = False
    clock.advance(15)
    await task
    assert ended == [True, False]
    assert wire.sent[-1] == {"type": "http.response.body", "body": b""}


async def test_a_stream_that_nobody_reads_keeps_one_event_and_ends(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.dashboard.stream.PATIENCE", 0.05)
    wire, ended = Wire(), list[bool]()
    task = asyncio.ensure_future(served(wire, ended, clock, lambda: True))
    await until(lambda: len(wire.sent) > 10)
    wire.may_send.clear()
    await task
    assert ended == [True, False]
