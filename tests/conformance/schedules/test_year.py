"""A year of schedules on a simulated clock and a real server, by workers that are killed at random.

What is expected is reckoned here by hand, from the dates on which the clocks of 2026 change, and not from cronsim or
zoneinfo.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from shardq import Queue
from shardq.model.schedule import FixedSchedule
from shardq.model.timetable import timetable
from shardq.ops.queue.steps import Call, Step
from shardq.ops.schedules.attend import Attendant
from shardq.testing import ManualClock
from tests.selection import SOAK
from tests.servers import Server
from tests.simulated import Killed, clocked_client

pytestmark = pytest.mark.runs_in("test-all")

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = [date(2026, 1, 1) + timedelta(days=number) for number in range(365)]
WINDOW = 600.0
"""The queue's dedup window, in seconds."""


def at(day: date, hour: int, minute: int) -> datetime:
    """This time of UTC; an hour may be below 0, or above 23."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(hours=hour, minutes=minute)


def berlin(day: date, hour: int, minute: int) -> datetime:
    """An hour before 4:00 in Berlin: summer time from 29 March on, and on 25 October still where 2:30 comes first."""
    if day == date(2026, 3, 29) and hour == 2:
        return at(day, 1, 0)  # the clock goes from 2:00 to 3:00: skipped, so it is when the clock goes on
    is_summer = date(2026, 3, 29) <= day <= date(2026, 10, 25) and (day, hour) != (date(2026, 10, 25), 3)
    if day == date(2026, 3, 29) and hour < 2:
        is_summer = False
    return at(day, hour - (2 if is_summer else 1), minute)


def new_york(day: date, hour: int, minute: int) -> datetime:
    """An hour before 4:00 in New York: summer time from 8 March on; on 1 November 1:30 comes twice, 2:30 once."""
    if day == date(2026, 3, 8) and hour == 2:
        return at(day, 7, 0)
    if day == date(2026, 3, 8) and hour < 2:
        return at(day, hour + 5, minute)
    is_summer = date(2026, 3, 8) <= day < date(2026, 11, 1) or (day == date(2026, 11, 1) and hour < 2)
    return at(day, hour + (4 if is_summer else 5), minute)


EXPECTED = {
    "berlin": [berlin(day, 2, 30) for day in DAYS],
    "new york": [new_york(day, 2, 30) for day in DAYS],
    "new york, twice": [new_york(day, 1, 30) for day in DAYS],
    "weekdays": [berlin(day, 3, 15) for day in DAYS if day.weekday() < 5],
}
LINES = {
    "berlin": ("30 2 * * *", "Europe/Berlin"),
    "new york": ("30 2 * * *", "America/New_York"),
    "new york, twice": ("30 1 * * *", "America/New_York"),
    "weekdays": ("15 3 * * MON-FRI", "Europe/Berlin"),
}


def fixed(name: str, catch_up: Any = "skip", line: str = "", tz: str = "", every: int | None = None) -> FixedSchedule:
    times = timetable(*(LINES.get(name) or (line or None, tz or "UTC")), every)
    return FixedSchedule(name.replace(" ", "-").replace(",", ""), name, times, "cron", catch_up, [name, {}])


class Worker:
    """A worker, as far as it attends to schedules. It is killed at a random call, before or after the server has it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client, self._driver = clocked_client(world.server, world.clock)
        queue = self._client.queue("jobs", **world.settings)
        self._attendant = Attendant(queue.state, self._client.codecs, world.schedules)
        self._calls = 0
        self._dies: tuple[int, bool] | None = None
        self.suspended = 0.0
        self._driver.hook = self._hook

    def attend(self, *, dies: tuple[int, bool] | None = None) -> bool:
        """Look once. False if it was killed: *dies* says at which of its calls, and whether the server has it."""
        self._calls, self._dies = 0, dies
        try:
            self._client.run(self._attendant.attend(5.0))
        except Killed:
            self._world.killed_at.append(self._last)
            return False
        return True

    def _hook(self, step: Step, is_done: bool) -> None:
        if not isinstance(step, Call):
            return
        self._last = (step.script.name, is_done)
        if step.script.name == "write" and not is_done and self.suspended:
            seconds, self.suspended = self.suspended, 0.0
            self._world.meanwhile()
            self._world.clock.advance(seconds)  # this process stands still
        if self._dies == (self._calls, is_done):
            raise Killed
        self._calls += is_done


class World:
    """A queue with schedules, on a server whose time the test moves."""

    def __init__(self, server: Server, rng: random.Random, schedules: list[FixedSchedule]) -> None:
        self.server, self.schedules, self.random = server, schedules, rng
        self.settings: dict[str, Any] = {
            "streams": 2,
            "streams_per_shard": 1,
            "dedup_window": WINDOW,
            "max_schedules": 10,
        }
        self.clock = ManualClock(START.timestamp())
        self.killed_at: list[tuple[str, bool]] = []
        self.workers = [Worker(self) for _ in range(3)]
        client, _ = clocked_client(server, self.clock)
        self.queue: Queue = client.queue("jobs", **self.settings)
        self.written: Counter[tuple[str, datetime]] = Counter()
        self.meanwhile: Any = lambda: None

    def until(self, moment: datetime) -> None:
        """Let time pass."""
        self.clock.advance(max(0.0, moment.timestamp() - self.clock.wall()))

    def attend(self, *, kills: bool) -> None:
        """Let each worker look once, in any order. Those that are killed are started again, and look at once."""
        order = list(range(3))
        self.random.shuffle(order)
        for number in order:
            dies = (
                (self.random.randrange(6), self.random.random() < 0.5) if kills and self.random.random() < 0.3 else None
            )
            if not self.workers[number].attend(dies=dies):
                self.workers[number] = Worker(self)

    def minutes(self, begin: datetime, count: int, *, kills: bool) -> None:
        """Let workers look once a minute, for so many minutes from *begin* on; each a little late."""
        for minute in range(count):
            self.until(begin + timedelta(minutes=minute, seconds=self.random.uniform(0, 10)))
            self.attend(kills=kills)

    def read(self) -> None:
        """Take what has come due, and note for which slots it was written. None comes before its slot."""
        while deliveries := self.queue.read_many(100):
            for delivery in deliveries:
                slot = datetime.fromisoformat(delivery.headers["slot"])
                assert slot.timestamp() <= self.clock.wall() + 0.001
                self.written[delivery.payload[0], slot.astimezone(UTC)] += 1
            self.queue.ack_many(deliveries)


def slots(name: str, moments: list[datetime]) -> Counter[tuple[str, datetime]]:
    return Counter((name, moment) for moment in moments)


def visits(moments: list[datetime]) -> Iterator[datetime]:
    """When workers look: around each slot, since at any other time they find nothing to write."""
    minutes = range(-10, 11) if SOAK else range(-2, 1)
    around = {moment + timedelta(minutes=minute) for moment in moments for minute in minutes}
    yield from sorted(each for each in around if each >= START)


@pytest.mark.once
@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(7200 if SOAK else 1200)
def test_each_slot_of_a_year_is_exactly_one_message(server: Server, rng: random.Random) -> None:
    world = World(server, rng, [fixed(name) for name in LINES])
    world.attend(kills=False)
    for number, moment in enumerate(visits([each for moments in EXPECTED.values() for each in moments])):
        world.minutes(moment, 1, kills=True)
        if number % 50 == 0:
            world.read()
    world.clock.advance(120)
    world.read()
    expected: Counter[tuple[str, datetime]] = Counter()
    for name, moments in EXPECTED.items():
        expected += slots(name, moments)
    assert world.written == expected
    assert {verb for verb, _ in world.killed_at} >= {"due_schedules", "write"}
    assert {("write", False), ("write", True)} <= {*world.killed_at}, "before and after the effect"


@pytest.mark.once
@pytest.mark.runs_in("test", "test-all")
def test_one_that_stood_still_for_twice_the_dedup_window_writes_nothing_twice(
    server: Server, rng: random.Random
) -> None:
    """It wakes up with a decision of 20 minutes ago, when no dedup key is remembered any more."""
    slot = at(date(2026, 1, 2), 1, 30)
    world = World(server, rng, [fixed("berlin")])
    world.attend(kills=False)
    world.meanwhile = world.workers[1].attend  # that one is faster
    for days, stands_still in enumerate((2 * WINDOW, 30.0)):
        world.until(slot + timedelta(days=days, seconds=-40))
        world.workers[0].suspended = stands_still
        assert world.workers[0].attend()
        assert world.workers[2].attend()
    world.clock.advance(60)
    world.read()
    assert world.written == slots("berlin", [slot, slot + timedelta(days=1)])


@pytest.mark.once
def test_where_redis_lost_how_far_a_schedule_is_the_dedup_key_knows(server: Server, rng: random.Random) -> None:
    slot = at(date(2026, 1, 2), 1, 30)
    world = World(server, rng, [fixed("berlin")])
    world.attend(kills=False)
    world.until(slot - timedelta(seconds=40))
    world.attend(kills=False)
    assert server.run("HDEL", world.queue.state.keys.meta, "S:c:berlin") == 1
    for _ in range(3):
        world.clock.advance(10)
        world.attend(kills=False)
    world.clock.advance(60)
    world.read()
    assert world.written == slots("berlin", [slot])


@pytest.mark.once
@pytest.mark.parametrize("away", [1, 3, 30])
def test_what_no_worker_was_there_for_is_caught_up_as_it_says(server: Server, rng: random.Random, away: int) -> None:
    """Workers are away for some nights: "skip" leaves them out, "once" writes the last one, "all" all of them."""
    lines = {name: fixed(name, name, "30 2 * * *", "Europe/Berlin") for name in ("skip", "once", "all")}
    world = World(server, rng, [*lines.values()])
    nights = [berlin(day, 2, 30) for day in DAYS[60 : 60 + 2 + away]]  # over 29 March, for the longest
    world.until(nights[0] - timedelta(hours=3))
    world.attend(kills=False)
    world.minutes(nights[0] - timedelta(minutes=2), 4, kills=True)
    world.until(nights[away] + timedelta(hours=5))
    for _ in range(3):
        world.attend(kills=True)
    world.minutes(nights[-1] - timedelta(minutes=2), 4, kills=True)
    world.read()
    assert world.written == (
        slots("skip", [nights[0], nights[-1]])
        + slots("once", [nights[0], nights[away], nights[-1]])
        + slots("all", nights)
    )


@pytest.mark.once
def test_all_is_the_last_hundred_and_tells_the_rest(
    server: Server, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(
        server, rng, [fixed("all", "all", "* * * * *"), fixed("once", "once", every=60), fixed("skip", every=60)]
    )
    world.attend(kills=False)
    world.until(START + timedelta(hours=10, seconds=30))
    world.attend(kills=False)
    world.clock.advance(120)
    world.read()
    now = START + timedelta(hours=10)
    found = {name: sorted(slot for each, slot in world.written if each == name) for name in ("all", "once", "skip")}
    coming = [now + timedelta(minutes=1)]
    begin = [START + timedelta(minutes=1)]
    assert found["all"] == [*begin, *(now - timedelta(minutes=minute) for minute in reversed(range(100))), *coming]
    assert found["once"] == found["skip"] == [*begin, now, *coming], "at most a minute late is not missed"
    assert max(world.written.values()) == 1
    told = [record.getMessage() for record in caplog.records if "leaves" in record.getMessage()]
    assert len(told) == 3
    assert "up to 2026-01-01T08:20:00+00:00" in told[0]


@pytest.mark.once
@pytest.mark.parametrize("back", [600, 30 * 86_400])
def test_a_clock_that_jumped_on_and_back_writes_no_slot_twice_and_goes_on(
    server: Server, rng: random.Random, back: float, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(server, rng, [fixed("hourly", "skip", "0 * * * *")])
    world.queue.schedules.add("stored", ["stored", {}], shard_key="t", cron="0 * * * *")
    world.attend(kills=False)
    world.minutes(START + timedelta(hours=1, minutes=-1), 2, kills=False)
    right = world.clock.wall()
    world.clock.advance(back)
    ahead = datetime.fromtimestamp(world.clock.wall(), UTC).replace(minute=59, second=30)
    world.until(ahead)
    world.attend(kills=False)  # by the wrong clock it writes a slot that is far ahead
    world.read()
    world.clock._wall -= world.clock.wall() - right
    world.minutes(START + timedelta(hours=1, minutes=2), 60 * 5, kills=False)
    world.read()
    hours = [START + timedelta(hours=hour) for hour in range(1, 7)]
    assert [world.written["hourly", hour] for hour in hours] == [1] * 6
    assert [world.written["stored", hour] for hour in hours] == [1] * 6
    assert max(world.written.values()) == 1
    assert ("was set back" in caplog.text) == (back > 3600)
